"""nu: what it bounds, where it is infeasible, and the tasks that refuse what is no program."""

import numpy as np
import pytest
from sklearn import svm
from sklearn.datasets import load_diabetes, load_iris
from sklearn.metrics.pairwise import rbf_kernel

from svmcore import RBF, SMO, InputError, InvalidProblem, ResidentGram, Status, tasks
from svmcore.estimator import SVR, NuSVC, NuSVR, OneClassSVM

INFEASIBLE = "nu is infeasible.*at most 0.4"


def test_nu__bounds_the_shares():
    X, y = load_diabetes(return_X_y=True)
    X = X / X.std(axis=0)
    for nu in (0.1, 0.4, 0.7):
        found = NuSVR(nu=nu, C=10.0, tol=1e-6).fit(X, y)
        outside = np.abs(y - found.predict(X)) > found.epsilon_[0] + 1e-3
        assert outside.mean() <= nu <= len(found.support_) / len(y)
        same = SVR(C=10.0, epsilon=found.epsilon_[0], tol=1e-6).fit(X, y)
        np.testing.assert_allclose(found.predict(X), same.predict(X), atol=1e-3)
        inside = OneClassSVM(nu=nu, tol=1e-6).fit(X)
        assert (inside.decision_function(X) < -1e-5).mean() <= nu <= len(inside.support_) / len(y)


def test_nu_svc__is_the_svc_of_another_C(data):
    """f / rho of nu-SVC is the C-SVC with C = 1 / rho."""
    X, two = data[0], (data[2] > 0).astype(int)
    found = NuSVC(nu=0.3, gamma=0.2, tol=1e-8).fit(X, two)
    same = svm.SVC(C=1.0 / found.rho_[0], gamma=0.2, tol=1e-8).fit(X, two)
    np.testing.assert_allclose(found.decision_function(X), same.decision_function(X), atol=1e-4)
    np.testing.assert_allclose(found.dual_coef_, same.dual_coef_, atol=1e-3)


@pytest.fixture
def lopsided(data):
    """24 rows of class 1, 96 of class 0: nu is at most 0.4."""
    return data[0], (data[1] > np.quantile(data[1], 0.8)).astype(int)


def test_infeasible_nu__is_refused_before_any_kernel_work(lopsided):
    def never(X, Z):
        pytest.fail("the kernel was computed")

    class Never(RBF):
        name = "never"
        prepare_gram = never

    try:
        with pytest.raises(InvalidProblem, match=f"0.45 was given; {INFEASIBLE[18:]}.*classes 0 and 1"):
            NuSVC(nu=0.45, kernel=Never(gamma=1.0)).fit(*lopsided)
    finally:
        RBF._registry.pop("never")
    assert NuSVC(nu=0.4).fit(*lopsided).fit_status_ == 0
    with pytest.raises(InvalidProblem, match=r"at most 0.2857.*classes 0 and 1"):
        NuSVC(nu=0.4, class_weight={0: 1.5}).fit(*lopsided)
    with pytest.raises(InvalidProblem, match=r"infeasible.*the same class"):
        NuSVC().fit(*lopsided, sample_weight=lopsided[1])


def test_infeasible_default_nu__is_lowered_with_a_warning(lopsided):
    with pytest.warns(UserWarning, match=f"{INFEASIBLE}.*this is trained: NuSVC"):
        lowered = NuSVC().fit(*lopsided)
    np.testing.assert_allclose(
        lowered.decision_function(lopsided[0]), NuSVC(nu=0.4).fit(*lopsided).decision_function(lopsided[0]), atol=5e-3
    )
    X, y = load_iris(return_X_y=True)
    y = np.repeat(np.arange(5), 30)
    with pytest.warns(UserWarning, match=r"class \d against the rest") as caught:
        NuSVC(multi_class="ovr").fit(X, y)
    assert len(caught) == 5


def test_class_weight__weighs_the_boxes(data):
    """As sample weights of the same size: the programs are the same."""
    X, y = data[0], (data[2] > 0).astype(int)
    by_class = NuSVC(nu=0.3, class_weight={1: 2.0}).fit(X, y)
    by_row = NuSVC(nu=0.3, gamma=by_class._gamma).fit(X, y, sample_weight=np.where(y == 1, 2.0, 1.0))
    np.testing.assert_allclose(by_class.decision_function(X), by_row.decision_function(X), atol=1e-9)
    assert NuSVC(nu=0.3).fit(X, y).decision_function(X) != pytest.approx(by_class.decision_function(X), abs=1e-3)


def test_heavier_class__is_predicted_where_weights_exhaust_nu(data):
    """All of class 1 weighs less than 1e-6 of class 0: it hardly counts."""
    X, y = data[0], (data[2] > 0).astype(int)
    with pytest.warns(UserWarning, match="trained"):
        model = NuSVC(class_weight={0: 1e3, 1: 1e-4}).fit(X, y)
    assert model.fit_status_ == 0
    assert (model.predict(X) == 0).mean() > 0.95


def test_margin_of_zero__leaves_the_function_as_it_is():
    """Equal rows in both classes: no function tells them apart, rho is 0."""
    X = np.array([[0.0], [0.0], [1.0], [1.0]])
    model = NuSVC(nu=1.0, kernel="linear").fit(X, [0, 1, 0, 1])
    np.testing.assert_allclose(model.decision_function(X), 0.0, atol=1e-12)
    assert np.isfinite(model.dual_coef_).all()
    assert model.rho_.tolist() == [1.0]
    assert model.status_ == (Status.CONVERGED,)


def test_one_vs_rest__is_one_nu_svc_per_class(data):
    X, _, y = data
    whole = NuSVC(nu=0.3, multi_class="ovr", tol=1e-8, gamma=0.2).fit(X, y)
    assert whole.decision_function(X).shape == (120, 3)
    for k in range(3):
        alone = svm.NuSVC(nu=0.3, tol=1e-8, gamma=0.2).fit(X, y == k)
        np.testing.assert_allclose(whole.decision_function(X)[:, k], alone.decision_function(X), atol=1e-4)


@pytest.mark.filterwarnings("ignore:The `probability` parameter:FutureWarning")
def test_probability__as_scikit_learns(data):
    X, _, y = data
    model = NuSVC(nu=0.3, probability=True, random_state=0).fit(X, y)
    theirs = svm.NuSVC(nu=0.3, probability=True, random_state=0).fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert np.abs(p - theirs.predict_proba(X)).mean() < 0.05  # folds are drawn otherwise


# ---- tasks


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tasks.SVR(-1.0), "epsilon must be a number >= 0; given -1.0"),
        (lambda: tasks.NuSVR(0.0), "nu must be above 0 and at most 1; given 0.0"),
        (lambda: tasks.NuSVC(1.5), "given 1.5"),
        (lambda: tasks.NuSVC(0.5, 0.5), "widen must be a number >= 1"),
        (lambda: tasks.OneClass(-0.1), "given -0.1"),
    ],
)
def test_parameters_out_of_range__are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("task", [tasks.SVR(), tasks.NuSVR(), tasks.NuSVC(), tasks.OneClass()], ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("target", "C"),
    [
        ([1.0, -1.0, 1.0], 1.0),
        ([1.0, -1.0], -1.0),
        ([1.0, -1.0], [0.0, 0.0]),
        ([1.0, -1.0], np.nan),
        ([0.5, np.nan], 1),
    ],
)
def test_what_is_no_program__is_refused(task, target, C):
    if task.answers == "novelty" and np.all(np.asarray(C) == 1):
        pytest.skip("its targets are not looked at")
    with pytest.raises(InvalidProblem):
        task.program(ResidentGram(np.eye(2)), np.array(target), np.asarray(C))


@pytest.mark.parametrize("name", ["svc", "nu-svc", "svr", "nu-svr", "one-class"])
def test_row_left_out__is_a_row_that_is_not_there(data, name):
    """C_i = 0 is a fold."""
    X, value, _ = data
    y, kept = np.where(value > 0, 1.0, -1.0), np.arange(120) % 4 > 0
    task, K = tasks.Task.create(name), rbf_kernel(X, gamma=0.5)
    fold = SMO(tol=1e-8).solve(task.program(ResidentGram(K), y, kept.astype(float)))
    alone = SMO(tol=1e-8).solve(task.program(ResidentGram(K[np.ix_(kept, kept)]), y[kept], 1.0))
    np.testing.assert_allclose(fold.decision[kept], alone.decision, atol=1e-6)
