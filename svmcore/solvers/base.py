"""What every solver shares: its declaration, the checks, and the proof at the end.

`solve` is a template. A solver's own `_solve` only claims to have converged; the claim is believed when the
certificate says so, from exact values of K. Otherwise the solver goes on from the exact scores, then with float64
columns, until the proof holds or nothing helps.
"""

import dataclasses
import numbers
import sys
import warnings
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from svmcore.certificate import Evaluation, evaluate
from svmcore.errors import InputError, Unsupported
from svmcore.kernels import Linear
from svmcore.monitor import Monitor, Progress
from svmcore.points import Floats
from svmcore.qp import Bias, SignedQP
from svmcore.runtime.plugins import Plugin
from svmcore.runtime.threads import one_blas_thread
from svmcore.solution import Solution, Status
from svmcore.solvers.begun import begun
from svmcore.sources import RowMap, RunningProduct, Served
from svmcore.tasks.losses import Hinge, Loss, SquaredHinge

__all__ = ["ConvergenceWarning", "Outcome", "Solver", "Solves", "box_gap", "judged", "linear_rows"]

RESOLUTION = 0.005  # of tol: scores that decide are known to this
POLISHES = 8  # how often a claim may be refuted before the solve counts as stalled
HULL_DISTANCE = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-9}  # relative, see `Solver.separates`


class ConvergenceWarning(UserWarning):
    """A solver that promises tol ended without reaching it; the message names the status and the gap."""


@dataclasses.dataclass(frozen=True)
class Solves:
    """What a solver admits, as data.

    Attributes
    ----------
    losses, biases
        The losses (classes) and biases it can take.
    factor_biases
        Biases that it takes beside those where K has a factor and C is finite.
    linear_only
        Whether it needs the rows themselves, that is, a linear kernel.
    hard_margin
        Whether C may be infinite.
    certifies
        Whether it promises kkt_gap <= tol.
    bounds
        Whether primal and dual bound the optimum it looks for; False for one that solves another problem.
    warm_starts
        Whether it can begin from a given beta.
    psd_only
        Whether the kernel must be positive semi-definite.
    shared_rows
        Whether several variables may live on one row of K.
    two_groups
        Whether it takes programs with two equalities.
    float32
        Whether float32 columns of K will do where tol allows it; at a large C their rounding shows in the objective.
    shards
        Whether it asks nothing but a `WorkingSetState`, so that rows may be in several processes.
    """

    losses: tuple[type[Loss], ...] = (Hinge, SquaredHinge)
    biases: tuple[Bias, ...] = tuple(Bias)
    factor_biases: tuple[Bias, ...] = ()
    linear_only: bool = False
    hard_margin: bool = True
    certifies: bool = True
    bounds: bool = True
    warm_starts: bool = True
    psd_only: bool = False
    shared_rows: bool = False
    two_groups: bool = False
    float32: bool = True
    shards: bool = False


@dataclasses.dataclass(eq=False)
class Outcome:
    """What a solver's own loop returns: the last beta (m,), why it ended, and the steps of the whole solve so far.

    `score` (m,) is what the solver has kept at `beta`, if it did: good enough for an estimate, never for a proof.
    `served` is K beta, where the whole of it was served at `beta`; `product` is K times what has changed of beta since
    the solver began.
    """

    status: Status
    n_iter: int
    beta: Floats
    score: Floats | None = None
    served: Served | None = None
    product: RunningProduct | None = None

    def at_hand(self, start: Served | None) -> Served | None:
        """K beta as far as it was served, by a solve that began at `start`."""
        if self.served is not None or self.product is None or start is None:
            return self.served
        return self.product.served(start)


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
        factor = kernel is not None and kernel.is_linear and not hard_margin
        more = cls.solves.factor_biases if factor else ()
        if bias not in (*cls.solves.biases, *more):
            return f"bias={'/'.join(cls.solves.biases)}, not bias={bias}"
        if hard_margin and not cls.solves.hard_margin:
            return "a finite C, not an infinite one"
        if kernel is not None and cls.solves.linear_only and not kernel.is_linear:
            return f"kernel=linear, not kernel={kernel.name}"
        if kernel is not None and cls.solves.psd_only and not kernel.psd:
            return f"positive semi-definite kernels, not kernel={kernel.name}"
        return ""

    def check(self, qp: SignedQP, kernel: Any = None) -> None:
        """Raise Unsupported unless this solver takes the program, whatever made it; `kernel` if it is known."""
        loss = SquaredHinge() if qp.is_soft else Hinge()
        bias = Bias.FREE if qp.groups.sums else Bias.PENALISED if qp.shift else Bias.NONE
        known = Linear() if qp.source.rank is not None else kernel
        self.admits(loss, bias, known, qp.is_hard)
        if self.solves.psd_only and not qp.source.psd:
            raise Unsupported(
                f"solver {self.name!r} needs a positive semi-definite kernel; this one is not known to be"
            )
        if qp.rows is not None and not self.solves.shared_rows:
            raise Unsupported(f"solver {self.name!r} needs one variable per row; smo takes several")
        if len(qp.groups.sums) > 1 and not self.solves.two_groups:
            raise Unsupported(f"solver {self.name!r} takes programs with one equality; smo takes two")

    def begins_anew(self, qp: SignedQP) -> bool:
        """Whether a solve of `qp` from nothing is as fast as from a start that is far from its answer."""
        return False

    @one_blas_thread()
    def solve(
        self,
        qp: SignedQP,
        beta: Floats | None = None,
        monitor: Monitor | None = None,
        score: Floats | None = None,
        error: float = np.inf,
    ) -> Solution:
        """Solve `qp`, from `beta` (m,) if given, and prove the answer.

        Parameters
        ----------
        score, error
            That of `qp` at `beta`, (m,), where it is known, and a bound of all its errors: each saves a product with K.

        Returns
        -------
        Solution
            With status CONVERGED only if the KKT gap on all rows, proved in float64, is at most 1.05 tol.

        Raises
        ------
        Unsupported
            If the program is not one this solver takes.
        """
        self.check(qp)
        monitor = monitor or Monitor()
        if monitor.time_limit is None:
            monitor.time_limit = self.time_limit
        start = qp.feasible(beta if self.solves.warm_starts else None)
        if score is not None and not np.array_equal(start, np.asarray(beta)):
            score = None  # beta had to be repaired
        outcome, found = self._until_proved(qp, start, score, error, monitor)
        if monitor.warn:
            self._warn(outcome, found)
        monitor.finish(outcome.n_iter, found.certificate.kkt_gap)
        return self._solution(qp, outcome, found, monitor)

    @one_blas_thread()
    def estimate(self, qp: SignedQP) -> Solution:
        """A solution of `qp` without a proof, for answers that need none: its numbers are of the values as served."""
        self.check(qp)
        monitor = Monitor(warn=False)
        monitor.time_limit = self.time_limit
        outcome = self._solve(qp, qp.feasible(None), None, monitor, 0)
        beta, outcome.beta = outcome.beta, qp.feasible(outcome.beta)
        coef = qp.at_rows(outcome.beta)
        if outcome.score is not None and qp.rows is None and np.array_equal(beta, outcome.beta):
            outputs = qp.p - outcome.score - qp.ridge * beta - qp.shift * coef.sum()
        else:
            outputs, _ = qp.source.direct_outputs(coef) or qp.source.outputs(coef)
        return judged(qp, outcome, evaluate(qp, outcome.beta, known=(outputs, np.zeros_like(outputs))), ())

    def _solution(self, qp: SignedQP, outcome: Outcome, found: Evaluation, monitor: Monitor) -> Solution:
        if not self.solves.bounds:  # it solves another problem: what it found bounds nothing
            found = dataclasses.replace(found, certificate=dataclasses.replace(found.certificate, relative_gap=None))
        return judged(qp, outcome, found, tuple(monitor.history))

    def shares(self, qp: SignedQP) -> int:
        """How many programs like `qp` may be solved at a time, each with a share of the memory for columns; 0: none."""
        return 0

    def takes_factor(self, qp: SignedQP, rank: int) -> bool:
        """Whether it solves programs like `qp` by a factor of `rank` columns, and asks for no column of K."""
        return False

    @abstractmethod
    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        """Run the algorithm from a feasible `beta` (m,), which may be changed in place.

        `score` (m,) is exact at `beta` where it is known, else None. `n_iter` steps were taken before: the outcome
        counts on from there, and `max_iter` bounds them all.
        """

    def _until_proved(
        self, qp: SignedQP, beta: Floats, score: Floats | None, error: float, monitor: Monitor
    ) -> tuple[Outcome, Evaluation]:
        """Solve; while a claim is refuted go on from the exact scores, and with finer values where that is no help."""
        n_iter, best, same = 0, np.inf, True
        for _ in range(POLISHES):
            start = begun(qp, beta, score, error)
            outcome = self._solve(qp, beta, score, monitor, n_iter)
            if self.solves.bounds:
                outcome.beta = qp.mended(qp.feasible(outcome.beta))  # a step may have been broken off
            at_hand = outcome.at_hand(start)
            found = evaluate(qp, outcome.beta, RESOLUTION * self.tol, at_hand=at_hand)
            gap = found.certificate.kkt_gap + found.certificate.uncertainty
            outcome.status = self._earned(qp, outcome, found, gap)
            if outcome.status not in (Status.CONVERGED, Status.STALLED) or found.certificate.proves(self.tol):
                break
            if gap > 0.5 * best or outcome.status is Status.STALLED:
                finer = qp.source.finer() if self.solves.certifies else None
                if finer is None and (gap >= 0.99 * best or outcome.status is Status.STALLED):
                    break
                if finer is not None:  # where the values that are served are meant, finer ones are of another K
                    same = same and qp.source.exact is not None
                    qp = dataclasses.replace(qp, source=finer)
                best = np.inf
            beta, n_iter, best = outcome.beta.copy(), outcome.n_iter, min(best, gap)
            score, error = found.score, found.certificate.error if same else np.inf
        if not same:
            found = dataclasses.replace(found, certificate=dataclasses.replace(found.certificate, error=np.inf))
        if outcome.status in (Status.CONVERGED, Status.STALLED):
            outcome.status = Status.CONVERGED if found.certificate.proves(self.tol) else Status.STALLED
        return outcome, found

    def _earned(self, qp: SignedQP, outcome: Outcome, found: Evaluation, gap: float) -> Status:
        """The status that the proof allows: none is worse than what was reached, INFEASIBLE only where it shows."""
        if outcome.status is Status.INFEASIBLE and self.separates(qp, outcome.beta, found.norm2, proved=True):
            return Status.STALLED
        return outcome.status

    @staticmethod
    def separates(qp: SignedQP, beta: Floats, norm2: float, proved: bool = False) -> bool:
        """Whether variables without bound may still have a minimum, from beta and its ||w||^2.

        Without one, beta grows along a direction with w = 0 and p'beta > 0. For a hard margin 4 ||w||^2 / (p'beta)^2
        is the squared distance of two points of the classes' hulls. Relative to max K_vv, as far as the values tell
        that were served, or, where `norm2` is `proved`, float64.
        """
        hard = qp.unbounded
        total = float((qp.p * beta)[hard].sum())
        if not hard.any() or total <= 0.0 or total < 0.5 * float(qp.p @ beta):
            return True
        exact = proved and qp.source.exact is not None
        nearest = HULL_DISTANCE[np.dtype(np.float64) if exact else qp.source.dtype]
        unit = 0.5 * float(np.ptp(qp.p)) if qp.groups.sums else float(np.abs(qp.p).max())  # 1 for labels
        return 4.0 * norm2 * unit**2 / total**2 >= nearest * float(qp.diagonal[hard].max())

    def _warn(self, outcome: Outcome, found: Evaluation) -> None:
        if outcome.status is not Status.CONVERGED and self.solves.certifies:
            gap, remedy = found.certificate.kkt_gap, ""
            if outcome.status is Status.STALLED:
                wide = found.certificate.is_wide(self.tol)
                remedy = "; float64 cannot tell more: scale the data" if wide else ""
            warnings.warn(
                f"solver {self.name!r} ended {outcome.status} with a KKT gap of {gap:.3g}, tol {self.tol:g}{remedy}",
                ConvergenceWarning,
                stacklevel=3,
            )


def judged(qp: SignedQP, outcome: Outcome, found: Evaluation, history: tuple[Progress, ...]) -> Solution:
    """The solution that an outcome is, by its evaluation."""
    coef, b = qp.at_rows(outcome.beta), sum(found.multipliers.tolist()) / max(1, len(found.multipliers))
    return Solution(
        beta=outcome.beta + 0.0,  # no negative zeros
        bias=b + (qp.shift and qp.shift * float(coef.sum())) - qp.source.offset(coef),
        status=outcome.status,
        n_iter=outcome.n_iter,
        certificate=found.certificate,
        decision=found.outputs + b,
        score=found.score,
        norm2=found.norm2,
        history=history,
        multipliers=found.multipliers,
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def box_gap(score: Floats, beta: Floats, lo: Floats, hi: Floats) -> float:
    """Largest projected gradient over the box, all (m,): the KKT gap of variables in no group."""
    growing, shrinking = np.where(beta < hi, score, 0.0), np.where(beta > lo, -score, 0.0)
    return max(0.0, float(growing.max(initial=0.0)), float(shrinking.max(initial=0.0)))


def linear_rows(solver: str, qp: SignedQP) -> RowMap:
    """G (m, r) of the variables, with GG' = K + shift, behind the columns of a linear kernel.

    Raises
    ------
    Unsupported
        If the source does not know them.
    """
    factor = qp.source.factor()
    if factor is None:
        raise Unsupported(f"solver {solver!r} needs kernel=linear and the rows: give ComputedColumns(Linear(), points)")
    rows, centre, at = factor
    if qp.rows is not None:
        at = qp.rows if at is None else at[qp.rows]
    return RowMap(rows, centre, at, float(np.sqrt(qp.shift)))
