"""All programs of one training set on a factor of low rank, proved together from the rows in float64.

The programs are linear ones of the factor's rows. What the solver claims is judged by `svmcore.approximation.Proof`,
three passes for all; a program whose claim does not hold goes on with a smaller tol, and then on the factor in float64.
"""

import dataclasses

import numpy as np

from svmcore.approximation import ExactBound, FeatureMap, Proof
from svmcore.points import Points
from svmcore.qp import SignedQP
from svmcore.solution import Solution, Status
from svmcore.solvers import Outcome
from svmcore.solvers.base import judged
from svmcore.sources import FactorRows, Source
from svmcore.train.chains import Problem, Start
from svmcore.train.trained import Training
from svmcore.train.training import Fitted, Work

__all__ = ["LowRankWork"]

CLOSER = ((0.5, False), (0.1, True))  # shares of tol that refuted claims go on to, and whether in float64


class LowRankWork(Work):
    """The programs of one training set, and the factor that they share."""

    map: FeatureMap
    points: Points
    bounds: tuple[ExactBound, ...] = ()

    def open(self) -> None:
        """Choose the landmarks and make the factor."""
        rows, kernel = self.distinct.rows, self.recipe.kernel
        assert self.recipe.approximation is not None
        self.map = self.recipe.approximation.map(kernel, rows, self.dtype)
        self.points, landmarks = self.map.sides(rows, self.dtype)
        self.plan, self.source = "factor", self._factor(self.points, landmarks)
        self.found: list[tuple[SignedQP, Solution]] = [None] * len(self.goals)  # type: ignore[list-item]

    def _factor(self, points: Points, landmarks: Points) -> FactorRows:
        G = np.empty((len(points), self.map.rank), points.dtype)
        self.map.fill(points, landmarks, G)
        return FactorRows(G)

    def source_of(self, k: int) -> Source:
        """The factor of the rows of problem `k`."""
        assert isinstance(self.source, FactorRows)
        return self.source.take(self.rows(k)) if self.pairs else self.source

    def problem(self, k: int, source: Source | None = None) -> Problem[None]:
        """Problem `k`, of which a claim is kept."""
        return _Claim(self, k)

    def solve(self) -> None:
        """Solve all problems, prove them, and go on where a claim does not hold."""
        super().solve()
        proof, refuted = self._judged()
        for share, in_float64 in CLOSER:
            if refuted and in_float64 and self.source.dtype != np.float64:
                self.source = self._factor(*self.map.sides(self.distinct.rows, np.float64))
            for k in refuted:
                _Claim(self, k, share, self.found[k][1]).answer()
            if refuted:
                proof, refuted = self._judged()
        self._conclude(proof)

    def _judged(self) -> tuple[Proof, list[int]]:
        """The proof of the answers as they are, and the problems whose claims it refutes."""
        proof = Proof(self.map, self.distinct.rows, self.points, self.coef)
        return proof, [k for k in range(len(self.goals)) if not self._proved(k, proof)]

    def _proved(self, k: int, proof: Proof) -> bool:
        """Keep what the proof says of problem `k`; whether its claim holds, or there is none."""
        (qp, claimed), rows = self.found[k], self.rows(k)
        found = proof.evaluation(k, qp, claimed.beta, rows)
        proves, ended = found.certificate.proves(self.solver(k).tol), claimed.status
        if ended in (Status.CONVERGED, Status.STALLED):
            ended = Status.CONVERGED if proves else Status.STALLED
        self.found[k] = qp, judged(qp, Outcome(ended, claimed.n_iter, claimed.beta), found, claimed.history)
        return ended is not Status.STALLED

    def _conclude(self, proof: Proof) -> None:
        """What the answers prove of the exact machine, and the coefficients of the landmarks."""
        quadratic, found = proof.quadratic(), self.found
        self.bounds = tuple(proof.bound(k, *found[k], float(value)) for k, value in enumerate(quadratic))
        for k, (qp, solution) in enumerate(found):
            self.finish(k, qp, solution)
        self.landmark_coef = proof.landmark_coef.T

    def training(self, n_rows: int) -> Training:
        """A model over the landmarks; support and coefficients are those of the rows, as of the exact machine."""
        training = super().training(n_rows)
        scale = np.array([answer.scale for answer in self.answers])[:, None]
        vectors, coef = self.map.landmarks, self.landmark_coef / scale
        model = dataclasses.replace(training.model, support_vectors=vectors, coef=coef)
        return dataclasses.replace(training, model=model, doubts=None, bounds=self.bounds)


class _Claim(Fitted):
    """A problem on the factor, at a `share` of its tol, from the claim `before` if there was one."""

    work: LowRankWork

    def __init__(self, work: LowRankWork, k: int, share: float = 1.0, before: Solution | None = None) -> None:
        super().__init__(work, k)
        self.before, self.solver = before, dataclasses.replace(self.solver, tol=share * self.solver.tol)

    def start(self, qp: SignedQP, before: None) -> Start:
        return super().start(qp, before) if self.before is None else Start(self.before.beta)

    def keep(self, qp: SignedQP, solution: Solution) -> None:
        work, k, steps = self.work, self.k, 0 if self.before is None else self.before.n_iter
        work.found[k] = qp, dataclasses.replace(solution, n_iter=solution.n_iter + steps)
        work.coef[k, work.rows(k)] = qp.at_rows(solution.beta)
