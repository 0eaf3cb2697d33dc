"""`probability: true`: stored, printed, scored, verified, in ONNX and in the report."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from pipeline import load_model, run
from pipeline.model.predict import predict_to_file
from pipeline.model.stored import save_model
from pipeline.model.verify import verify
from svmcore.errors import InputError
from svmcore.export import to_onnx
from svmcore.model import left_out


def config(folder, **given):
    data = {"source": "sklearn:digits", "rows": 900, "test": 0.3}
    return {
        "data": data,
        "kernel": {"name": "rbf", "gamma": 0.001},
        "C": 10,
        "probability": True,
        "scoring": ["accuracy", "neg_log_loss"],
        "cluster": {"kind": "inline"},
        "store": str(folder),
    } | given


@pytest.fixture(scope="module", params=["ovr", "ovo"])
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probability")
    return run(config(folder, multiclass=request.param)), folder


def test_run__scores_probabilities_as_well_as_scikit_learns(trained):
    record, _ = trained
    X, y = load_digits(return_X_y=True)
    peer = CalibratedClassifierCV(SVC(C=10, gamma=0.001), ensemble=False)
    theirs = cross_val_score(peer, X[:900], y[:900], scoring="neg_log_loss", cv=3).mean()
    assert record["scores"]["test"]["neg_log_loss"] >= 1.5 * theirs  # of other test rows


def test_model__gives_the_probabilities_that_were_scored(trained):
    record, _ = trained
    stored = load_model(record["model"])
    X, y = load_digits(return_X_y=True)
    p = stored.predict_proba(X)
    assert p.shape == (len(X), 10)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    assert log_loss(y, p) < 0.2
    assert (np.asarray(stored.classes)[p.argmax(axis=1)] == stored.predict(X)).mean() > 0.99


def test_predict__prints_a_column_for_each_class(trained, tmp_path):
    record, _ = trained
    rows = np.zeros((3, 65))
    rows[:, :64] = load_digits().data[:3]
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",")
    predict_to_file(record["model"], str(tmp_path / "rows.csv"), tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        printed = list(csv.DictReader(file))
    expected = load_model(record["model"]).predict_proba(load_digits().data[:3])
    found = [[float(row[f"probability_{k}"]) for k in range(10)] for row in printed]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    collected = predict_to_file(record["model"], str(tmp_path / "rows.csv"))
    np.testing.assert_allclose(collected["probability"], expected, atol=1e-12)


def test_verify__fits_the_sigmoids_again(trained, tmp_path):
    record, _ = trained
    assert verify(record["model"])["agrees"]
    stored = load_model(record["model"])
    stored.model.sigmoids[3, 1] += 0.02  # half a percent of probability where it is steepest
    folder = tmp_path / "model.zarr"
    parts = stored.scaling, stored.support, stored.metadata, stored.schema, stored.summary
    save_model(folder, stored.model, *parts)
    found = verify(folder, trust=True)
    assert not found["agrees"]
    assert any(difference["part"].startswith("sigmoid of") for difference in found["differences"])


def test_verify__fits_the_sigmoids_of_folds_again(tmp_path, monkeypatch):
    """Folds are solved roughly, on columns here and on K in the run; 0.04 of probability is noticed."""
    monkeypatch.setattr(left_out, "MOST_FREE", 20)
    data = {"source": "sklearn:digits", "rows": 1400, "test": 0.1}
    trained = run(config(tmp_path, data=data, scoring="accuracy"))["model"]
    assert verify(trained)["agrees"]
    stored = load_model(trained)
    stored.model.sigmoids[3, 1] += 0.16
    parts = stored.scaling, stored.support, stored.metadata, stored.schema, stored.summary
    save_model(tmp_path / "model.zarr", stored.model, *parts)
    assert not verify(tmp_path / "model.zarr", trust=True)["agrees"]


@pytest.mark.parametrize("trained", ["ovr"], indirect=True)
def test_onnx__has_the_probabilities(trained):
    """Of one class against the rest: pairs are coupled by a system of equations, which ONNX has no operator for."""
    record, _ = trained
    runtime = pytest.importorskip("onnxruntime")
    stored, X = load_model(record["model"]), load_digits().data[:50]
    session = runtime.InferenceSession(to_onnx(stored.model), providers=["CPUExecutionProvider"])
    found = session.run(["probability"], {"X": X})[0]
    np.testing.assert_allclose(found, stored.predict_proba(X), atol=1e-6)


def test_report__has_a_reliability_diagram(trained):
    record, _ = trained
    folder = Path(record["run"])
    assert ">Calibration<" in (folder / "report.html").read_text()
    shown = json.loads((folder / "evaluation.json").read_text())["calibration"]
    for found in shown:  # each class over all test rows
        assert sum(part["rows"] for part in found["bins"]) == record["n_test"]
        said = sum(part["rows"] * part["said"] for part in found["bins"]) / record["n_test"]
        seen = sum(part["rows"] * part["seen"] for part in found["bins"]) / record["n_test"]
        assert abs(said - seen) < 0.1


def test_sweep__ranks_points_by_log_loss(tmp_path):
    sweep = {"grid": {"C": [0.01, 10]}, "folds": 3, "refit": "neg_log_loss"}
    record = run(config(tmp_path, sweep=sweep, scoring="neg_log_loss", data={"source": "sklearn:iris"}))
    losses = [-point["mean_score"] for point in record["points"]]
    assert 0.0 < losses[0] < losses[1] < 1.2
    assert load_model(record["model"]).model.sigmoids.shape == (3, 2)


def test_config__says_what_a_log_loss_needs_and_which_tasks_have_probabilities(tmp_path):
    with pytest.raises(InputError, match="probability: true"):
        run(config(tmp_path, probability=False))
    with pytest.raises(InputError, match="probability is no key of task svr"):
        run(config(tmp_path, task="svr", scoring="r2"))
    plain = run(config(tmp_path, probability=False, scoring="accuracy", data={"source": "sklearn:iris"}))
    with pytest.raises(InputError, match="train it with probability: true"):
        load_model(plain["model"]).predict_proba(np.zeros((1, 4)))
