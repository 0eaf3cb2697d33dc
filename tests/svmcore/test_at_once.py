"""Many small programs in two compiled passes: each as it is alone, proved, and left to the usual way if not."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import model_selection
from sklearn.exceptions import ConvergenceWarning

from svmcore.certificate import certify
from svmcore.estimator import SVC, SVR, GridSearchCV, NuSVC, NuSVR, OneClassSVM
from svmcore.kernels import RBF, Linear, Polynomial, Tanh
from svmcore.solution import Status
from svmcore.solvers import SMO
from svmcore.solvers.dual_ascent import DualAscent
from svmcore.sources import ComputedColumns, PairGrams, ResidentGram, resident_gram
from svmcore.tasks import SVC as SVCTask
from svmcore.tasks import SVR as SVRTask
from svmcore.tasks import NuSVC as NuSVCTask
from svmcore.tasks import NuSVR as NuSVRTask
from svmcore.tasks import OneClass, classification
from svmcore.train import Recipe, at_once, opening, train, training
from svmcore.train.at_once import Boxes, Programs

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


def gram_of(K):
    """K as a source that says how well its values are known."""
    gram, eye = ResidentGram(K), Linear().prepare(np.eye(len(K)), None, np.float64)
    gram.rows = resident_gram(ComputedColumns(Linear(), eye, np.float64)).rows
    return gram


def of_fractions(seed):
    """K (14, 14) of small fractions, and three sets of rows that overlap."""
    rng = np.random.default_rng(seed)
    G = rng.integers(-6, 7, (14, 3)) / 4.0
    return G @ G.T + np.eye(14), [np.sort(rng.choice(14, m, replace=False)) for m in (14, 7, 4)]


def agrees(solution, qp):
    """Whether a solution is within what it says of the truth, in fractions, and of the certificate of other code."""
    true, told, other = truth(qp, solution.beta), solution.certificate, certify(qp, solution.beta)
    assert abs(Fraction(told.kkt_gap) - true.gap) <= Fraction(told.uncertainty)
    assert told.kkt_gap + told.uncertainty <= 1.05e-3
    for name in ("primal", "dual"):
        assert abs(getattr(told, name) - getattr(other, name)) <= told.bar + other.bar
    assert told.infeasibility == other.infeasibility
    size = float(np.abs(solution.beta).sum())
    outputs = qp.source.matrix @ qp.at_rows(solution.beta)
    np.testing.assert_allclose(solution.decision - solution.multipliers.mean(), outputs, atol=1e-12 * size)
    return True


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), C=st.sampled_from([0.01, 1.0, 1e3]))
def test_solution__is_within_what_it_says_of_the_truth(seed, C):
    """Numbers of small fractions, which a judge of fractions knows exactly."""
    K, rows = of_fractions(seed)
    labels = [np.where(np.arange(len(each)) % 2 == 0, 1.0, -1.0) for each in rows]
    programs = Programs(gram_of(K), Boxes.of_labels(rows, np.concatenate(labels), np.full(14, C)))
    programs.solve(SMO(tol=1e-3))
    for k, (idx, y) in enumerate(zip(rows, labels, strict=True)):
        solution = programs.solution(k, 1e-3)
        assert solution is None or agrees(solution, classification(ResidentGram(K[np.ix_(idx, idx)]), y, C))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), C=st.sampled_from([0.25, 1.0, 32.0]), task=st.sampled_from(range(5)))
def test_solution__of_any_machine_is_within_what_it_says_of_the_truth(seed, C, task):
    """Two variables a row, two sums, a sum that is not 0."""
    machine = [SVRTask(epsilon=0.25), SVRTask(epsilon=0.0), NuSVRTask(nu=0.5), NuSVCTask(nu=0.5), OneClass(nu=0.25)][
        task
    ]
    K, rows = of_fractions(seed)
    signs = [np.where(np.arange(len(each)) % 2 == 0, 1.0, -1.0) for each in rows]
    qps = [machine.program(ResidentGram(K[np.ix_(at, at)]), y, C) for at, y in zip(rows, signs, strict=True)]
    programs = Programs(gram_of(K), Boxes.of_programs(rows, qps))
    programs.solve(SMO(tol=1e-3))
    proved = [programs.solution(k, 1e-3, qp) for k, qp in enumerate(qps)]
    assert all(solution is None or agrees(solution, qp) for solution, qp in zip(proved, qps, strict=True))


MACHINES = {
    "svr": (SVRTask(epsilon=0.05), "values"),
    "no tube": (SVRTask(epsilon=0.0), "values"),
    "nu-svr": (NuSVRTask(nu=0.3), "values"),
    "nu-svc": (NuSVCTask(nu=0.6), "labels"),
    "one-class": (OneClass(nu=0.3), "novelty"),
}


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("name", MACHINES)
def test_train__of_any_machine_proves_what_a_solve_of_each_program_proves(name, weighted, counted, monkeypatch):
    task, answers = MACHINES[name]
    X, codes = blobs(150, 3)
    weights = np.random.default_rng(1).integers(1, 4, 150) / 2.0 if weighted else None
    values = np.stack([np.sin(X[:, 0]), X[:, 1]], axis=1)
    fit = {
        "labels": lambda **more: trained(X, codes, "ovo", weights, task=task, C=1.0, **more),
        "novelty": lambda **more: trained(X, 0 * codes, "ovo", weights, task=task, C=1.0, **more),
        "values": lambda **more: train(
            Recipe(kernel=RBF(gamma=0.3), task=task, C=0.2, **more), X, np.arange(150), values, weights
        ),
    }[answers]
    found = fit()
    assert counted == [True] * {"labels": 3, "novelty": 1, "values": 2}[answers]
    exact = fit(solver=SMO(tol=1e-9)).model.decision_function(X)
    monkeypatch.setattr(training, "takes", lambda *_: False)
    alone = fit()
    for one, other in zip(found.solutions, alone.solutions, strict=True):
        assert one.status is other.status is Status.CONVERGED
        assert one.certificate.dual <= other.certificate.primal + 1e-9
        assert other.certificate.dual <= one.certificate.primal + 1e-9
        assert len(one.multipliers) == len(other.multipliers)
        assert one.decision.shape == other.decision.shape
    decision = found.model.decision_function(X)
    assert (np.abs(decision - exact) <= found.doubts.bound(X, decision) + 1e-8).all()
    assert np.isfinite(found.doubts.bound(X, decision)).all()


def test_train__of_a_kernel_that_is_not_definite_bounds_no_optimum(counted):
    X, codes = blobs(60, 3)
    found = trained(X, codes, "ovo", kernel=Tanh(gamma=0.01))
    assert counted == [True] * 3
    assert {s.certificate.relative_gap for s in found.solutions} == {None}
    assert np.isinf(found.doubts.bound(X, found.model.decision_function(X))).all()


@pytest.mark.parametrize("fit", [SVR, NuSVR, NuSVC, OneClassSVM], ids=lambda cls: cls.__name__)
def test_estimators__of_few_rows_are_those_of_the_usual_way(fit, counted):
    X, codes = blobs(120, 2)
    y = {SVR: X[:, 0] ** 2, NuSVR: X[:, 0] ** 2, NuSVC: codes, OneClassSVM: None}[fit]
    tight = fit(tol=1e-8).fit(X, y)
    counted.clear()
    found = fit().fit(X, y)
    assert counted == [True]
    assert found.n_iter_ > 0
    np.testing.assert_allclose(found.intercept_, tight.intercept_, atol=5e-3)
    np.testing.assert_allclose(found.predict(X), tight.predict(X), atol=5e-3)


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
        {"solver": DualAscent(), "task": SVCTask(bias="penalised")},
        {"task": SVCTask(loss="squared_hinge")},
        {"task": SVCTask(bias="none"), "solver": DualAscent()},
        {"solver": SMO(max_iter=1000)},
        {"solver": SMO(time_limit=60.0)},
        {"seed": 0},
        {"C": np.inf},
        {"C": 1e7},
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
    monkeypatch.setattr(opening, "SMALL_BYTES", 1 << 17)
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


GRID = {"C": [0.1, 1.0, 100.0], "gamma": [0.1, 1.0]}


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
@pytest.mark.parametrize("n", [120, 1100])
def test_search__of_few_rows_solves_all_problems_of_a_training_at_once(scheme, n, counted):
    X, codes = blobs(n, 3)
    search = GridSearchCV(SVC(multi_class=scheme), GRID, cv=3, return_train_score=True).fit(X, codes)
    assert len(counted) == 3 * (6 * 3 + 1)
    assert np.mean(counted) > 0.6
    one_by_one = model_selection.GridSearchCV(SVC(multi_class=scheme), GRID, cv=3, return_train_score=True)
    one_by_one.fit(X, codes)
    for name in ("mean_test_score", "mean_train_score"):
        np.testing.assert_allclose(search.cv_results_[name], one_by_one.cv_results_[name], atol=1e-9)


def test_search__goes_on_the_usual_way_where_programs_take_too_many_steps(counted, monkeypatch):
    X, codes = blobs(120, 3)
    found = GridSearchCV(SVC(tol=1e-7), GRID, cv=3).fit(X, codes).cv_results_["mean_test_score"]
    for steps in (0, 1):
        monkeypatch.setattr(at_once, "STEPS", steps)
        counted.clear()
        again = GridSearchCV(SVC(tol=1e-7), GRID, cv=3).fit(X, codes)
        assert np.mean(counted) < 0.5
        np.testing.assert_array_equal(again.cv_results_["mean_test_score"], found)
        assert again.search_plan_.shared == 18
