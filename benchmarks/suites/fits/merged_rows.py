"""A table of 619,326 rows, 35,421 of them distinct: exact by merging; the peers get ten minutes beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.cases import SEED, Case, Table
from benchmarks.contest.machine import Measure
from benchmarks.contest.measure import Side, Terms, contest
from benchmarks.contest.peers import OURS
from benchmarks.results import Record

ROWS, DISTINCT, FEATURES = 619_326, 35_421, 10
LEVELS = np.array([2, 3, 3, 4, 5, 6, 8, 10, 12, 16])
NOISE = 0.05
LIMIT_SECONDS = 600.0
SOLVERS = (OURS, "scikit-learn-intelex", "scikit-learn")
TEST_SHARE = 0.02


def make(rows: int = ROWS, distinct: int = DISTINCT) -> Table:
    """Make ten graded features in [0, 1], a smooth rule with 5 % of labels turned, and Zipf-like copies."""
    rng = np.random.default_rng(SEED)
    cells = rng.choice(int(np.prod(LEVELS)), size=2 * distinct, replace=False)
    points = np.array(np.unravel_index(cells, LEVELS)).T / (LEVELS - 1.0)
    score = np.sin(3 * points[:, 9]) + points[:, 8] * points[:, 7] - points[:, 6] ** 2 + 0.3 * points[:, :6].sum(axis=1)
    labels = (score > np.median(score)) ^ (rng.random(len(points)) < NOISE)
    weights = 1.0 / (10.0 + rng.permutation(distinct))
    copies = rng.choice(distinct, size=rows - distinct, p=weights / weights.sum())
    order = rng.permutation(np.concatenate([np.arange(distinct), copies]))
    X, y = points.astype(np.float32), labels.astype(np.int64)
    test = slice(distinct, distinct + max(2, int(TEST_SHARE * rows)))
    return Table(X[order], y[order], X[test], y[test])


def _read(_: Path) -> Table:
    return make()


CASE = Case("merged-rows", f"{ROWS:,} rows, {DISTINCT:,} distinct", 1, 1, _read)


def run(only: Sequence[str], rows: int | None, terms: Terms, rates: Measure) -> list[Record]:
    """Run one solver after another, each alone on the machine; a peer gets one fit, ours the usual repeats."""
    table = make() if rows is None else make(rows, max(2, rows * DISTINCT // ROWS))
    records = []
    for name in SOLVERS:
        if not only or name in only:
            side = Side(name, limit_seconds=LIMIT_SECONDS)
            records += contest(CASE, table, [side], terms if name == OURS else replace(terms, repeats=1), rates)
    return records
