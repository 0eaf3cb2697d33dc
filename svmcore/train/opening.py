"""How K of the programs of a training is served: whole in memory, in columns on demand, or by the rows themselves."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from svmcore.kernels import Precomputed
from svmcore.kernels.exact import ExactKernel
from svmcore.kernels.precomputed import is_psd
from svmcore.points import Floats, Rows
from svmcore.points.taken import taken
from svmcore.sources import ComputedColumns, LinearRows, PairGrams, ResidentGram, Source, resident_gram
from svmcore.train.posing.plan import ALONE, EXACT_ROWS, SMALL_BYTES, Plan, cached, choose_plan
from svmcore.train.posing.posed import Posed

__all__ = ["PSD_ROWS", "Opened", "opened", "plan_of"]

PSD_ROWS = 1024  # of a precomputed K that is looked at whether it is positive semi-definite, a cubic work
DENSE_ENTRIES = 1 << 22  # CSR rows are made dense up to so many entries


class Opened(NamedTuple):
    """A source of K, how it serves that, and the centre (p,) of its rows, if there is one."""

    plan: Plan
    source: Source | PairGrams
    centre: Floats | None


def opened(posed: Posed, dtype: DTypeLike, small: bool, stops: Callable[[], bool]) -> Opened:
    """K of the distinct rows, in values of `dtype`; of `small` programs the whole of it."""
    if posed.distinct.as_given:
        return _linear_rows(posed)
    if isinstance(posed.recipe.kernel, Precomputed):  # in the precision that it came in: that is what is meant
        K = np.asarray(posed.distinct.rows)
        return Opened("resident", ResidentGram(K, psd=len(K) <= PSD_ROWS and is_psd(K)), np.empty(0))
    computed, budget = _computed(posed, dtype), posed.recipe.cache_bytes
    once = not posed.recipe.calibrates  # probabilities solve parts of the programs again
    alone = len(posed.goals) > 1 and not small and once and _are_alone(posed, computed)
    centre, plan = computed.points.centre, plan_of(posed, dtype, computed.n, 1 if alone else len(posed.goals))
    at_once = small and 8 * computed.n**2 <= max(budget, SMALL_BYTES)
    if at_once or (plan == "resident" and not posed.pairs):
        gram = resident_gram(computed, stops)
        if gram is not None:
            return Opened("resident", gram, centre)
    if posed.pairs:
        return Opened(plan, PairGrams(computed, budget, stops), centre)
    return Opened("columns", cached(computed, budget, of_one=once and len(posed.goals) == 1), centre)


def _are_alone(posed: Posed, computed: ComputedColumns) -> bool:
    """Whether few classes leave many rows out of K, whose values are computed as fast as memory gives them back."""
    many = computed.n >= ALONE * len(posed.classes)
    return many and computed.computes_anew and posed.apart(cached(computed, posed.recipe.cache_bytes))


def plan_of(posed: Posed, dtype: DTypeLike, n: int, n_problems: int) -> Plan:
    """How K of n rows is served to so many problems."""
    return choose_plan(n, dtype, posed.recipe.cache_bytes, n_problems, SMALL_BYTES)


def _linear_rows(posed: Posed) -> Opened:
    """K of the rows as they came."""
    distinct = posed.distinct
    source = LinearRows(distinct.given, distinct.at, posed.recipe.served.is_centred)
    return Opened("factor", source, source.map.centre)


def _computed(posed: Posed, dtype: DTypeLike) -> ComputedColumns:
    """K of the rows, in columns; of many rows no copy is kept."""
    kernel, (rows, at) = posed.recipe.served, _rows_of_exact(posed)
    points = kernel.prepare_gram(rows if at is None else taken(rows, at), dtype)
    return ComputedColumns(kernel, points, dtype, ExactKernel(kernel, rows, like=points, at=at))


def _rows_of_exact(posed: Posed) -> tuple[Rows, Floats | None]:
    """What exact values are computed of: rows as they came and which they are, or a copy that is read in order."""
    distinct, few = posed.distinct, len(posed.C) <= EXACT_ROWS
    if not few and not posed.recipe.served.is_linear:  # a linear machine reads its rows again and again
        return distinct.given, distinct.at
    rows = distinct.rows
    if few and hasattr(rows, "toarray") and rows.shape[0] * rows.shape[1] <= DENSE_ENTRIES:
        rows = rows.toarray()  # faster at this size, and dense and CSR rows give the same bits
    return rows, None
