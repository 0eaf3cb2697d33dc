"""What every solver shares: its declaration, the checks, and the proof at the end.

`solve` is a template. A solver's own `_solve` only claims to have converged; the claim is believed when the gradient,
refreshed in float64 by `certificate.evaluate` over all rows, says so, and otherwise the solver goes on from there.
"""

import dataclasses
import numbers
import sys
import warnings
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from svmcore._plugins import Plugin
from svmcore._threads import one_blas_thread
from svmcore.certificate import Certificate, Evaluation, evaluate
from svmcore.columns import KernelColumns, matvec
from svmcore.errors import InputError, Unsupported
from svmcore.losses import Hinge, Loss, SquaredHinge
from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.problem import Bias, Problem
from svmcore.solution import Solution, Status

__all__ = ["ConvergenceWarning", "Outcome", "Solver", "Solves", "box_gap", "gradient_at", "linear_rows"]

SLACK = 1.05  # `certified` allows the refreshed gap this factor over tol
POLISHES = 8  # how often a claim of convergence may be refuted before the solve counts as stalled


class ConvergenceWarning(UserWarning):
    """A solver that promises tol ended without reaching it; the message names the status and the gap."""


@dataclasses.dataclass(frozen=True)
class Solves:
    """What a solver admits, as data.

    Attributes
    ----------
    losses, biases
        The losses (classes) and biases it can take.
    linear_only
        Whether it needs the rows themselves, that is, a linear kernel.
    hard_margin
        Whether C may be infinite.
    certifies
        Whether it promises kkt_gap <= tol.
    bounds
        Whether primal and dual bound the optimum it looks for; False for one that solves another problem.
    warm_starts
        Whether it can begin from a given alpha.
    psd_only
        Whether the kernel must be positive semi-definite.
    float32
        Whether float32 columns of K will do where tol allows it; at a large C their rounding shows in the objective.
    """

    losses: tuple[type[Loss], ...] = (Hinge, SquaredHinge)
    biases: tuple[Bias, ...] = tuple(Bias)
    linear_only: bool = False
    hard_margin: bool = True
    certifies: bool = True
    bounds: bool = True
    warm_starts: bool = True
    psd_only: bool = False
    float32: bool = True


@dataclasses.dataclass(eq=False)
class Outcome:
    """What a solver's own loop returns: the last alpha (n,) and why it ended."""

    status: Status
    n_iter: int
    alpha: Floats


@dataclasses.dataclass(frozen=True)
class Solver(Plugin, ABC):
    """A solver as data; subclasses implement `_solve`.

    Parameters
    ----------
    tol
        Bound of the KKT gap of the answer (Keerthi's 2 tau).
    max_iter
        Steps of the solver's own kind, -1 for no limit.
    time_limit
        Seconds, None for no limit.
    """

    solves: ClassVar[Solves] = Solves()

    tol: float = 1e-3
    max_iter: int = -1
    time_limit: float | None = None

    def __post_init__(self) -> None:
        self._check("tol", self.tol, 0.0)
        if self.time_limit is not None:
            self._check("time_limit", self.time_limit, 0.0)
        if not _is_whole(self.max_iter) or self.max_iter < -1:
            raise InputError(f"solver {self.name!r}: max_iter must be an integer >= 0, or -1; given {self.max_iter!r}")
        self._check_whole("seed", getattr(self, "seed", 0), 0)

    def _check(self, name: str, value: Any, above: float) -> None:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not real or not float(value) > above or float(value) == np.inf:
            raise InputError(f"solver {self.name!r}: {name} must be a number > {above:g}; given {value!r}")

    def _check_whole(self, name: str, value: Any, least: int) -> None:
        if not _is_whole(value) or value < least:
            raise InputError(f"solver {self.name!r}: {name} must be an integer >= {least}; given {value!r}")

    def ends(self, gap: float, n_iter: int, monitor: Monitor) -> Status | None:
        """Why a loop with this KKT gap after `n_iter` steps ends here, or None to go on; cheap, for every step."""
        if gap <= self.tol:
            return Status.CONVERGED
        if 0 <= self.max_iter <= n_iter:
            return Status.MAX_ITER
        return monitor.paced(n_iter, gap)

    def steps_left(self, n_iter: int) -> int:
        """How many more steps `max_iter` allows after `n_iter`."""
        return sys.maxsize if self.max_iter < 0 else max(0, self.max_iter - n_iter)

    @property
    def column_dtype(self) -> type:
        """float32 columns, or float64 where tol asks for more than float32 can tell, or the solver always does."""
        return np.float32 if self.solves.float32 and self.tol >= 1e-4 else np.float64

    def admits(self, loss: Loss, bias: Bias, kernel: Any = None, hard_margin: bool = False) -> None:
        """Raise Unsupported, naming the solvers that would work, unless this one solves such problems."""
        why = self._objection(loss, bias, kernel, hard_margin)
        if why:
            named = [Solver.named(name) for name in Solver.names()]
            others = [cls.name for cls in named if not cls._objection(loss, bias, kernel, hard_margin)]
            remedy = f"solvers for this problem: {', '.join(others)}" if others else "no solver does"
            raise Unsupported(f"solver {self.name!r} solves {why}; {remedy}")

    @classmethod
    def _objection(cls, loss: Loss, bias: Bias, kernel: Any, hard_margin: bool) -> str:
        """What this solver takes and the problem is not, or an empty string."""
        if not isinstance(loss, cls.solves.losses):
            return f"loss={'/'.join(accepted.name for accepted in cls.solves.losses)}, not loss={loss.name}"
        if bias not in cls.solves.biases:
            return f"bias={'/'.join(cls.solves.biases)}, not bias={bias}"
        if hard_margin and not cls.solves.hard_margin:
            return "a finite C, not an infinite one"
        if kernel is not None and cls.solves.linear_only and kernel.name != "linear":
            return f"kernel=linear, not kernel={kernel.name}"
        if kernel is not None and cls.solves.psd_only and not kernel.psd:
            return f"positive semi-definite kernels, not kernel={kernel.name}"
        return ""

    @one_blas_thread()
    def solve(
        self,
        problem: Problem,
        alpha: Floats | None = None,
        monitor: Monitor | None = None,
        gradient: Floats | None = None,
    ) -> Solution:
        """Solve `problem`, from `alpha` (n,) if given, and prove the answer.

        Parameters
        ----------
        gradient
            That of `problem` at `alpha`, (n,), where it is known: it saves a product with K.

        Returns
        -------
        Solution
            With status CONVERGED only if the refreshed KKT gap on all rows is at most tol.

        Raises
        ------
        Unsupported
            If the problem is not one this solver admits.
        """
        self.admits(problem.loss, problem.bias, None, problem.hard_margin)
        monitor = monitor or Monitor()
        if monitor.time_limit is None:
            monitor.time_limit = self.time_limit
        start = self._feasible(problem, alpha)
        if gradient is not None and not np.array_equal(start, np.asarray(alpha)):
            gradient = None  # alpha had to be repaired
        outcome, evaluation = self._until_proved(problem, start, gradient, monitor)
        if monitor.warn:
            self._warn(outcome, evaluation)
        monitor.finish(outcome.n_iter, evaluation.certificate.kkt_gap)
        return Solution(
            alpha=outcome.alpha + 0.0,  # no negative zeros
            bias=evaluation.bias,
            status=outcome.status,
            n_iter=outcome.n_iter,
            certificate=self._certificate(evaluation),
            decision=evaluation.decision,
            gradient=evaluation.gradient,
            history=tuple(monitor.history),
        )

    def _certificate(self, evaluation: Evaluation) -> Certificate:
        """The certificate, without the bound that a solver of another problem cannot claim."""
        if self.solves.bounds:
            return evaluation.certificate
        return dataclasses.replace(evaluation.certificate, relative_gap=None)

    @abstractmethod
    def _solve(self, problem: Problem, alpha: Floats, gradient: Floats | None, monitor: Monitor) -> Outcome:
        """Run the algorithm from a feasible `alpha` (n,), which may be changed in place.

        `gradient` (n,) is the refreshed gradient at `alpha` where it is known, else None.
        """

    def _until_proved(
        self, problem: Problem, alpha: Floats, gradient: Floats | None, monitor: Monitor
    ) -> tuple[Outcome, Evaluation]:
        """Solve; while a claim of convergence is refuted by the refreshed gradient, go on from it."""
        n_iter, best = 0, np.inf
        for _ in range(POLISHES):
            outcome = self._solve(problem, alpha, gradient, monitor)
            n_iter += outcome.n_iter
            outcome.n_iter = n_iter
            evaluation = evaluate(problem, outcome.alpha)
            gap = evaluation.certificate.kkt_gap
            if outcome.status is not Status.CONVERGED or gap <= self.tol:
                return outcome, evaluation
            if gap >= 0.99 * best or not self.solves.certifies:
                break
            alpha, gradient, best = outcome.alpha, evaluation.gradient, gap
        outcome.status = Status.CONVERGED if gap <= SLACK * self.tol else Status.STALLED
        return outcome, evaluation

    def _feasible(self, problem: Problem, alpha: Floats | None) -> Floats:
        """A copy of `alpha` inside the box, and y'alpha = 0 repaired on the heavier side; zeros if None."""
        if alpha is None or not self.solves.warm_starts:
            return np.zeros(problem.n)
        alpha = np.clip(np.asarray(alpha, dtype=np.float64), 0.0, problem.upper)
        if problem.bias is Bias.FREE:
            for sign in (1.0, -1.0):
                side = problem.y == sign
                excess, total = sign * float(problem.y @ alpha), float(alpha[side].sum())
                if excess > 1e-12 * total and total > 0:
                    alpha[side] *= (total - excess) / total
        return alpha

    def _warn(self, outcome: Outcome, evaluation: Evaluation) -> None:
        if outcome.status is not Status.CONVERGED and self.solves.certifies:
            gap = evaluation.certificate.kkt_gap
            warnings.warn(
                f"solver {self.name!r} ended {outcome.status} with a KKT gap of {gap:.3g}, tol {self.tol:g}",
                ConvergenceWarning,
                stacklevel=3,
            )


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def gradient_at(problem: Problem, alpha: Floats) -> Floats:
    """Gradient (n,) of the minimised dual at `alpha` (n,), float64: y (K + shift) coef + ridge alpha - 1."""
    coef = problem.y * alpha
    outputs = matvec(problem.columns, coef) + problem.shift * coef.sum()
    return problem.y * outputs + problem.ridge * alpha - 1.0


def box_gap(gradient: Floats, alpha: Floats, upper: Floats) -> float:
    """Largest projected gradient over the box 0 <= alpha <= upper, all (n,): the KKT gap without the equality."""
    growing = np.where(alpha < upper, -gradient, 0.0)
    return max(0.0, float(growing.max()), float(np.where(alpha > 0.0, gradient, 0.0).max()))


def linear_rows(solver: str, columns: KernelColumns) -> Floats:
    """Rows X (n, p) float64 behind the columns of a linear kernel.

    Raises
    ------
    Unsupported
        If the source does not carry its rows, or its kernel is not theirs.
    """
    while not hasattr(columns, "points") and hasattr(columns, "source"):
        columns = columns.source
    points = getattr(columns, "points", None)
    if points is None:
        raise Unsupported(f"solver {solver!r} needs the rows; give ComputedColumns(Linear(), points)")
    X = np.ascontiguousarray(points.origin_values)
    name = getattr(getattr(columns, "kernel", None), "name", None)
    products, first = X @ X[0], np.asarray(columns.columns(np.array([0])), dtype=np.float64)[0]
    if name not in (None, "linear") or not np.allclose(first, products, rtol=1e-3, atol=1e-3 * np.abs(products).max()):
        raise Unsupported(f"solver {solver!r} needs kernel=linear; the columns are not inner products of their rows")
    return X
