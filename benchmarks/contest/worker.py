"""One solver on one table in a process of its own: its memory is its own, and it can be ended at a limit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Table
from benchmarks.contest import judge, machine, memory
from benchmarks.contest.peers import Spec, peer_of
from benchmarks.contest.remote import Remote, WorkerEnded

__all__ = ["Trial", "Worker", "WorkerEnded", "few_of_each_class", "n_distinct"]

TRIAL_ROWS, TRIAL_REPEATS = 4_000, 3
# In a fit that comes before the first, the same number of each class: code is loaded, little memory is touched. Fewer
# would be solved as a whole, by other code than a large table.
LOADING_ROWS = 2_000
SPARSE_BELOW = 0.6  # density under which compressed rows are worth a trial


class Trial:
    """The worker's side: holds the table, the solver's form of it and the last model."""

    def __init__(self, peer: str, task: str, path: Path) -> None:
        self.peer, self.task = peer_of(peer, task), task
        self.table = Table.load(path)
        self.form = self.peer.forms[0]
        self.data: Any = None
        self.model: Any = None

    def forms(self) -> dict[str, Any]:
        """Forms of the data (dense or compressed rows) that are worth a trial."""
        return {"forms": self.peer.forms[: 1 if self.table.density > SPARSE_BELOW else None]}

    def trial(self, form: str, spec: Spec) -> dict[str, Any]:
        """Fit a few rows in a form, some times: the shortest, and the KKT gap of the answer if that is to be judged."""
        rows = np.random.default_rng(0).permutation(len(self.table.y))[:TRIAL_ROWS]
        X, y = self.table.X[rows], self.table.y[rows]
        data = self.peer.given(X, y, form)
        fits = [_timed(lambda: self.peer.fit(data, spec)) for _ in range(TRIAL_REPEATS)]
        found = {"seconds": min(seconds for seconds, _ in fits)}
        if self.task != "binary":
            return found
        answer, Y = self.peer.answer(fits[-1][1], data), judge.one_against_rest(y, 2)
        return found | {"kkt_gap": judge.judge(X, Y, answer, spec.C, judge.rbf(spec.gamma))[0].kkt_gap}

    def take(self, form: str, spec: Spec) -> dict[str, Any]:
        """Put the table into that form, before the clock starts, and load compiled code by a fit of a few rows."""
        self.form = form
        self.peer.load()
        few = few_of_each_class(self.table.y)
        self.peer.fit(self.peer.given(self.table.X[few], self.table.y[few], form), spec)
        self.data = self.peer.given(self.table.X, self.table.y, form)
        return {"form": form, "version": self.peer.version()}

    def fit(self, spec: Spec) -> dict[str, Any]:
        """One fit: seconds, and resident memory before and at its peak."""
        self.model = None
        before = memory.resident_bytes()
        memory.reset_peak()
        seconds, self.model = _timed(lambda: self.peer.fit(self.data, spec))
        report = {"seconds": seconds, "before_bytes": before, "peak_bytes": memory.peak_bytes()}
        return report | _told(self.model)

    def product_seconds(self, spec: Spec) -> dict[str, Any]:
        """What a product of two rows takes where they are integers times a step: see `machine.floor`."""
        seconds = machine.lattice_product_seconds(self.table.X, spec.gamma)
        return {} if seconds is None else {"product_seconds": seconds}

    def verdict(self, spec: Spec) -> dict[str, Any]:
        """Dual objectives, gap, support and accuracy of the last model."""
        table = self.table
        if self.task == "ovo":
            seconds, codes = _timed(lambda: self.peer.predict(self.model, table.X_test, self.form))
            n_support = len(self.model.support_)
            return {
                "accuracy": float(np.mean(codes == table.y_test)),
                "n_support": n_support,
                "predict_seconds": seconds,
            }
        answer, kernel = self.peer.answer(self.model, self.data), judge.rbf(spec.gamma)
        Y = judge.one_against_rest(table.y, table.n_classes)
        verdicts = judge.judge(table.X, Y, answer, spec.C, kernel)
        decision = judge.decision_values(table.X, table.X_test, answer, kernel)
        return {
            "dual": [v.dual for v in verdicts],
            "kkt_gap": max(v.kkt_gap for v in verdicts),
            "infeasibility": max(v.infeasibility for v in verdicts),
            "n_support": len(answer.support),
            "n_support_distinct": n_distinct(table.X[answer.support], table.y[answer.support]),
            "accuracy": judge.accuracy(decision, table.y_test),
        }


def n_distinct(X: np.ndarray, y: np.ndarray) -> int:
    """Distinct (x, y) rows: what is left when copies are merged."""
    return len({(row.tobytes(), code) for row, code in zip(np.ascontiguousarray(X), y.tolist(), strict=True)})


def _timed(work: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _told(model: Any) -> dict[str, Any]:
    """Read what our estimator says of itself: its plan and its seconds per stage, when it has them."""
    told = {"plan": getattr(model, "plan_", None), "stages": getattr(model, "seconds_", None)}
    plan = told["plan"]
    told["plan"] = plan if plan is None or isinstance(plan, str) else str(getattr(plan, "name", plan))
    told["stages"] = dict(told["stages"]) if isinstance(told["stages"], dict) else None
    return {key: value for key, value in told.items() if value is not None}


class Worker(Remote):
    """The parent's side of a `Trial` in a fresh process."""

    def __init__(self, peer: str, task: str, path: Path) -> None:
        super().__init__(Trial, peer, task, path)


def few_of_each_class(y: np.ndarray) -> np.ndarray:
    """The first rows of every class, ascending."""
    classes = np.unique(y)
    each = LOADING_ROWS // len(classes)
    return np.sort(np.concatenate([np.flatnonzero(y == code)[:each] for code in classes]))
