"""Between two solved C: what bounds say of every C in between, against optima solved there."""

import itertools

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC as Peer

from svmcore.errors import InputError, Unsupported
from svmcore.estimator import SVC, choose_C
from svmcore.model.multiclass import Wrong, vote
from svmcore.train.choice.between import End, Rows, bands


def gaussian(X, gamma):
    return np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(axis=2))


def problem(seed, n=160, held_out=60):
    """Rows with weights, some held out, one label of ten turned."""
    rng = np.random.default_rng(seed)
    X, labels = make_classification(n, 4, n_redundant=0, flip_y=0.1, class_sep=0.7, random_state=seed)
    y, weight = 2.0 * labels - 1.0, rng.uniform(0.5, 2.0, n) if seed % 2 else np.ones(n)
    weight[n - held_out :] = 0.0
    return gaussian(X, 0.4), y, weight


def solved(K, y, weight, C, tol=1e-9):
    """LIBSVM's answer: coefficients (n,) and bias."""
    at = np.flatnonzero(weight)
    machine = Peer(C=C, kernel="precomputed", tol=tol).fit(K[np.ix_(at, at)], y[at], weight[at])
    beta = np.zeros(len(y))
    beta[at[machine.support_]] = machine.dual_coef_[0]
    return beta, float(machine.intercept_[0])


def end(K, y, weight, C, tol):
    beta, at = solved(K, y, weight, C, tol)[0], weight > 0
    return End(C, beta[at], (K @ beta)[at], K @ beta, 1e-12)


def rows_of(K, y, weight, is_positive):
    at, norm = weight > 0, np.sqrt(np.diag(K))
    return Rows(y[at], weight[at], norm[at], norm, is_positive)


def parts(bounds, cuts):
    return zip(*bounds, itertools.pairwise(cuts), strict=True)


@pytest.mark.parametrize("is_positive", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_bands__hold_for_every_optimum_in_between(seed, is_positive):
    K, y, weight = problem(seed)
    left, right = (end(K, y, weight, C, 1e-3) for C in (1.0, 1.6))
    cuts = np.geomspace(1.0, 1.6, 9)
    found = bands(rows_of(K, y, weight, is_positive), left, right, cuts)
    for low, high, (first, last) in parts(found, cuts):
        for C in (first, np.sqrt(first * last), last):
            beta, bias = solved(K, y, weight, C)
            f = K @ beta + bias
            assert (low <= f + 1e-6).all()
            assert (f <= high + 1e-6).all()


def test_bands__are_as_narrow_as_the_gap_at_the_ends_allows():
    K, y, weight = problem(0)
    widths = []
    for right in (1.6, 1.1, 1.02):
        ends = [end(K, y, weight, C, 1e-9) for C in (1.0, right)]
        low, high = bands(rows_of(K, y, weight, False), *ends, np.geomspace(1.0, right, 33))
        widths.append(float((high - low).max()))
    assert widths[0] > widths[1] > widths[2]
    assert widths[2] < 0.35


def test_bands__are_narrower_where_no_kernel_value_is_below_0():
    """Two rows are sqrt(2) apart at most then, not 2; half of what is between them is so wide at a wide step."""
    K, y, weight = problem(1)
    ends, cuts = [end(K, y, weight, C, 1e-9) for C in (1.0, 1.6)], np.geomspace(1.0, 1.6, 65)
    narrow, wide = (np.subtract(*bands(rows_of(K, y, weight, sign), *ends, cuts)[::-1]) for sign in (True, False))
    assert (narrow < wide).all()
    assert narrow.mean() < 0.8 * wide.mean()


def test_a_wrong_end__widens_the_bands_and_they_still_hold():
    """Coefficients of another C, cut to the box: feasible, not optimal."""
    K, y, weight = problem(2)
    rows, left, right = rows_of(K, y, weight, True), *(end(K, y, weight, C, 1e-9) for C in (1.0, 1.3))
    poor = left._replace(beta=0.8 * left.beta, outputs=0.8 * left.outputs, asked=0.8 * left.asked)
    cuts = np.array([1.0, 1.1, 1.2, 1.3])
    good, wide = bands(rows, left, right, cuts), bands(rows, poor, right, cuts)
    beta, bias = solved(K, y, weight, 1.05)
    assert (wide[0][0] <= K @ beta + bias).all()
    assert (wide[1][0] >= K @ beta + bias).all()
    assert (wide[1] - wide[0])[0].mean() > (good[1] - good[0])[0].mean()


def test_a_sum_that_misses_0__widens_the_bands():
    """One coefficient is cut by a thousandth: the Lagrangian's term, by hand, is added to the gap."""
    K, y, weight = problem(4)
    rows, left, right = rows_of(K, y, weight, True), *(end(K, y, weight, C, 1e-9) for C in (1.0, 1.3))
    beta, at, C = left.beta.copy(), int(left.beta.argmax()), 1.0 + 1e-12
    beta[at] *= 0.999
    u = K[:, weight > 0] @ beta
    off = left._replace(beta=beta, outputs=u[weight > 0], asked=u)
    low, high = bands(rows, off, right, np.array([1.0, C]))
    t, missed = rows.y - off.outputs, abs(beta.sum())
    best = min(C * rows.weight @ np.maximum(0.0, 1.0 - rows.y * (off.outputs + b)) for b in t)
    gap = beta @ off.outputs + best - rows.y @ beta + missed * (1.0 + np.abs(off.outputs).max())
    assert (high - low).min() > 2.0 * np.sqrt(2.0 * gap)
    assert (high - low).min() < 2.2 * np.sqrt(2.0 * gap) + 4.0 * missed


def test_errors_of_the_outputs__widen_the_bands_by_more_than_twice_that():
    K, y, weight = problem(3)
    rows, ends = rows_of(K, y, weight, True), [end(K, y, weight, C, 1e-9) for C in (1.0, 1.3)]
    cuts = np.array([1.0, 1.3])
    low, high = bands(rows, *ends, cuts)
    rough_low, rough_high = bands(rows, *(each._replace(error=1e-3) for each in ends), cuts)
    assert (rough_high >= high + 2e-3).all()
    assert (rough_low <= low - 2e-3).all()


@pytest.mark.parametrize("scheme", ["ovr", "ovo"])
@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_a_row_is_wrong__where_no_values_between_the_bounds_say_its_class(scheme, n_classes):
    rng = np.random.default_rng(n_classes)
    k = 1 if n_classes == 2 else n_classes if scheme == "ovr" else n_classes * (n_classes - 1) // 2
    low = rng.normal(size=(300, k))
    high, codes = low + rng.uniform(0.0, 1.0, (300, k)), rng.integers(0, n_classes, 300)
    told = Wrong(codes, n_classes, scheme, (2,))
    for column in range(k):
        told.add(column, np.stack([low[:, column]] * 2), np.stack([high[:, column], low[:, column]]))
    wrong, exact = told.found()
    assert (exact == (vote(low, n_classes, scheme) != codes)).all()  # bounds without width are values
    corners = itertools.product((0.0, 1.0), repeat=k)
    never = np.all([vote(low + np.array(c) * (high - low), n_classes, scheme) != codes for c in corners], axis=0)
    assert never[wrong].all()
    assert wrong[never].mean() > (0.9 if scheme == "ovr" else 0.7)  # pairs of others are not looked at together
    assert 0.1 < wrong.mean() < 0.95


@pytest.mark.parametrize(
    "kernel", [{"gamma": 0.3}, {"kernel": "poly", "degree": 2, "coef0": 1.0}, {"kernel": "linear"}]
)
@pytest.mark.parametrize(("n_classes", "scheme"), [(2, "ovr"), (3, "ovr"), (3, "ovo")])
def test_a_choice__is_not_beaten_by_more_than_it_says(n_classes, scheme, kernel):
    X, labels = make_classification(
        360, 5, n_informative=4, n_redundant=0, n_classes=n_classes, flip_y=0.15, class_sep=0.8, random_state=1
    )
    X += 3.0  # the kernel that is served is about their centre, where it can be
    machine = SVC(**kernel, multi_class=scheme, class_weight={0: 1.5}, tol=1e-4)
    found = choose_C(machine, X[:240], labels[:240], (X[240:], labels[240:]), (0.5, 1.0), within=3, most=40)
    assert found.within <= 3 or len(found.solved) == 40
    assert found.within < found.errors
    assert found.rows == 120
    told = dict(found.solved)
    for C in np.geomspace(0.5, 1.0, 13):
        peer = machine.set_params(C=C, tol=1e-8).fit(X[:240], labels[:240])
        errors = int((peer.predict(X[240:]) != labels[240:]).sum())
        assert errors >= found.errors - found.within
    best = machine.set_params(C=found.C).fit(X[:240], labels[:240])
    assert told[found.C] == found.errors == int((best.predict(X[240:]) != labels[240:]).sum())


@pytest.mark.parametrize("machine", [SVC(gamma="scale", class_weight="balanced"), SVC(kernel="linear")])
def test_a_choice__by_folds_is_of_all_their_errors(machine):
    X, labels = make_classification(300, 4, n_redundant=0, flip_y=0.15, weights=[0.3], random_state=5)
    folds = StratifiedKFold(3, shuffle=True, random_state=1)
    found = choose_C(machine, X, labels, folds, (0.5, 0.8), within=4, most=30)
    assert found.within <= 4
    assert found.rows == 300
    for C in [*np.geomspace(0.5, 0.8, 9), *(C for C, _ in found.solved[:4])]:
        peer = clone(machine).set_params(C=C, tol=1e-8)
        wrong = [(peer.fit(X[a], labels[a]).predict(X[b]) != labels[b]).sum() for a, b in folds.split(X, labels)]
        assert sum(wrong) >= found.errors - found.within
        assert dict(found.solved).get(C, sum(wrong)) == sum(wrong)


def test_fewer_rows_are_left_open__the_more_values_are_solved():
    X, labels = make_classification(300, 4, n_redundant=0, flip_y=0.2, random_state=3)
    given = X[:200], labels[:200], (X[200:], labels[200:]), (0.1, 2.0)
    widths = [choose_C(SVC(gamma=0.5), *given, most=most).within for most in (2, 6, 20)]
    assert widths[0] >= widths[1] >= widths[2]
    assert widths[0] > widths[2]


def test_no_number_between_two_that_are_solved__ends_the_search():
    """One row with both labels, which lies on the border: one error whatever C, and no bound tells."""
    X, y = [[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1]
    found = choose_C(SVC(gamma=1.0), X, y, ([[0.0], [0.0]], [0, 1]), (1.0, np.nextafter(1.0, 2.0)))
    assert (found.errors, found.within, len(found.solved)) == (1, 1, 2)


@pytest.mark.parametrize(
    ("machine", "given", "message"),
    [
        (SVC(loss="squared_hinge"), {}, "hinge"),
        (SVC(kernel="precomputed"), {}, "kernel by name"),
        (SVC(kernel="sigmoid"), {}, "positive semi-definite"),
        (SVC(), {"between": (2.0, 1.0)}, "smallest C, largest C"),
        (SVC(), {"most": 1}, "at least 2"),
        (SVC(), {"validation": (np.eye(2), [0, 7])}, "labels that the training rows do not have"),
        (SVC(), {"validation": [([0, 1, 2], [3]), ([0, 1], [2])]}, "no row of some class"),
    ],
)
def test_choose__refuses_what_it_cannot_prove(machine, given, message):
    X, y = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]]), [0, 0, 1, 1]
    whole = {"validation": (X, y), "between": (0.1, 1.0)} | given
    with pytest.raises((InputError, Unsupported), match=message):
        choose_C(machine, X, y, **whole)
