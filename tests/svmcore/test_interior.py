"""The interior point against closed forms, scikit-learn and a judge of its own: no code of the solver decides here."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import datasets, svm
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

from svmcore.solvers.interior.iterate import Dense, LowRank, minimise

FIVE = np.array([[0.0, 0], [2, 2], [-1, -8], [-1, -1], [3, 3]])
FIVE_LABELS = np.array([-1.0, 1, -1, -1, 1])


# -- programs: a dictionary of p, lo, hi, ridge, codes, sums -----------------------------------------------------------
def program(p, lo, hi, ridge=0.0, codes=0, sums=(0.0,)):
    n = len(p)
    spread = {k: np.broadcast_to(np.asarray(v, float), n) for k, v in {"lo": lo, "hi": hi, "ridge": ridge}.items()}
    return {"p": np.asarray(p, float), **spread, "codes": np.broadcast_to(codes, n), "sums": np.asarray(sums, float)}


def box(y, C):
    return np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0)


def hinge(y, C):
    return program(y, *box(y, C))


def squared_hinge(y, C):
    return program(y, *box(y, np.inf), ridge=1 / (2 * C))


def without_bias(y, C):
    return program(y, *box(y, C), codes=-1, sums=())


def nu_svc(y, nu):
    half = nu * len(y) / 2
    return program(np.zeros(len(y)), *box(y, 1.0), codes=np.where(y > 0, 0, 1), sums=(half, -half))


def svr(target, C, epsilon):
    """Two variables a row: the first half pushes up, the second down."""
    n = len(target)
    lo, hi = np.repeat([0.0, -C], n), np.repeat([C, 0.0], n)
    return program(np.concatenate([target - epsilon, target + epsilon]), lo, hi)


def nu_svr(target, C, nu):
    n = len(target)
    lo, hi, total = np.repeat([0.0, -C], n), np.repeat([C, 0.0], n), C * nu * n / 2
    return program(np.tile(target, 2), lo, hi, codes=np.repeat([0, 1], n), sums=(total, -total))


def one_class(n, nu):
    return program(np.zeros(n), 0.0, 1.0, sums=(nu * n,))


# -- the judge ---------------------------------------------------------------------------------------------------------
def scores(system, q, beta):
    """Sums in extended precision, rounded once: the solver's own are in float64."""
    beta = beta.astype(np.longdouble)
    if isinstance(system, Dense):
        image = system.K.astype(np.longdouble) @ beta
    else:
        wide = system.G.dense().astype(np.longdouble)
        image = wide @ (beta @ wide)
    return np.asarray(q["p"] - image - q["ridge"] * beta, dtype=float)


def gap_of(system, q, beta):
    s, gap = scores(system, q, beta), 0.0
    for code in np.unique(q["codes"]):
        rising = [s[v] for v in range(len(s)) if q["codes"][v] == code and beta[v] < q["hi"][v]]
        falling = [s[v] for v in range(len(s)) if q["codes"][v] == code and beta[v] > q["lo"][v]]
        if code < 0:
            gap = max([gap, *rising, *(-value for value in falling)])
        elif rising and falling:
            gap = max(gap, max(rising) - min(falling))
    return gap


def objective(system, q, beta):
    """The minimised one."""
    s = scores(system, q, beta)
    return float(-0.5 * (beta @ s + q["p"] @ beta))


def assert_feasible(q, beta):
    assert (beta >= q["lo"]).all()
    assert (beta <= q["hi"]).all()
    for g, total in enumerate(q["sums"]):
        assert abs(math.fsum(beta[q["codes"] == g]) - total) <= 1e-12 * np.abs(beta).sum()


def solved(system, q, tol=1e-3, **options):
    """The answer, judged; converged is never said of a gap above tol."""
    answer = minimise(system, **q, tol=tol, **options)
    assert_feasible(q, answer.beta)
    rounding = 1e-15 * np.abs(system.diagonal).max() * np.abs(answer.beta).sum()
    if answer.status == "converged":
        assert gap_of(system, q, answer.beta) <= tol + rounding
    return answer


# -- data --------------------------------------------------------------------------------------------------------------
@functools.cache
def table(name):
    """A raw table of scikit-learn, centred, the largest class against the rest."""
    data = getattr(datasets, f"load_{name}")()
    X, classes = data.data.astype(float), np.bincount(data.target)
    return X - X.mean(axis=0), np.where(data.target == classes.argmax(), 1.0, -1.0)


def overlapping(n=150, p=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0)
    return X - X.mean(axis=0), y


# -- closed forms ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("q", "alpha", "bias"),
    [
        (hinge(FIVE_LABELS, np.inf), (0.25, 0.25, 0, 0, 0), -1.0),
        (hinge(FIVE_LABELS, 0.1), (0.1, 0.1, 0, 0.0125, 0.0125), -0.5),
        (squared_hinge(FIVE_LABELS, 0.1), (0.104, 0.104, 0, 0.008, 0.008), -0.48),
    ],
    ids=["hard", "hinge", "squared"],
)
@pytest.mark.parametrize("dense", [False, True], ids=["low-rank", "dense"])
def test_five_points__have_their_closed_forms(q, alpha, bias, dense):
    K = FIVE @ FIVE.T
    answer = solved(Dense(K) if dense else LowRank(FIVE), q, tol=1e-8)
    assert answer.status == "converged"
    np.testing.assert_allclose(answer.beta, np.array(alpha) * FIVE_LABELS, atol=1e-7)
    np.testing.assert_allclose(answer.multipliers, [bias], atol=1e-7)


# -- machines ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0, 1e4])
@pytest.mark.parametrize("machine", [hinge, squared_hinge, without_bias])
@pytest.mark.parametrize("name", ["breast_cancer", "wine", "digits"])
def test_raw_tables__converge(name, machine, C):
    G, y = table(name)
    answer = solved(LowRank(G), machine(y, C))
    assert answer.status == "converged"
    assert answer.n_iter < 80


@pytest.mark.parametrize("nu", [0.6, 0.8])
def test_nu_svc__matches_scikit_learn(nu):
    X, y = overlapping(200, 5)
    q = nu_svc(y, nu)
    peer = svm.NuSVC(nu=nu, kernel="linear", tol=1e-5).fit(X, y)
    alpha = np.zeros(len(y))
    alpha[peer.support_] = peer.dual_coef_[0] * nu * len(y) / np.abs(peer.dual_coef_).sum()
    answer = solved(LowRank(X), q, tol=1e-6)
    assert answer.status == "converged"
    assert objective(LowRank(X), q, answer.beta) == pytest.approx(objective(LowRank(X), q, alpha), rel=1e-6)
    # rho is an interval where a group has no free variable: directions are compared, not lengths
    w, theirs = answer.beta @ X, peer.coef_[0]
    np.testing.assert_allclose(w / np.linalg.norm(w), theirs / np.linalg.norm(theirs), atol=1e-4)
    assert answer.multipliers[0] < answer.multipliers[1]


@pytest.mark.parametrize("nu", [0.1, 0.5])
def test_nu_svc__on_raw_tables(nu):
    for name in ("breast_cancer", "wine"):
        G, y = table(name)
        assert solved(LowRank(G), nu_svc(y, nu)).status == "converged"


@pytest.mark.parametrize("short", [0.0, 1e-9, 1e-4])
def test_nu_svc__next_to_its_largest_nu(short):
    X, y = overlapping(200, 5)
    answer = solved(LowRank(X), nu_svc(y, 2 * min((y > 0).mean(), (y < 0).mean()) - short))
    assert answer.status == "converged"


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_svr__matches_scikit_learn(C):
    X, y = datasets.load_diabetes(return_X_y=True)
    X, target = 10 * (X - X.mean(axis=0)), y - y.mean()
    G, q = np.vstack([X, X]), svr(target, C, 5.0)
    peer = svm.SVR(kernel="linear", C=C, epsilon=5.0, tol=1e-6).fit(X, target)
    answer = solved(LowRank(G), q)
    assert answer.status == "converged"
    np.testing.assert_allclose(answer.beta @ G, peer.coef_[0], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(answer.multipliers, peer.intercept_, atol=1e-2)


def test_nu_svr__matches_scikit_learn():
    X, y = datasets.load_diabetes(return_X_y=True)
    X, target = 10 * (X - X.mean(axis=0)), y - y.mean()
    G, q = np.vstack([X, X]), nu_svr(target, 1.0, 0.4)
    peer = svm.NuSVR(kernel="linear", C=1.0, nu=0.4, tol=1e-6).fit(X, target)
    answer = solved(LowRank(G), q)
    assert answer.status == "converged"
    np.testing.assert_allclose(answer.beta @ G, peer.coef_[0], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(answer.multipliers.mean(), peer.intercept_[0], atol=1e-2)


@pytest.mark.parametrize("nu", [0.1, 0.5])
def test_one_class__matches_scikit_learn(nu):
    X, _ = overlapping(200, 3)
    K, q = rbf_kernel(X, gamma=0.3), one_class(200, nu)
    peer = svm.OneClassSVM(kernel="precomputed", nu=nu, tol=1e-8).fit(K)
    alpha = np.zeros(200)
    alpha[peer.support_] = peer.dual_coef_[0]
    answer = solved(Dense(K), q, tol=1e-6)
    assert answer.status == "converged"
    assert objective(Dense(K), q, answer.beta) == pytest.approx(objective(Dense(K), q, alpha), rel=1e-7)
    np.testing.assert_allclose(answer.multipliers, peer.intercept_, rtol=1e-4)


@pytest.mark.parametrize("C", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("kernel", ["rbf", "polynomial"])
def test_dense__matches_scikit_learn(kernel, C):
    X, y = overlapping(300, 4)
    K = rbf_kernel(X, gamma=0.2) if kernel == "rbf" else polynomial_kernel(X, degree=3, gamma=0.2)
    answer = solved(Dense(K), hinge(y, C), tol=1e-4)
    assert answer.status == "converged"
    if C < 1000:  # the peer does not end at 1e4
        peer = svm.SVC(kernel="precomputed", C=C, tol=1e-3).fit(K, y)
        alpha = np.zeros(len(y))
        alpha[peer.support_] = peer.dual_coef_[0]
        best, theirs = objective(Dense(K), hinge(y, C), answer.beta), objective(Dense(K), hinge(y, C), alpha)
        assert best <= theirs + 1e-6 * abs(theirs)


# -- hard data ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("machine", [hinge, squared_hinge])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_bad_scales__converge(machine, C):
    rng = np.random.default_rng(1)
    X = 1e4 + rng.normal(size=(400, 6)) * np.array([1.0, 1e4, 1.0, 10.0, 1e3, 0.1])
    y = np.where((X[:, 0] - 1e4) + (X[:, 4] - 1e4) / 1e3 + 0.5 * rng.normal(size=400) > 0, 1.0, -1.0)
    G = X - X.mean(axis=0)
    assert solved(LowRank(G), machine(y, C)).status == "converged"


@pytest.mark.parametrize("dense", [False, True], ids=["low-rank", "dense"])
def test_duplicates_and_rank_deficiency__converge(dense):
    X, y = overlapping(60, 3)
    G = np.tile(np.hstack([X, X[:, :1] - X[:, 1:2], np.zeros((60, 2))]), (4, 1))
    labels, K = np.tile(y, 4), G @ G.T
    labels[200:] *= -1  # some under both labels
    for C in (0.1, 10.0, 1e3):
        answer = solved(Dense(K) if dense else LowRank(G), hinge(labels, C), tol=1e-6)
        assert answer.status == "converged"


def test_binary_features__hundreds_of_rows_on_the_margin():
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2, size=(500, 8)).astype(float)
    y = np.where(bits[:, 0] > 0, 1.0, -1.0)
    y[::17] *= -1
    G = np.hstack([bits, rng.normal(size=(500, 1)) * 1e4])
    G -= G.mean(axis=0)
    for C in (1.0, 100.0):
        assert solved(LowRank(G), hinge(y, C)).status == "converged"


def test_box_far_from_zero__starts_with_scores_of_its_own():
    G, lo = np.array([[91.1], [62.9], [46.5]]), np.array([118.49, 200.85, -1.15])
    q = program(np.zeros(3), lo, lo + 0.3, codes=-1, sums=())
    answer = solved(LowRank(G), q, tol=1e-5)
    assert answer.status == "converged"
    np.testing.assert_array_equal(answer.beta, lo)


@pytest.mark.parametrize(
    ("root", "p", "lo", "hi"),
    [(33.07, 0.853, -0.537, 4.449), (55.2, -2.325, -0.704, 5.354), (63.8, -0.178, -0.632, 0.786)],
)
def test_one_steep_variable__does_not_circle(root, p, lo, hi):
    q = program(np.array([p]), lo, hi, codes=-1, sums=())
    answer = solved(LowRank(np.array([[root]])), q, tol=1e-5)
    assert answer.status == "converged"
    np.testing.assert_allclose(answer.beta, p / root**2, rtol=1e-6)


def test_no_features_at_all():
    y = np.array([1.0, 1, -1, 1, -1])
    assert solved(LowRank(np.zeros((5, 2))), hinge(y, 1.0)).status == "converged"


# -- how it ends -------------------------------------------------------------------------------------------------------
def test_hard_margin__infeasible_only_where_nothing_separates():
    X, y = overlapping(120, 3)
    assert solved(LowRank(X), hinge(y, np.inf)).status == "infeasible"
    assert solved(Dense(X @ X.T), hinge(y, np.inf)).status == "infeasible"
    w = np.array([1.0, -2.0, 0.5])
    for margin in (1.0, 1e-2, 1e-4):
        labels = np.sign(X[:, :3] @ w)
        G = X + margin * labels[:, None] * w / (w @ w)
        q = hinge(labels, np.inf)
        assert solved(LowRank(G - G.mean(axis=0)), q).status == "converged"


def test_fixed_variables__stay_where_they_are():
    X, y = overlapping(80, 3)
    q = hinge(y, 2.0)
    lo, hi = q["lo"].copy(), q["hi"].copy()
    hi[:10], lo[:10] = 0.5 * y[:10], 0.5 * y[:10]
    lo[10:20] = hi[10:20] = 0.0
    answer = solved(LowRank(X), {**q, "lo": lo, "hi": hi}, tol=1e-6)
    assert answer.status == "converged"
    np.testing.assert_array_equal(answer.beta[:20], lo[:20])


def test_stop__gives_a_feasible_point():
    X, y = overlapping(80, 3)
    answer = solved(LowRank(X), hinge(y, 100.0), stops=lambda: True)
    assert (answer.status, answer.n_iter) == ("stopped", 0)
    passes = iter([False] * 8 + [True])
    later = solved(LowRank(X), hinge(y, 100.0), tol=1e-9, stops=lambda: next(passes))
    assert (later.status, later.n_iter) == ("stopped", 8)
    assert objective(LowRank(X), hinge(y, 100.0), later.beta) < 0.0


@pytest.mark.parametrize("machine", [hinge, squared_hinge, nu_svc])
def test_start__the_answer_takes_no_pass(machine):
    X, y = overlapping(80, 3)
    K = rbf_kernel(X, gamma=0.5)
    q = machine(y, 0.4)
    first = solved(Dense(K), q, tol=1e-5)
    again = solved(Dense(K), q, tol=1e-5, start=first.beta)
    assert (again.status, again.n_iter) == ("converged", 0)
    near = np.clip(first.beta + 1e-4 * np.random.default_rng(0).normal(size=80), q["lo"], q["hi"])
    assert solved(Dense(K), q, tol=1e-5, start=near).status == "converged"


@pytest.mark.parametrize("seed", range(3))
def test_indefinite__ends_quickly_and_says_so(seed):
    X, y = overlapping(100, 3, seed)
    K = np.tanh(X @ X.T - 1.0)
    answer = solved(Dense(K), hinge(y, 10.0))  # judged there: converged only if its gap is small
    assert answer.status in ("stalled", "converged")
    assert answer.n_iter <= 100


# -- anything ----------------------------------------------------------------------------------------------------------
@st.composite
def cases(draw):
    """Rows, a program of any shape whose sums a point of the box has, and K as G or as a square."""
    n, r = draw(st.integers(1, 24)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    G = rng.normal(size=(n, r)) * 10.0 ** rng.integers(-2, 3, size=r)
    if draw(st.booleans()):
        G = G[rng.integers(0, n, size=n)].round(1)
    k = draw(st.integers(0, 2))
    codes = rng.integers(0 if draw(st.booleans()) and k else -1, k, size=n) if k else np.full(n, -1)
    lo = rng.normal(size=n) * 10.0 ** draw(st.integers(-2, 3))
    hi = lo + rng.exponential(size=n) * rng.integers(0, 2, size=n) * 10.0 ** draw(st.integers(-2, 3))
    ridge = rng.exponential(size=n) * draw(st.sampled_from([0.0, 1e-3, 1.0]))
    inside = lo + (hi - lo) * rng.choice([0.0, 0.3, 1.0], size=n)
    if (ridge > 0).all():
        hi = np.where((rng.random(n) < 0.3) & (hi > lo), np.inf, hi)
        lo = np.where((rng.random(n) < 0.3) & (hi > lo), -np.inf, lo)
    p = rng.normal(size=n) * draw(st.sampled_from([0.0, 1.0, 30.0]))
    sums = [math.fsum(inside[codes == g]) for g in range(k)]
    return G, program(p, lo, hi, ridge, codes, sums), draw(st.booleans())


@given(cases())
@settings(max_examples=300, deadline=None)
def test_any_program__is_solved(case):
    G, q, dense = case
    K = G @ G.T
    K = (K + K.T) / 2
    scale = np.abs(K).max() * sum(np.abs(np.where(np.isfinite(q[end]), q[end], 0)).sum() for end in ("lo", "hi"))
    system = Dense(K) if dense else LowRank(G)
    assert solved(system, q, tol=max(1e-5, 1e-11 * scale)).status == "converged"
