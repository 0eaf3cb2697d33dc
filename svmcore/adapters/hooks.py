"""scikit-learn's callback protocol, `verbose` and the stop flag around one training; it imports no scikit-learn."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from svmcore.monitor import Progress
from svmcore.solution import Solution, Status
from svmcore.train import Control

__all__ = ["Hooks", "early_end"]


def early_end(statuses: Sequence[Status], causes: Mapping[Status, str], gap: float, tol: float) -> str:
    """What to warn of when some problems did not converge; begins as scikit-learn's warning does."""
    worst = max(statuses, key=lambda status: status.severity)
    late = sum(status is not Status.CONVERGED for status in statuses)
    return (
        f"Solver terminated early ({causes.get(worst, str(worst))}).  Consider pre-processing your data with "
        f"StandardScaler or MinMaxScaler. {late} of {len(statuses)} problems did not converge; "
        f"the worst KKT gap is {gap:.3g}, tol {tol:g}."
    )


class Hooks:
    """scikit-learn's callbacks, `verbose` and the stop flag as the `Control` of one training.

    The fit is a task with one subtask per program, and that has one per report of the solver. A callback that asks to
    stop ends the program, or, at the end of a program, the fit.
    """

    def __init__(
        self, machine: Any, programs: int, X: Any, y: Any, sample_weight: Any, interrupted: Callable[[], bool]
    ) -> None:
        self.machine, self.programs, self.interrupted, self.stopped = machine, programs, interrupted, False
        self.active = bool(getattr(machine, "_skl_callbacks", None))
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self.about = {"estimator": machine, "X": X, "y": y, "metadata": metadata}
        self.tasks: dict[int, Any] = {}
        watched = self.active or machine.verbose
        self.control = Control(
            time_limit=machine.time_limit,
            stop=lambda: self.stopped or interrupted(),
            report=self._report if watched else None,
            done=self._done if watched else None,
        )

    def __enter__(self) -> "Hooks":
        if self.active:
            self.root = self.machine._init_callback_context(max_subtasks=self.programs)
            self.root.call_on_fit_task_begin(**self.about)
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self.active and kind is None:
            self.root.call_on_fit_task_end(**self.about, reconstruction_attributes={})
        del self.control  # it refers to us: in a circle, rows and model would stay until somebody collects garbage

    def _task(self, k: int) -> Any:
        if k not in self.tasks:
            self.tasks[k] = self.root.subcontext(task_name="problem", max_subtasks=None)
            self.tasks[k].call_on_fit_task_begin(**self.about)
        return self.tasks[k]

    def _report(self, k: int, progress: Progress) -> None:
        if self.machine.verbose:
            at = f"{progress.n_iter} steps, KKT gap {progress.kkt_gap:.3g}, {progress.seconds:.1f} s"
            sys.stdout.write(f"[{type(self.machine).__name__}] problem {k}: {at}\n")
        if self.active:
            step = self._task(k).subcontext(task_name="report")
            step.call_on_fit_task_begin(**self.about)
            self.stopped |= bool(step.call_on_fit_task_end(**self.about))

    def _done(self, k: int, solution: Solution) -> None:
        if self.active:
            self.stopped |= bool(self._task(k).call_on_fit_task_end(**self.about))
