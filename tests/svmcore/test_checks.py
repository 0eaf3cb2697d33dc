"""What is left out of scikit-learn's checks changes nothing that anybody sees."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import InvalidParameterError

from svmcore.adapters.checks import are_plain, checked_weights, classes_of
from svmcore.estimator import SVC

X = np.random.default_rng(0).normal(size=(30, 3))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)


@pytest.mark.parametrize("given", [{"C": -1.0}, {"tol": 0.0}, {"shrinking": 2}, {"kernel": "cubic"}])
def test_check_once__a_fault_is_found_every_time(given):
    for _ in range(3):
        with pytest.raises(InvalidParameterError):
            SVC(**given).fit(X, Y)
        SVC().fit(X, Y)


def test_check_once__a_value_of_another_kind_is_another_value():
    SVC(shrinking=True, max_iter=-1).fit(X, Y)
    with pytest.raises(InvalidParameterError):
        SVC(shrinking=1.5).fit(X, Y)
    with pytest.raises(InvalidParameterError):
        SVC(max_iter=-1.0).fit(X, Y)


def test_are_plain__of_what_scikit_learn_takes_as_it_is():
    assert are_plain(X, Y)
    assert are_plain(X.astype(np.float32), Y.astype(int))
    assert are_plain(X, np.where(Y > 0, "a", "b"))
    for rows, y in (
        (X.tolist(), Y),
        (X, Y.tolist()),
        (X.T, Y),
        (np.asfortranarray(X), Y),
        (X.astype(int), Y),
        (X.astype(">f8"), Y),
        (X, Y[:-1]),
        (X, Y[:, None]),
        (X, Y.astype(object)),
        (X[:0], Y[:0]),
        (X[:, :0], Y),
        (np.where(X > 1.0, np.nan, X), Y),
        (np.where(X > 1.0, np.inf, X), Y),
        (X, np.where(Y > 0, np.nan, Y)),
    ):
        assert not are_plain(rows, y)


def test_fit__of_plain_arrays_is_that_of_lists():
    plain, general = SVC().fit(X, Y), SVC().fit(X.tolist(), Y.tolist())
    np.testing.assert_array_equal(plain.dual_coef_, general.dual_coef_)
    np.testing.assert_array_equal(plain.classes_, general.classes_)
    assert plain.n_features_in_ == general.n_features_in_ == 3


def test_fit__of_an_array_forgets_the_names_of_a_table():
    pandas = pytest.importorskip("pandas")
    model = SVC().fit(pandas.DataFrame(X, columns=list("abc")), Y)
    assert list(model.feature_names_in_) == list("abc")
    assert not hasattr(model.fit(X, Y), "feature_names_in_")


@pytest.mark.filterwarnings("ignore:(overflow|invalid value)")
@pytest.mark.parametrize("row", [np.nan, np.inf])
def test_fit__still_refuses_what_is_not_finite(row):
    rows = X.copy()
    rows[4, 2] = row
    with pytest.raises(ValueError, match="Input X contains"):
        SVC().fit(rows, Y)
    huge = np.sign(X) * 1e308  # finite, and their sums are not
    with pytest.raises(ValueError, match="not finite: scale the data"):
        SVC().fit(huge, Y)


@pytest.mark.parametrize("kind", [float, int, np.float32, np.int8, bool, "U1"])
def test_classes_of__are_those_of_unique(kind):
    for y in (Y > 0, Y):
        labels = y.astype(kind)
        classes, codes = classes_of(labels)
        expected = np.unique(labels, return_inverse=True)
        np.testing.assert_array_equal(classes, expected[0])
        np.testing.assert_array_equal(codes, expected[1])
        assert classes.dtype == expected[0].dtype


def test_classes_of__refuses_what_is_no_class():
    for y in (np.where(Y > 0, 0.5, 1.0), X[:, 0]):
        with pytest.raises(ValueError, match="Unknown label type"):
            classes_of(y)


def test_checked_weights__as_scikit_learn_checks_them():
    weights = np.linspace(-1.0, 2.0, 30)
    assert checked_weights(weights, 30) is weights
    np.testing.assert_array_equal(checked_weights(weights.tolist(), 30), weights)
    np.testing.assert_array_equal(checked_weights(weights.astype(np.float32), 30), weights.astype(np.float32))
    np.testing.assert_array_equal(checked_weights(2.0, 30), np.full(30, 2.0))
    nothing = np.zeros(30)
    for wrong in (-np.ones(30), nothing, nothing.tolist(), nothing + np.nan, np.ones(29), np.ones((30, 1))):
        with pytest.raises(ValueError, match=r"weights|NaN|shape|1D"):
            checked_weights(wrong, 30)


def test_predict__of_plain_rows_is_that_of_lists_and_faults_are_found():
    model = SVC().fit(X, Y)
    np.testing.assert_array_equal(model.predict(X[:3]), model.predict(X[:3].tolist()))
    np.testing.assert_array_equal(model.decision_function(X[:3]), model.decision_function(X[:3].tolist()))
    with pytest.raises(ValueError, match="X has 2 features, but SVC is expecting 3 features"):
        model.predict(np.ascontiguousarray(X[:, :2]))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.predict(np.where(X > 1.0, np.nan, X))
    for rows in (X[:0], X[0]):
        with pytest.raises(ValueError, match=r"Found array with 0 sample|Expected 2D array"):
            model.predict(rows)


def test_predict__of_an_array_tells_who_was_fitted_with_names():
    model = SVC().fit(pd.DataFrame(X, columns=["a", "b", "c"]), Y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(X)


def test_predict__before_fit_says_so():
    for model in (SVC(), SVC(break_ties=True, decision_function_shape="ovo")):
        for ask in (model.predict, model.decision_function):
            with pytest.raises(NotFittedError):
                ask(X)
