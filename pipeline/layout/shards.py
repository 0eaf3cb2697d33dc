"""What rows in shards will take on any number of workers: rounds, messages, and the work that is divided or is not.

The bytes are those that were counted at the network interface of a driver with two workers, and 4 Gbit/s are theirs to
go through. Emulated clusters of 4, 16 and 64 workers are held against it by `tests/full/test_emulated_clusters.py`.
"""

import dataclasses
from collections.abc import Sequence

from pipeline.layout.probe import GATHER, PASSES, PROBLEM, PROBLEM_ROW, Work
from pipeline.layout.rates import Rates

__all__ = ["Layout", "solve_seconds", "worker_bytes"]

ROUND_TRIP = 0.012  # seconds of a message to a worker and back: Dask's client sends every 10 ms
MESSAGE = 5e-4  # of these the driver's own, whose messages to many workers go out one after another
MERGED = 2.0  # calls of several problems that go in one message
MESSAGES = 2.0  # of a round: rows of newcomers, and changes
BANDWIDTH = 4e8  # bytes a second through the driver
NEWCOMERS = 256.0  # columns that a round asks for
FIRST_ROUNDS = 6.0  # of a problem, however few support vectors it has
ROW_BYTES = 13.0  # of a problem: its bounds go out, and the outputs of its proof come back
TOLD_BYTES = 60_000.0  # of a round and a worker, beside rows: all changes go out, candidates come back
SET_BYTES = 100_000.0  # of a round: each worker tells of its own part of the working set
AT_ONCE = 4  # problems under way at a time
WASTE = 1.5  # columns computed for each support vector


@dataclasses.dataclass(frozen=True)
class Layout:
    """n rows of p features on some workers, and how many threads the driver has."""

    n: int
    p: int
    workers: int
    cores: int


def solve_seconds(
    at: Layout, works: Sequence[Work], chains: int, union: float, entry: float, exact: float, rate: Rates
) -> float:
    """Seconds of `chains` chains of which `works` are a sample, with `union` support vectors in all of them together.

    `entry` and `exact` are the seconds of a value of K as it is served, and in float64.
    """
    each = chains / max(1, len(works))
    problems = each * sum(len(work.support) for work in works)
    support = each * sum(sum(work.support) for work in works)
    proofs = each * sum(size**2 for work in works for size in work.support)  # pairs of support vectors, in float64
    divided = WASTE * union * at.n * entry + support * at.n * PASSES * rate.entry + proofs * exact
    divided += problems * PROBLEM_ROW * at.n
    rounds = problems * FIRST_ROUNDS + WASTE * support / NEWCOMERS
    moved = WASTE * union * at.p * 8.0 * at.workers + rounds * (TOLD_BYTES * at.workers + SET_BYTES)
    moved += problems * ROW_BYTES * at.n
    alone = each * sum(_set_seconds(work, rate) for work in works) + problems * PROBLEM
    together = max(1, min(AT_ONCE, chains))
    merged = min(MERGED, together)
    waits = rounds * MESSAGES * max(ROUND_TRIP / together, MESSAGE * at.workers / merged)
    return divided / at.workers + alone / min(together, max(1, at.cores)) + waits + moved / BANDWIDTH


def _set_seconds(work: Work, rate: Rates) -> float:
    """On the squares of working sets, in the driver."""
    squares = sum(min(size, 4096.0) ** 2 for size in work.support) * GATHER * rate.entry
    mean = sum(work.support) / len(work.support)
    return squares + work.steps * (rate.step + rate.step_entry * min(mean, 4096.0))


def worker_bytes(at: Layout, row_bytes: int, columns_bytes: int) -> int:
    """Of one worker: its rows as they came and as they are served, and their columns.

    >>> worker_bytes(Layout(1000, 10, 4, 2), 80_000, 1_000_000)
    1020000
    """
    return columns_bytes + row_bytes // at.workers
