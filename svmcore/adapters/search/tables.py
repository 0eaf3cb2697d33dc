"""The trainings of a search: which can share, the rows that they share, and all of them solved together."""

import dataclasses
import functools
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params, _num_samples

from svmcore.adapters.classifiers import SVC, NuSVC
from svmcore.adapters.machine import Machine
from svmcore.adapters.one_class import OneClassSVM
from svmcore.adapters.prepared import Prepared
from svmcore.adapters.regressors import SVR, NuSVR
from svmcore.adapters.search.plan import Ready
from svmcore.adapters.search.rows import SearchRows
from svmcore.passes.matrix.gather import part_of
from svmcore.points import Floats, Rows
from svmcore.train import Recipe
from svmcore.train.choice import objection
from svmcore.train.shared import Fold, Found, Part, Table, Tally

__all__ = ["Data", "machine_of", "prepare"]

Made = TypeVar("Made")
MANY_ROWS = 2048  # of a table, from which threads that share one K are the better way
OURS = (SVC, NuSVC, SVR, NuSVR, OneClassSVM)  # not their subclasses: what these change nobody knows


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    """What a search is given."""

    X: Any
    y: Any
    fit_params: dict[str, Any]
    splits: Sequence[tuple[Any, Any]]
    with_train: bool  # scores of the training rows too
    jobs: int = 1  # processes for tables of few rows; larger ones take all threads of this one


@dataclasses.dataclass(frozen=True, eq=False)
class _Split:
    """Rows of a table to train on and to ask for, with the targets and weights that `fit` will be given."""

    place: int
    given: Any  # the rows to train on as the splitter has them
    train: Floats
    test: Floats
    y: Any
    weights: Any
    blocks: Sequence[Rows]  # as the estimator will be asked for them
    folds: list[Fold] = dataclasses.field(default_factory=list)

    def fold(self, codes: Floats, classes: Floats, weights: Floats | None, with_train: bool) -> Fold:
        """The fold with these codes and weights, one object for all candidates that have them."""
        for fold in self.folds:
            same = np.array_equal(fold.codes, codes) and np.array_equal(fold.classes, classes)
            if same and np.array_equal(fold.weights, weights):  # type: ignore[arg-type]
                return fold
        ask = np.concatenate([self.test, self.train]) if with_train else self.test
        self.folds.append(Fold(self.train, ask, codes, classes, weights))
        return self.folds[-1]


def prepare(base: Any, candidates: Sequence[dict[str, Any]], data: Data, watched: bool) -> Ready:
    """Train all candidates on all splits that can share."""
    started, ready = time.perf_counter(), Ready(fits=len(candidates) * len(data.splits))
    groups: dict[Any, list[tuple[int, Any]]] = {}
    for c, params in enumerate(candidates):
        estimator = _candidate(base, params)
        why = _objection(estimator, data.fit_params, watched)
        if why:
            ready.alone[why] += len(data.splits)
        else:
            groups.setdefault(_rows_key(estimator, params), []).append((c, estimator))
    for members in groups.values():
        for lot in _lots(data, members, ready):
            _train(lot, members, data, ready)
    order = np.argsort(ready.places, kind="stable")
    ready.trainings, ready.places = [ready.trainings[i] for i in order], [ready.places[i] for i in order]
    ready.seconds = time.perf_counter() - started
    return ready


# ---- which fits can share
def machine_of(estimator: Any) -> tuple[Machine | None, Pipeline | None]:
    """(our machine, the steps before it), None for what is not there."""
    if type(estimator) is Pipeline and type(estimator.steps[-1][1]) in OURS:
        return estimator.steps[-1][1], estimator[:-1] if len(estimator.steps) > 1 else None
    return (estimator if type(estimator) in OURS else None), None


def _candidate(base: Any, params: dict[str, Any]) -> Any:
    """The estimator of a candidate, or None for one that cannot be made."""
    try:
        return clone(base).set_params(**clone(params, safe=False))
    except Exception:  # scikit-learn meets it again, and tells
        return None


def _objection(estimator: Any, fit_params: dict[str, Any], watched: bool) -> str:
    """Why the fits of a candidate are done one by one, or an empty string."""
    machine, steps = machine_of(estimator)
    if machine is None:
        return "the estimator is none of svmcore's, alone or at the end of a Pipeline"
    if watched or machine._watched:
        return "somebody watches their progress (verbose, or a callback)"
    if machine.time_limit is not None or getattr(machine.solver, "time_limit", None) is not None:
        return "each has its time limit"
    if machine.approximation is not None:
        return "an approximation has landmarks among the rows that it is trained on"
    if machine._kernel_name == "callable":
        return "the kernel is a function, and may look at all rows that it is given"
    if machine._kernel_name == "precomputed" and steps is not None:
        return "the kernel matrix is made by the steps before"
    calibrated = getattr(machine, "probability", False) is True or getattr(machine, "calibration", None) is not None
    if calibrated and machine.random_state is None:
        return "probabilities draw other folds for each fit: give random_state a number"
    prefix = f"{estimator.steps[-1][0]}__" if type(estimator) is Pipeline else ""
    if fit_params.keys() - {f"{prefix}sample_weight"}:
        return "fit is given more than sample weights of the machine"
    return ""


def _rows_key(estimator: Any, params: dict[str, Any]) -> Any:
    """Equal for candidates whose machines are given the same rows: parameters of other steps are the same objects."""
    machine, steps = machine_of(estimator)
    alike = machine._kernel_name == "precomputed", type(machine)  # type: ignore[union-attr]
    if steps is None:
        return alike
    last = estimator.steps[-1][0]
    return *alike, *((name, id(params[name])) for name in sorted(params) if name.partition("__")[0] != last)


# ---- their rows
class _Lot(NamedTuple):
    """A table, the splits of its rows, and the rows as they came, with their parts where these are kept."""

    table: Table
    splits: list[_Split]
    X: Rows
    kept: SearchRows | None = None


def _lots(data: Data, members: Sequence[tuple[int, Any]], ready: Ready) -> Iterator[_Lot]:
    """One table of all rows, or, where steps come before the machine, one for each split."""
    estimator = members[0][1]
    machine, steps = machine_of(estimator)
    precomputed = machine._kernel_name == "precomputed"  # type: ignore[union-attr]
    grouped = any(getattr(machine_of(each)[0], "multi_class", "") == "ovo" for _, each in members)
    makers = [functools.partial(_whole, data, precomputed, grouped)]
    if steps is not None:
        makers = [functools.partial(_transformed, data, estimator, steps, s, grouped) for s in range(len(data.splits))]
    for make in makers:
        lot = _tried(make, ready, len(members) * len(data.splits) // len(makers))
        if lot is not None:
            yield lot


def _tried(make: Callable[[], Made], ready: Ready, fits: int) -> Made | None:
    """What is made for so many `fits`; None, with the reason in the plan, where it fails: each meets that again."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make()
    except Exception as error:  # of any step that a user wrote
        ready.alone[f"{type(error).__name__}: {error}".splitlines()[0]] += fits
        return None


def _whole(data: Data, precomputed: bool, grouped: bool) -> _Lot:
    X, codes = _checked(data.X), _codes(data.y, _num_samples(data.X))
    splits = [_split(data, s, X, _indices(*split), precomputed) for s, split in enumerate(data.splits)]
    kept = data.X if isinstance(data.X, SearchRows) and not precomputed else None
    return _Lot(Table(X, codes, precomputed, codes if grouped else _left_out(splits, len(codes))), splits, X, kept)


def _left_out(splits: Sequence[_Split], n: int) -> Floats:
    """Number (n,) of the last split that leaves each row out."""
    found = np.full(n, -1)
    for split in splits:
        found[split.test] = split.place
    return found


def _transformed(data: Data, estimator: Any, steps: Pipeline, place: int, grouped: bool) -> _Lot:
    """What the steps make of one split: the rows to train on, then those to ask for."""
    train, test = data.splits[place]
    X_train, y_train = _safe_split(estimator, data.X, data.y, train)
    fitted = clone(steps)
    parts = [_checked(fitted.fit_transform(X_train, y_train))]
    parts.append(_checked(fitted.transform(_safe_split(estimator, data.X, data.y, test, train)[0])))
    X = sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.vstack(parts)
    n = parts[0].shape[0]
    codes = np.concatenate([_codes(y_train, n), np.full(X.shape[0] - n, -1)])
    split = _split(data, place, X, (np.arange(n), np.arange(n, X.shape[0])), False)
    return _Lot(Table(X, codes, together=codes if grouped else _left_out([split], len(codes))), [split], X)


def _split(data: Data, place: int, X: Rows, rows: tuple[Floats, Floats], precomputed: bool) -> _Split:
    train, test = rows
    blocks = [_block(X, each, train, precomputed) for each in ((test, train) if data.with_train else (test,))]
    given = _indices(*data.splits[place])[0]
    y = np.zeros(len(train)) if data.y is None else _safe_indexing(data.y, given)
    weights = next(iter(_check_method_params(data.X, data.fit_params, indices=given).values()), None)
    return _Split(place, data.splits[place][0], train, test, y, weights, blocks)


def _training_rows(lot: _Lot, split: _Split) -> Rows:
    """Rows that the split is trained on: where the search keeps them, the very array that fits are given."""
    if lot.kept is not None:
        return lot.kept[split.given]
    return _block(lot.X, split.train, split.train, lot.table.precomputed)


def _block(X: Rows, rows: Floats, train: Floats, precomputed: bool) -> Rows:
    return part_of(X, rows, train) if precomputed else X[rows]


def _indices(train: Any, test: Any) -> tuple[Floats, Floats]:
    """Places of the rows of a split, which may be masks."""
    train, test = (np.flatnonzero(rows) if rows.dtype == bool else rows for rows in map(np.asarray, (train, test)))
    return train, test


def _checked(X: Any) -> Rows:
    return check_array(X, dtype=[np.float64, np.float32], order="C", accept_sparse="csr")


def _codes(y: Any, n: int) -> Floats:
    """Codes (n,) of equal targets."""
    if y is None:
        return np.zeros(n, dtype=np.int64)
    y = np.asarray(y)
    return np.unique(y, axis=None if y.ndim == 1 else 0, return_inverse=True)[1].reshape(n)


# ---- all of them
def _train(lot: _Lot, members: Sequence[tuple[int, Any]], data: Data, ready: Ready) -> None:
    """Train the candidates on all splits of one table."""
    parts, owners = [], []
    for (c, estimator), split in itertools.product(members, lot.splits):
        posed = _tried(functools.partial(_posed, machine_of(estimator)[0], split), ready, 1)
        if posed is not None:
            recipe, *about = posed
            parts.append(Part(recipe, split.fold(*about, with_train=data.with_train)))
            owners.append((c * len(data.splits) + split.place, split))
    recipes = [part.recipe for part in parts]
    several = len({recipe.C for recipe in recipes}) > 1
    lot.table.keeps = several and not any(objection(each.task, each.kernel, each.solver) for each in recipes)
    for part, (place, split), found in zip(parts, owners, _trained(lot.table, parts, data.jobs), strict=True):
        if found is not None:
            rows = functools.partial(_training_rows, lot, split)
            ready.trainings.append(Prepared(part.recipe, found, rows, split.blocks))
            ready.places.append(place)
    ready.tallies.append(lot.table.tally)


def _trained(table: Table, parts: list[Part], jobs: int) -> list[Found | None]:
    """All trainings of a table, those of few rows in several processes: there Python takes the time, no thread."""
    shares: list[list[int]] = [[] for _ in range(jobs)]
    places: dict[Any, int] = {}  # chains stay together: one fold under one kernel goes to one process
    for index, (recipe, fold) in enumerate(parts):
        shares[places.setdefault((fold, recipe.kernel), len(places)) % jobs].append(index)
    shares = [share for share in shares if share]
    if len(shares) < 2 or table.n >= MANY_ROWS:
        return table.train(parts)
    work = (delayed(_apart)(table, [parts[index] for index in share]) for share in shares)
    found: list[Found | None] = [None] * len(parts)
    for share, (trained, tally) in zip(shares, Parallel(jobs, backend="loky")(work), strict=True):
        table.tally.add(tally)
        for index, each in zip(share, trained, strict=True):
            found[index] = each
    return found


def _apart(table: Table, parts: list[Part]) -> tuple[list[Found | None], Tally]:
    return table.train(parts), table.tally


def _posed(machine: Any, split: _Split) -> tuple[Recipe, Floats, Floats, Floats | None]:
    """(recipe, codes, classes, weights) that `fit` would train with."""
    machine._validate_params()
    told = clone(machine).set_params(kernel="linear")  # it looks at targets and weights alone
    _, y, weights = told._validated(np.zeros((_num_samples(split.y), 1)), split.y, split.weights)
    codes, classes, _ = machine._encode(y, weights)
    return machine._recipe(), codes, classes, weights
