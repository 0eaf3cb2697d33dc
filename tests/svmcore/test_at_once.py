"""Many small programs in two compiled passes: each as it is alone, proved, and left to the usual way if not."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from svmcore.certificate import certify
from svmcore.estimator import SVC
from svmcore.kernels import RBF, Linear, Polynomial, Tanh
from svmcore.solution import Status
from svmcore.solvers import SMO
from svmcore.solvers.dual_ascent import DualAscent
from svmcore.sources import ComputedColumns, PairGrams, ResidentGram, resident_gram
from svmcore.tasks import SVC as SVCTask
from svmcore.tasks import classification
from svmcore.train import Recipe, at_once, train, training
from svmcore.train.at_once import Programs

from ..small_programs import truth

KERNELS = [RBF(gamma=0.3), Linear(), Polynomial(degree=3, gamma=0.1, coef0=1.0)]


def blobs(n=120, classes=4, seed=0, spread=1.5):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, classes, n)
    codes[:classes] = np.arange(classes)
    return rng.normal(size=(n, 3)) + spread * rng.normal(size=(classes, 3))[codes], codes


def trained(X, codes, scheme, weights=None, **given):
    recipe = Recipe(**{"kernel": RBF(gamma=0.3), "scheme": scheme, "C": 2.0, **given})
    return train(recipe, X, codes, np.arange(codes.max() + 1), weights)


@pytest.fixture
def counted(monkeypatch):
    """How many programs were solved at once, and how many of them were proved."""
    found = []
    kept = training.Work._kept
    monkeypatch.setattr(training.Work, "_kept", lambda *args: found.append(kept(*args)) or found[-1])
    return found


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_train__proves_what_a_solve_of_each_program_proves(kernel, scheme, counted, monkeypatch):
    X, codes = blobs()
    found = trained(X, codes, scheme, kernel=kernel)
    assert counted == [True] * (6 if scheme == "ovo" else 4)
    monkeypatch.setattr(training, "takes", lambda *_: False)
    alone = trained(X, codes, scheme, kernel=kernel)
    for one, other in zip(found.solutions, alone.solutions, strict=True):
        assert one.status is other.status is Status.CONVERGED
        assert one.certificate.dual <= other.certificate.primal + 1e-9
        assert other.certificate.dual <= one.certificate.primal + 1e-9
    exact = trained(X, codes, scheme, kernel=kernel, solver=SMO(tol=1e-9)).model.decision_function(X)
    decision = found.model.decision_function(X)
    assert (np.abs(decision - exact) <= found.doubts.bound(X, decision) + 1e-8).all()
    assert np.isfinite(found.doubts.bound(X, decision)).all()


def programs_of(K, seed, C=2.0):
    """Three programs on rows of K that overlap, solved."""
    rng = np.random.default_rng(seed)
    n = len(K)
    rows = [np.sort(rng.choice(n, m, replace=False)) for m in (n, n // 2, 3)]
    labels = [np.where(np.arange(len(each)) % 2 == 0, 1.0, -1.0) for each in rows]
    gram = ResidentGram(K)
    gram.rows = resident_gram(ComputedColumns(Linear(), Linear().prepare(np.eye(n), None, np.float64), np.float64)).rows
    programs = Programs(gram, rows, labels, np.full(n, C))
    programs.solve(SMO(tol=1e-3))
    return programs, rows, labels


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), C=st.sampled_from([0.01, 1.0, 1e3]))
def test_solution__is_within_what_it_says_of_the_truth(seed, C):
    """Numbers of small fractions, which a judge of fractions knows exactly."""
    G = np.random.default_rng(seed).integers(-6, 7, (14, 3)) / 4.0
    K = G @ G.T + np.eye(14)
    programs, rows, labels = programs_of(K, seed, C)
    for k, (idx, y) in enumerate(zip(rows, labels, strict=True)):
        solution = programs.solution(k, 1e-3)
        if solution is None:
            continue
        qp = classification(ResidentGram(K[np.ix_(idx, idx)]), y, C)
        true, told = truth(qp, solution.beta), solution.certificate
        assert abs(Fraction(told.kkt_gap) - true.gap) <= Fraction(told.uncertainty)
        assert told.kkt_gap + told.uncertainty <= 1.05e-3
        other = certify(qp, solution.beta)
        for name in ("primal", "dual"):
            assert abs(getattr(told, name) - getattr(other, name)) <= told.bar + other.bar
        assert told.infeasibility == other.infeasibility
        np.testing.assert_allclose(
            solution.decision - solution.bias, K[np.ix_(idx, idx)] @ solution.beta, atol=1e-12 * C
        )


def test_programs__that_take_too_many_steps_go_on_the_usual_way(counted, monkeypatch):
    X, codes = blobs(spread=0.0)
    exact = trained(X, codes, "ovo", solver=SMO(tol=1e-9)).model.decision_function(X)
    for steps in (0, 1):
        monkeypatch.setattr(at_once, "STEPS", steps)
        counted.clear()
        found = trained(X, codes, "ovo")
        assert counted == [False] * 6
        assert {s.status for s in found.solutions} == {Status.CONVERGED}
        decision = found.model.decision_function(X)
        assert (np.abs(decision - exact) <= found.doubts.bound(X, decision) + 1e-8).all()


def test_train__is_the_same_on_any_number_of_threads(monkeypatch):
    X, codes = blobs(300, 6)
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("SVMCORE_THREADS", threads)
        found.append(trained(X, codes, "ovo").model.decision_function(X))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize(
    "given",
    [
        {"kernel": Tanh(gamma=0.01)},
        {"solver": DualAscent(), "task": SVCTask(bias="penalised")},
        {"task": SVCTask(loss="squared_hinge")},
        {"solver": SMO(max_iter=1000)},
        {"solver": SMO(time_limit=60.0)},
        {"seed": 0},
        {"C": np.inf},
    ],
    ids=repr,
)
def test_train__of_any_other_kind_goes_the_usual_way(given, counted):
    X, codes = blobs(60, 3, spread=30.0)
    trained(X, codes, "ovo", **given)
    assert not counted


def test_svc__watched_or_of_large_classes_goes_the_usual_way(counted, capsys):
    X, codes = blobs(2400, 3)
    SVC().fit(X, codes)
    SVC(verbose=True).fit(X[:60], codes[:60])
    SVC(multi_class="ovr").fit(X[:1600], codes[:1600])
    assert not counted


def test_svc__pairs_whose_whole_K_is_too_large_have_each_one_of_its_own(counted, monkeypatch):
    X, codes = blobs(200, 5)
    whole = SVC().fit(X, codes)
    monkeypatch.setattr(training, "SMALL_BYTES", 1 << 17)
    asked = []
    pair = PairGrams.pair
    monkeypatch.setattr(PairGrams, "pair", lambda *args: asked.append(args) or pair(*args))
    apart = SVC(cache_size=0.1).fit(X, codes)
    assert counted == [True] * 20
    assert len(asked) == 10
    np.testing.assert_allclose(apart.decision_function(X), whole.decision_function(X), atol=1e-9)


def test_svc__of_rows_with_copies_is_the_one_of_their_weights(counted):
    """Copies of a row whose bounds round in other ways than its own."""
    X, codes = blobs(40, 3)
    weights = np.random.default_rng(1).integers(1, 4, 40)
    twice = np.repeat(np.arange(40), weights)
    one = SVC(C=0.1).fit(X, codes, weights)
    other = SVC(C=0.1).fit(X[twice], codes[twice])
    assert counted == [True] * 6
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))


def test_svc__hopeless_programs_are_told_as_before(counted):
    X, codes = blobs(60, 3, spread=0.0)
    with pytest.warns(ConvergenceWarning, match="STALLED|stalled|terminated early"):
        SVC(kernel="linear", tol=1e-17, C=1e6).fit(1e8 * X, codes)
    assert not any(counted)
