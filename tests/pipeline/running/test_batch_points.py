"""Points and folds of every shape: copies, folds by column or none, rows and losses of their own, and refusals."""

import json

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, PredefinedSplit, StratifiedKFold
from sklearn.svm import SVC

from pipeline import load_model, run
from svmcore.errors import InputError

from .digits_sweep import CS, N


@pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
def test_scores__copies_on_both_sides_of_a_fold_count_where_they_are(multiclass, tmp_path):
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 80)
    X = rng.normal(size=(80, 2)) + 1.1 * y[:, None]
    X, y = np.tile(X, (3, 1)), np.tile(y, 3)
    np.savez(tmp_path / "copies.npz", X=X, y=y)
    given = {
        "data": {"source": str(tmp_path / "copies.npz")},
        "kernel": {"name": "rbf", "gamma": 0.7},
        "multiclass": multiclass,
        "solver": {"name": "smo", "tol": 1e-6},
        "cluster": {"kind": "inline"},
        "class_weight": "balanced",
        "sweep": {"grid": {"C": [0.3, 3]}, "folds": 4, "refit": False},
    }
    found = run(given, store=tmp_path / "runs")
    peer = SVC(gamma=0.7, tol=1e-8, class_weight="balanced")
    for point in found["points"]:
        scores = []
        for train, test in StratifiedKFold(4, shuffle=True, random_state=0).split(X, y):
            machine = peer.set_params(C=point["params"]["C"])
            if multiclass == "ovr":
                weight = len(train) / (3 * np.bincount(y[train]))
                values = [_rest(X, y, train, test, k, weight, point["params"]["C"]) for k in range(3)]
                scores.append(np.mean(np.argmax(values, axis=0) == y[test]))
            else:
                scores.append(machine.fit(X[train], y[train]).score(X[test], y[test]))
        assert point["fold_scores"] == pytest.approx(scores, abs=1e-12)
    assert (found["model"], found["accuracy"], found["per_class"]) == (None, None, [])
    assert (found["n_train"], found["points"][0]["n_support"] > 80) == (240, True)


def _rest(X, y, train, test, k, weight, C):
    """Decision values of class k against the rest, each row with the weight of its class among all."""
    machine = SVC(C=C, gamma=0.7, tol=1e-8)
    return machine.fit(X[train], y[train] == k, sample_weight=weight[y[train]]).decision_function(X[test])


def test_scores__folds_by_column_are_those_of_a_predefined_split(tmp_path):
    rng = np.random.default_rng(6)
    y = rng.integers(0, 2, 90)
    X = (rng.normal(size=(90, 2)) + y[:, None]).round(4)
    site = rng.choice(["north", "south", "west"], 90)
    lines = [f"{a},{b},{s},{c}" for (a, b), s, c in zip(X, site, y, strict=True)]
    (tmp_path / "sites.csv").write_text("\n".join(["a,b,site,sick", *lines]) + "\n")
    given = {
        "data": {"source": str(tmp_path / "sites.csv")},
        "kernel": {"name": "rbf", "gamma": 0.5},
        "cluster": {"kind": "inline"},
        "sweep": {"grid": {"C": [1, 10]}, "folds": {"column": "site"}},
    }
    found = run(given, store=tmp_path / "runs")
    split = PredefinedSplit(np.unique(site, return_inverse=True)[1])
    search = GridSearchCV(SVC(gamma=0.5, tol=1e-6), {"C": [1, 10]}, cv=split).fit(X, y)
    for point in found["points"]:
        k = [1, 10].index(point["params"]["C"])
        theirs = [search.cv_results_[f"split{fold}_test_score"][k] for fold in range(3)]
        assert point["fold_scores"] == pytest.approx(theirs)
    assert load_model(found["model"]).model.support_vectors.shape[1] == 2


def test_scores__without_folds_are_of_the_test_rows(config, tmp_path):
    given = config | {"sweep": {"grid": {"C": list(CS)}}}
    found = run(given, ["data.test=0.25"], store=tmp_path)
    alone = {C: run(config | {"sweep": None, "C": C}, ["data.test=0.25"], store=tmp_path) for C in CS}
    assert found["scored_on"] == "test"
    assert [p["fold_scores"] for p in found["points"]] == [
        [alone[p["params"]["C"]]["accuracy"]] for p in found["points"]
    ]
    assert found["accuracy"] == found["best"]["mean_score"] == max(one["accuracy"] for one in alone.values())


def test_points__may_differ_in_rows_loss_bias_solver_and_weights(config, tmp_path):
    base = {"C": 2.0, "kernel.gamma": 0.05}
    changes = [{"data.rows": 200}, {"loss": "squared_hinge"}, {"bias": "penalised"}, {"solver.name": "smo-mvp"}, {}]
    listed = [base | change for change in changes] + [base | {"class_weight": "balanced"}]
    found = run(config | {"sweep": {"list": listed, "folds": 2, "refit": False}}, store=tmp_path)
    assert len(found["points"]) == 6
    assert found["status"] == "converged"
    scores = {json.dumps(p["params"], sort_keys=True): p["mean_score"] for p in found["points"]}
    plain = scores[json.dumps(base, sort_keys=True)]
    assert scores[json.dumps(base | {"solver.name": "smo-mvp"}, sort_keys=True)] == pytest.approx(plain, abs=2 / N)
    assert scores[json.dumps(base | {"data.rows": 200}, sort_keys=True)] < plain


# --- refused --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["sweep.folds=70"], "70 folds of classes with at most 6. training rows; lower sweep.folds"),
        (["class_weight={11: 2.0}"], "class_weight names 11"),
    ],
)
def test_refused__before_any_kernel(config, tmp_path, overrides, message):
    with pytest.raises(InputError, match=message):
        run(config, overrides, store=tmp_path / "runs")
    assert not list((tmp_path / "runs").rglob("gram"))


def test_refused__a_fold_with_every_row_of_a_class(tmp_path):
    lines = [f"{k},{k % 7},{'ab'[k % 2]},{'xyz'[k % 3] if k % 2 else 'x'}" for k in range(40)]
    (tmp_path / "rows.csv").write_text("\n".join(["u,v,part,kind", *lines]) + "\n")
    given = {"data": {"source": str(tmp_path / "rows.csv")}, "sweep": {"grid": {"C": [1]}, "folds": {"column": "part"}}}
    with pytest.raises(InputError, match="fold 'b' holds out every row of class 'y'"):
        run(given | {"cluster": {"kind": "inline"}}, store=tmp_path / "runs")
