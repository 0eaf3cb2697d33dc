"""Many small programs on one K, solved in one compiled pass and proved in another.

Classes are many programs: ten digits are 45 pairs, 26 letters 325. One of a hundred rows is solved in 20 microseconds,
and one after the other each costs 300 in Python. What these passes do not prove goes the usual way from there.
"""

import numpy as np

from svmcore.certificate import Certificate
from svmcore.passes.pairs import solve_each
from svmcore.passes.variables import box_of_labels, prove_each
from svmcore.points import Floats
from svmcore.qp import Bias
from svmcore.runtime.threads import split_range
from svmcore.solution import Solution, Status
from svmcore.solvers import SMO, Solver
from svmcore.solvers.auto import Auto
from svmcore.sources import ResidentGram
from svmcore.tasks.losses import Hinge
from svmcore.tasks.svc import SVC
from svmcore.train.doubt import Doubt, doubt_each
from svmcore.train.recipe import Recipe

__all__ = ["Programs", "most_seconds", "takes"]

PRECISION = 0.1  # of tol is what they are solved to: it costs little, and no free variables are moved together
STEP_SECONDS = 1e-8  # for each variable of a step, on a slow machine
STEPS = 30  # for each variable at most: more is no easy program


def takes(recipe: Recipe, C: Floats) -> bool:
    """Whether programs of a training with these C_i (m,) are of the one kind that the passes know."""
    task, solver = recipe.task, recipe.solver
    plain = type(task) is SVC and type(task.loss) is Hinge and task.bias is Bias.FREE and recipe.served.psd
    whole = type(solver) in (SMO, Auto) and solver.max_iter < 0 and solver.time_limit is None
    finite = bool((C > 0.0).all() and np.isfinite(C).all())
    computed = recipe.approximation is None and recipe.kernel.name != "precomputed"
    return plain and whole and finite and computed and not recipe.calibrates


def most_seconds(m: int) -> float:
    """What a program of m variables may take before it is left alone, as nobody can stop it."""
    return STEPS * STEP_SECONDS * (m + 256.0) * m


class Programs:
    """Programs on the rows of one K.

    Parameters
    ----------
    gram
        K (n, n) in float64, computed from rows.
    rows, labels
        Of each program: its rows of K, and their labels of -1 and +1.
    C
        (n,) of the rows of K.
    """

    def __init__(self, gram: ResidentGram, rows: list[Floats], labels: list[Floats], C: Floats) -> None:
        self.gram = gram
        self.ends = np.cumsum([0, *map(len, rows)])
        self.rows = np.concatenate(rows)
        self.p, self.lo, self.hi, self.outputs = np.empty((4, len(self.rows)))
        box_of_labels(np.concatenate(labels), C[self.rows], self.p, self.lo, self.hi)
        self.beta, self.found = np.zeros(len(self.rows)), np.empty((len(rows), 8))
        self.steps, self.doubts = np.empty(len(rows), np.int64), np.empty((len(rows), 2))
        self.is_centred = gram.rows is not None and gram.rows.kernel.is_centred

    def solve(self, solver: Solver) -> None:
        """Solve and prove all of them, on all threads; each the same whoever solves it."""
        K, box, off = self.gram.matrix, (self.p, self.lo, self.hi), self.gram.rounding
        tol, diagonal, m = PRECISION * solver.tol, self.gram.diagonal()[self.rows], len(self.rows)
        more = np.zeros(m), diagonal, np.zeros(m, np.int8)

        def part(first: int, stop: int) -> None:
            ends, steps, found = self.ends[first : stop + 1], self.steps[first:stop], self.found[first:stop]
            solve_each(K, self.rows, ends, *box, tol, STEPS, self.beta, steps)
            prove_each(K, self.rows, ends, *box, *off, self.beta, self.outputs, found)

        split_range(len(self.steps), part)
        self.score = self.p - self.outputs
        doubt_each(self.score, self.beta, self.lo, self.hi, *more, self.ends, self.found, self.doubts)

    def solution(self, k: int, tol: float) -> Solution | None:
        """That of program `k`, if it is proved."""
        primal, dual, gap, infeasibility, uncertainty, bar, b, norm2 = self.found[k].tolist()
        size = max(abs(primal), abs(dual))
        relative = (primal - dual) / size if size > 0.0 else 0.0
        certificate = Certificate(primal, dual, gap, infeasibility, relative, uncertainty, bar)
        if not certificate.proves(tol):
            return None
        at = slice(self.ends[k], self.ends[k + 1])
        beta, outputs = self.beta[at] + 0.0, self.outputs[at]  # no negative zeros
        return Solution(
            beta=beta,
            bias=b - self._offset(k) if self.is_centred else b,
            status=Status.CONVERGED,
            n_iter=int(self.steps[k]),
            certificate=certificate,
            decision=outputs + b,
            score=self.score[at],
            norm2=norm2,
            multipliers=np.array([b]),
        )

    def variables(self, k: int) -> Floats:
        """Those of program `k` (m,), wherever they came to."""
        return self.beta[self.ends[k] : self.ends[k + 1]]

    def _offset(self, k: int) -> float:
        """What centring has added to the bias."""
        at = slice(self.ends[k], self.ends[k + 1])
        coef = np.zeros(self.gram.n)
        coef[self.rows[at]] = self.beta[at]
        return self.gram.offset(coef)

    def doubt(self, k: int) -> Doubt:
        """What the gap of program `k` leaves open."""
        distance2, bias = self.doubts[k].tolist()
        return Doubt(distance2, bias, 0.0)
