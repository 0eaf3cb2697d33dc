"""What a sweep claims of the C between its own, against scikit-learn's optima at tol 1e-9 there."""

import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.svm import SVC

from pipeline import run

CS = np.geomspace(0.5, 1.1, 7).round(6).tolist()
KERNELS = {
    "rbf": ({"name": "rbf", "gamma": 0.4}, {"gamma": 0.4}),
    "polynomial": (
        {"name": "polynomial", "gamma": 0.25, "degree": 2, "coef0": 1.0},
        {"kernel": "poly", "gamma": 0.25, "degree": 2, "coef0": 1.0},
    ),
    "linear": ({"name": "linear"}, {"kernel": "linear"}),
}


def rows(n_classes, n=240):
    """Overlapping classes, every sixth row twice and once with another label."""
    X, y = make_classification(
        n, 4, n_redundant=0, n_classes=n_classes, n_clusters_per_class=1, flip_y=0.15, random_state=2
    )
    X, again = X.round(2), slice(0, None, 6)
    return np.vstack([X, X[again], X[again]]), np.concatenate([y, y[again], (y[again] + 1) % n_classes])


def written(path, X, y, fold=None):
    """A CSV file with the fold of each row, if any."""
    table = np.column_stack([X, *([] if fold is None else [fold]), y])
    names = [*"abcd", *([] if fold is None else ["site"]), "label"]
    path.write_text("\n".join([",".join(names), *(",".join(f"{v:g}" for v in row) for row in table)]) + "\n")
    return str(path)


def config(source, kernel, multiclass="ovr", **more):
    sweep = {"grid": {"C": CS}, **({"folds": {"column": "site"}} if more.pop("folds", True) else {})}
    return {
        "data": {"source": source, **more.pop("data", {})},
        "kernel": kernel,
        "multiclass": multiclass,
        "solver": {"name": "smo", "tol": 1e-5},
        "class_weight": {"0": 1.5},
        "cluster": {"kind": "inline"},
        "sweep": sweep,
        **more,
    }


def errors(machine, multiclass, train, test, C):
    """Of the exact optimum with this C."""
    peer = SVC(C=C, tol=1e-9, class_weight={0: 1.5}, **machine)
    if multiclass == "ovr" and len(np.unique(train[1])) > 2:
        weight = np.where(train[1] == 0, 1.5, 1.0)
        peer = SVC(C=C, tol=1e-9, **machine)
        values = [peer.fit(train[0], train[1] == k, weight).decision_function(test[0]) for k in np.unique(train[1])]
        return int((np.argmax(values, axis=0) != test[1]).sum())
    return int((peer.fit(*train).predict(test[0]) != test[1]).sum())


def holds(found, truth):
    """Each optimum in between has at least the errors that are left there, and some claim is made."""
    solved = [C for C, _ in found["solved"]]
    for low, high, least in zip(solved, solved[1:], found["least"], strict=False):
        for C in np.geomspace(low, high, 4):
            assert least <= truth(C)
    assert found["within"] == max(0, found["errors"] - min(found["least"]))
    assert found["within"] < found["errors"]


@pytest.mark.parametrize(
    ("kernel", "n_classes", "multiclass", "plan"),
    [
        ("rbf", 2, "ovr", "resident"),
        ("rbf", 3, "ovr", "columns"),
        ("rbf", 3, "ovo", "resident"),
        ("polynomial", 2, "ovr", "resident"),
        ("linear", 3, "ovr", "resident"),
    ],
)
def test_choice_of_C__bounds_the_errors_of_folds_at_every_c_in_between(kernel, n_classes, multiclass, plan, tmp_path):
    X, y = rows(n_classes)
    fold = np.random.default_rng(0).integers(0, 3, len(y))
    ours, peer = KERNELS[kernel]
    given = config(written(tmp_path / "rows.csv", X, y, fold), ours, multiclass, plan=plan)
    record = run(given, store=tmp_path / "runs")
    found = record["choice_of_C"]

    def truth(C):
        each = [(fold != k, fold == k) for k in range(3)]
        return sum(errors(peer, multiclass, (X[a], y[a]), (X[b], y[b]), C) for a, b in each)

    holds(found, truth)
    assert found["rows"] == len(y)
    assert found["C"] == record["best"]["params"]["C"]
    assert found["errors"] == truth(found["C"])
    assert [tuple(each) for each in found["solved"]] == [(C, truth(C)) for C in CS]
    page = (Path(record["run"]) / "report.html").read_text()
    assert f"no C from 0.5 to 1.1 is better than {found['C']:g} by more than {found['within']}" in page


@pytest.mark.parametrize("kernel", ["rbf", "polynomial"])
def test_choice_of_C__bounds_the_errors_of_test_rows_without_folds(kernel, tmp_path):
    (X, y), (X_test, y_test) = rows(3), rows(3, n=132)
    ours, peer = KERNELS[kernel]
    source, test = written(tmp_path / "train.csv", X, y), written(tmp_path / "test.csv", X_test + 0.01, y_test)
    record = run(config(source, ours, folds=False, data={"test": test}), store=tmp_path / "runs")
    truth = lambda C: errors(peer, "ovr", (X, y), (X_test + 0.01, y_test), C)  # noqa: E731
    holds(record["choice_of_C"], truth)
    assert record["choice_of_C"]["errors"] == truth(record["choice_of_C"]["C"])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"loss": "squared_hinge"}, "hinge loss"),
        ({"bias": "penalised"}, "free bias"),
        ({"scoring": "f1_macro"}, "f1_macro ranks the points"),
        ({"kernel": {"name": "tanh", "gamma": 0.01, "coef0": 0.0}}, "not known to be positive semi-definite"),
        ({"folds": False}, "neither folds nor test rows"),
        ({"approximation": {"name": "nystroem", "rank": 20}}, "the kernel is approximated"),
        ({"plan": "shards"}, "the rows are in shards"),
    ],
)
def test_choice_of_C__says_why_where_nothing_is_proved(more, why, tmp_path):
    X, y = rows(2, n=90)
    source = written(tmp_path / "rows.csv", X, y, np.arange(len(y)) % 2)
    found = run(config(source, **({"kernel": KERNELS["rbf"][0]} | more)), store=tmp_path / "runs")
    assert why in found["choice_of_C"]["why"]


def test_choice_of_C__is_not_there_where_c_does_not_vary(tmp_path):
    X, y = rows(2, n=90)
    given = config(written(tmp_path / "rows.csv", X, y, np.arange(len(y)) % 2), KERNELS["rbf"][0])
    given["sweep"] = given["sweep"] | {"grid": {"kernel.gamma": [0.1, 1.0], "C": [1.0]}}
    assert "choice_of_C" not in run(given, store=tmp_path / "runs")


def test_a_hard_margin_among_the_points__is_published_and_left_out_of_the_choice(tmp_path):
    """JSON has no infinity: a sweep over it ended with an error after all its work."""
    X, y = rows(2, n=90)
    X[:, 0] += 9.0 * y
    given = config(written(tmp_path / "rows.csv", X, y, np.arange(len(y)) % 2), KERNELS["rbf"][0])
    given["sweep"] = given["sweep"] | {"grid": {"C": [1.0, 1.1, math.inf]}}
    record = run(given, store=tmp_path / "runs")
    assert {point["params"]["C"] for point in record["points"]} == {1.0, 1.1, ".inf"}
    assert record["best"]["params"]["C"] == ".inf" or [C for C, _ in record["choice_of_C"]["solved"]] == [1.0, 1.1]
    assert ".inf" in (Path(record["run"]) / "results.csv").read_text()
