"""The one loop: what is found is not solved, what is handed over is where the next begins, errors end all."""

import threading

import numpy as np
import pytest

from svmcore.runtime.threads import side_by_side
from svmcore.solvers import SMO
from svmcore.sources import ResidentGram
from svmcore.tasks import SVC
from svmcore.train.chains import NOWHERE, Handover, Problem, answers

rng = np.random.default_rng(3)
X = rng.normal(size=(60, 4))
Y = np.where(X[:, 0] + 0.5 * rng.normal(size=60) > 0, 1.0, -1.0)
GRAM = ResidentGram(np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2)))


class AtC(Problem):
    """An SVC at one C, which may have its answer already."""

    def __init__(self, C, told=None):
        self.C, self.told, self.solver, self.steps = C, told, SMO(tol=1e-8), []

    def found(self):
        return self.told

    def program(self):
        return SVC().program(GRAM, Y, np.full(60, self.C))

    def start(self, qp, before):
        return NOWHERE if before is None else Handover.of(*before).start(qp, SVC(), before[0].p)

    def keep(self, qp, solution):
        self.steps.append(solution.n_iter)
        return qp, solution


def test_chain__solves_what_is_not_found_and_no_more_than_is_asked_for():
    told = AtC(1.0).answer()
    chain = [AtC(1.0, told), AtC(2.0), AtC(4.0)]
    asked = answers(chain)
    assert next(asked) is told
    assert next(asked)[1].certificate.kkt_gap <= 1e-8
    assert [len(problem.steps) for problem in chain] == [0, 1, 0]


def test_handover__of_the_same_program_takes_no_step_and_knows_the_scores():
    first, again = answers([AtC(2.0), AtC(2.0)])
    qp, solution = first
    beta, score, error, freed = Handover.of(qp, solution).start(qp, SVC(), qp.p)
    assert freed == 0.0
    assert np.array_equal(beta, solution.beta)
    outputs = GRAM.columns(np.arange(60)) @ beta
    assert score == pytest.approx(qp.p - outputs, abs=1e-12)
    assert np.abs(score - (qp.p - outputs)).max() <= error == solution.certificate.error < 1e-12
    assert again[1].n_iter <= 1
    assert Handover.of(qp, solution).start(qp, SVC(), None).score is None


def test_chain__leaves_a_start_most_of_which_bounds_held_where_nothing_is_as_good(monkeypatch):
    started, solve = [], SMO.solve
    monkeypatch.setattr(
        SMO, "solve", lambda self, qp, beta, *more: (started.append(beta), solve(self, qp, beta, *more))[1]
    )
    for anew in (False, True):
        started.clear()
        monkeypatch.setattr(SMO, "begins_anew", lambda self, qp, anew=anew: anew)
        chain = list(answers(map(AtC, (0.01, 10.0, 100.0))))
        held = [
            (np.abs(solution.beta) >= C).sum() / (solution.beta != 0).sum()
            for C, (_, solution) in zip((0.01, 10.0), chain, strict=False)
        ]
        assert held[0] > 0.5 > held[1]
        assert [beta is None for beta in started] == [True, *(anew and share > 0.5 for share in held)]
    qp, solution = chain[0]
    share = Handover.of(qp, solution).start(chain[1][0], SVC(), qp.p).freed
    assert share == pytest.approx(np.isin(np.abs(solution.beta), 0.01).sum() / (solution.beta != 0).sum())


def test_chain__has_the_objectives_of_problems_alone():
    for C, (_, solution) in zip((0.1, 1.0, 10.0), answers(map(AtC, (0.1, 1.0, 10.0))), strict=True):
        assert solution.certificate.dual == pytest.approx(AtC(C).answer()[1].certificate.dual, rel=1e-9)


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_side_by_side__yields_every_answer(threads):
    assert sorted(side_by_side([lambda k=k: k for k in range(7)], threads)) == list(range(7))


def test_side_by_side__an_error_tells_those_under_way_and_begins_no_other():
    begun, stop = [], threading.Event()

    def endless(k):
        begun.append(k)
        assert stop.wait(30)

    def broken():
        raise ZeroDivisionError

    work = [broken, *(lambda k=k: endless(k) for k in range(20))]
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(work, 2, stop.set))
    assert len(begun) < 20
