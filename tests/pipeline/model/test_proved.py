"""Labels that the exact optimum provably gives too."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification

from pipeline import load_model, run
from pipeline.model.verify import verify
from svmcore.estimator import SVC


def trained(folder, kernel, tol, n_classes=3, **given):
    X, y = make_classification(500, 5, n_informative=4, n_redundant=0, n_classes=n_classes, flip_y=0.1, random_state=0)
    np.savez(folder / "train.npz", X=X[:300], y=y[:300])
    np.savez(folder / "test.npz", X=X[300:], y=y[300:])
    data = {"source": str(folder / "train.npz"), "test": str(folder / "test.npz")}
    solver = {"name": "smo", "tol": tol}
    config = {"data": data, "kernel": kernel, "solver": solver, "cluster": {"kind": "inline"}, "store": str(folder)}
    return run(config | given), X, y


@pytest.mark.parametrize("multiclass", ["ovr", "ovo"])
@pytest.mark.parametrize("kernel", [{"name": "rbf", "gamma": 0.2}, {"name": "linear"}], ids=["rbf", "linear"])
def test_proved_labels__are_those_of_a_much_finer_solution(kernel, multiclass, tmp_path):
    record, X, _ = trained(tmp_path, kernel, 1e-2, multiclass=multiclass)
    (tmp_path / "fine").mkdir()
    finer, _, _ = trained(tmp_path / "fine", kernel, 1e-8, multiclass=multiclass)
    rough, fine = (load_model(each["model"]).predict(X[300:]) for each in (record, finer))
    assert 0 < record["proved_labels"] <= (rough == fine).sum()
    assert record["proved_labels"] < finer["proved_labels"] == 200


def test_proved_labels__are_as_many_as_the_estimator_proves(tmp_path):
    record, X, y = trained(tmp_path, {"name": "rbf", "gamma": 0.2}, 1e-3, n_classes=2)
    # with a bound of its steps it takes the way of a run; small problems else are solved to a tenth of tol
    model = SVC(gamma=0.2, tol=1e-3, solver="smo", max_iter=10**6).fit(X[:300], y[:300])
    values, bound = model.decision_function(X[300:], return_bound=True)
    assert record["proved_labels"] == pytest.approx((np.abs(values) > bound).sum(), abs=3)
    assert "labels proved" in (Path(record["run"]) / "report.html").read_text()


@pytest.mark.parametrize("sweep", [None, {"grid": {"C": [1, 2]}}], ids=["run", "sweep"])
def test_prove__solves_on_until_the_share_is_proved(sweep, tmp_path):
    rough, _, _ = trained(tmp_path, {"name": "rbf", "gamma": 0.2}, 1e-2)
    assert rough["proved_labels"] < 150
    given = {"prove": 0.95} | ({"sweep": sweep} if sweep else {})
    record, _, _ = trained(tmp_path, {"name": "rbf", "gamma": 0.2}, 1e-2, **given)
    assert 190 <= record["proved_labels"] <= 200
    assert record["status"] == "converged"
    assert verify(record["model"])["agrees"]
    if not sweep:
        assert record["config"]["solver"]["tol"] < 1e-2
        assert record["problems"]["total"] > rough["problems"]["total"]


def test_proved_labels__are_unknown_without_a_gap(tmp_path):
    record, _, _ = trained(tmp_path, {"name": "tanh", "gamma": 0.1, "coef0": 0.0}, 1e-3, n_classes=2)
    assert record["proved_labels"] is None
