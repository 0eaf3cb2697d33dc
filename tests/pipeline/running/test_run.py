import json
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_iris
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from sklearn.svm import SVC

from pipeline import load_model, run
from pipeline.answers.live import Line
from pipeline.kinds.evaluation import calibration, curve
from svmcore.errors import InputError, SVMError

CONTRACT = {
    "run",
    "model",
    "status",
    "n_train",
    "n_test",
    "n_features",
    "classes",
    "accuracy",
    "train_accuracy",
    "n_support",
    "relative_gap",
    "kkt_gap",
    "seconds",
    "peak_memory_bytes",
    "per_class",
}
PER_CLASS = {"label", "n_support", "n_bounded", "n_iter", "status", "primal", "dual", "relative_gap", "kkt_gap", "bias"}
IRIS = {"data": {"source": "sklearn:iris"}, "cluster": {"kind": "inline"}}


def listed(store):
    """Files below a store that are not in its cache."""
    return sorted(str(p.relative_to(store)) for p in Path(store).rglob("*") if p.is_file() and ".cache" not in p.parts)


def test_run__metrics_have_the_keys_of_the_contract(rows_run):
    assert set(rows_run) >= CONTRACT
    assert all(set(entry) >= PER_CLASS for entry in rows_run["per_class"])
    assert set(rows_run["seconds"]) == {"start", "ingest", "kernel", "solve", "score", "total"}
    stages = sum(seconds for stage, seconds in rows_run["seconds"].items() if stage != "total")
    assert 0 < stages <= rows_run["seconds"]["total"]
    assert rows_run["peak_memory_bytes"] > 50e6
    assert json.loads((Path(rows_run["run"]) / "metrics.json").read_text()) == rows_run


def test_run__every_class_is_certified(rows_run):
    assert [entry["label"] for entry in rows_run["per_class"]] == ["ant", "bee", "cat"]
    for entry in rows_run["per_class"]:
        assert entry["status"] == "converged"
        assert entry["kkt_gap"] <= 1.05e-4
        assert entry["dual"] <= entry["primal"]
        assert entry["margin"] == pytest.approx(1 / np.sqrt(_norm2(rows_run, entry)), rel=1e-4)
    assert rows_run["kkt_gap"] == max(entry["kkt_gap"] for entry in rows_run["per_class"])


def _norm2(metrics, entry):
    """||w||^2 from the stored coefficients, kernel values written out."""
    model = load_model(metrics["model"]).model
    coef = model.coef[metrics["classes"].index(entry["label"])]
    V = model.support_vectors
    K = np.exp(-model.kernel.gamma * ((V[:, None] - V) ** 2).sum(axis=2))
    return coef @ K @ coef


def test_run__folder_holds_what_the_contract_says(rows_run, rows_config):
    folder = Path(rows_run["run"])
    assert {"config.yaml", "metrics.json", "evaluation.json", "report.html", "model.zarr"} <= set(os.listdir(folder))
    assert folder.parent.name == rows_config["name"]
    again = run(folder / "config.yaml", store=folder.parent.parent)
    assert (again["problems"], again["accuracy"]) == ({"total": 3, "reused": 3}, rows_run["accuracy"])
    assert again["run"] != rows_run["run"]


def test_run__the_stored_model_scores_what_the_metrics_say(rows_run, rows_csv):
    rows = [line.split(",") for line in rows_csv.read_text().splitlines()[1:]]
    X, y = np.array([row[:2] for row in rows], float), np.array([row[2] for row in rows])
    assert (rows_run["n_train"], rows_run["n_test"]) == (72, 18)
    right = rows_run["train_accuracy"] * 72 + rows_run["accuracy"] * 18
    assert (load_model(rows_run["model"]).predict(X) == y).sum() == pytest.approx(right)


def test_run__evaluation_is_what_the_report_needs(rows_run):
    found = json.loads((Path(rows_run["run"]) / "evaluation.json").read_text())
    confusion = np.array(found["confusion"])
    assert (found["classes"], found["evaluated_on"]) == (["ant", "bee", "cat"], "test")
    assert confusion.sum() == rows_run["n_test"]
    assert np.trace(confusion) / confusion.sum() == rows_run["accuracy"]
    assert [one["label"] for one in found["history"]] == found["classes"]
    assert [one["label"] for one in found["curves"]] == found["classes"]
    assert len(found["errors"]) == confusion.sum() - np.trace(confusion)
    assert all(one["points"][-1][2] <= 1.05 * found["tol"] for one in found["history"])
    plane = found["plane"]
    raw = np.array(plane["points"])
    assert raw.max() > 3.0  # raw units, not standardised
    assert np.shape(plane["labels"]) == (len(plane["grid_y"]), len(plane["grid_x"]))
    stored = load_model(rows_run["model"])
    corner = np.array([[plane["grid_x"][0], plane["grid_y"][0]]])
    assert stored.predict(corner)[0] == found["classes"][plane["labels"][0][0]]


def test_run__two_classes_have_one_entry_and_a_roc(tmp_path):
    X, y = load_iris(return_X_y=True)
    np.savez(tmp_path / "two.npz", X=X[50:], y=np.where(y[50:] == 1, "versi", "virgi"))
    config = IRIS | {"data": {"source": str(tmp_path / "two.npz"), "test": 0.4}}
    found = run(config, ["kernel.name=linear", "solver.tol=1e-5"], store=tmp_path / "runs")
    (entry,) = found["per_class"]
    assert entry["label"] == "virgi"
    stored = load_model(found["model"])
    model = stored.model
    assert entry["weights"] == pytest.approx((model.coef @ model.support_vectors)[0])
    evaluation = json.loads((Path(found["run"]) / "evaluation.json").read_text())
    (found_curve,) = evaluation["curves"]
    assert 0.9 < found_curve["auc"] <= 1.0
    assert (found_curve["label"], found_curve["positives"] + found_curve["negatives"]) == ("virgi", found["n_test"])
    at_0 = sum(value is not None and value >= 0 for value in found_curve["threshold"])
    assert found_curve["tpr"][at_0] * found_curve["positives"] == pytest.approx(evaluation["confusion"][1][1])
    assert found_curve["fpr"][at_0] * found_curve["negatives"] == pytest.approx(evaluation["confusion"][0][1])
    assert stored.decision_function(X[:3]) == pytest.approx(
        (X[:3] @ np.array(entry["weights"]) + entry["bias"])[:, None], abs=1e-6
    )


def test_run__one_vs_one_agrees_with_libsvm(tmp_path):
    X, y = load_iris(return_X_y=True)
    found = run(IRIS, ["multiclass=ovo", "C=3", "kernel.gamma=0.5", "solver.tol=1e-6"], store=tmp_path)
    assert [entry["label"] for entry in found["per_class"]] == [[0, 1], [0, 2], [1, 2]]
    peer = SVC(C=3, gamma=0.5, tol=1e-8, decision_function_shape="ovo").fit(X, y)
    stored = load_model(found["model"])
    assert stored.decision_function(X) == pytest.approx(-peer.decision_function(X), abs=1e-3)
    assert np.array_equal(stored.predict(X), peer.predict(X))
    assert found["accuracy"] is None
    assert found["train_accuracy"] == pytest.approx(peer.score(X, y))


def test_run__columns_on_demand_give_the_objective_of_a_resident_kernel(tmp_path):
    resident = run(IRIS, store=tmp_path)
    columns = run(IRIS, ["cache.limit=10KiB"], store=tmp_path)
    assert (resident["plan"]["kernel"], columns["plan"]["kernel"]) == ("resident", "columns")
    assert columns["blocks"]["total"] == 0
    for ours, theirs in zip(columns["per_class"], resident["per_class"], strict=True):
        assert ours["status"] == "converged"
        assert ours["dual"] == pytest.approx(theirs["dual"], rel=1e-3)


def test_run__inline_and_worker_processes_give_the_same_model_bytes(rows_config, rows_run, tmp_path):
    local = run(rows_config, ["cluster.kind=local", "cluster.workers=2"], store=tmp_path)
    manifests = [(Path(found["model"]) / "manifest.json").read_bytes() for found in (local, rows_run)]
    assert manifests[0] == manifests[1]
    assert local["blocks"] == {"total": local["blocks"]["total"], "reused": 0}


def test_run__a_time_limit_is_no_error(tmp_path):
    found = run(IRIS, ["C=1e8", "kernel.gamma=1e-3", "solver.time_limit=1e-9"], store=tmp_path)
    assert found["status"] == "time_limit"
    assert load_model(found["model"]).classes == [0, 1, 2]


def test_run__class_weights_by_label(tmp_path):
    weighted = run(IRIS, ["class_weight={1: 50}", "C=0.1"], store=tmp_path)
    plain = run(IRIS, ["C=0.1"], store=tmp_path)
    confusions = [
        np.array(json.loads((Path(found["run"]) / "evaluation.json").read_text())["confusion"])
        for found in (weighted, plain)
    ]
    assert confusions[0][1, 1] >= confusions[1][1, 1]
    assert confusions[0][:, 1].sum() > confusions[1][:, 1].sum()
    with pytest.raises(InputError, match=r"class_weight names 7.*labels: 0, 1, 2"):
        run(IRIS, ["class_weight={7: 2}"], store=tmp_path)


def test_run__an_error_on_the_way_leaves_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.running.publish.write_report", lambda folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(IRIS, store=tmp_path / "runs")
    assert listed(tmp_path / "runs") == []
    monkeypatch.undo()
    assert run(IRIS, store=tmp_path / "runs")["problems"] == {"total": 3, "reused": 3}


def test_run__refused_input_leaves_no_folder(tmp_path):
    (tmp_path / "one.csv").write_text("1,a\n2,a\n")
    with pytest.raises(SVMError, match="class"):
        run(IRIS | {"data": {"source": str(tmp_path / "one.csv")}}, store=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_curve__equals_scikit_learns_also_with_ties_and_weights():
    rng = np.random.default_rng(0)
    y, f, w = rng.random(500) < 0.3, rng.normal(size=500).round(1), rng.integers(1, 4, 500)
    found = curve(y, f + y, w)
    assert found["auc"] == pytest.approx(roc_auc_score(y, f + y, sample_weight=w))
    assert found["average_precision"] == pytest.approx(average_precision_score(y, f + y, sample_weight=w))
    fpr, tpr, thresholds = roc_curve(y, f + y, sample_weight=w, drop_intermediate=False)
    at = np.searchsorted(-thresholds, -np.array(found["threshold"][1:]))
    assert thresholds[at] == pytest.approx(found["threshold"][1:])
    assert (fpr[at], tpr[at]) == (pytest.approx(found["fpr"][1:]), pytest.approx(found["tpr"][1:]))
    assert 18 <= len(curve(y, rng.normal(size=500), w, most=20)["fpr"]) <= 23
    assert curve(np.ones(3, bool), np.zeros(3)) is None


def test_calibration__equals_scikit_learns():
    rng = np.random.default_rng(0)
    p = rng.random(1000)
    y = rng.random(1000) < p**2
    seen, said = calibration_curve(y, p, n_bins=10)
    found = calibration(y, p)
    assert [entry["said"] for entry in found] == pytest.approx(said)
    assert [entry["seen"] for entry in found] == pytest.approx(seen)
    assert sum(entry["rows"] for entry in found) == 1000


@pytest.mark.parametrize("test", [0.3, None])
def test_run__the_most_wrong_rows_have_their_ids(tmp_path, test):
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(70, 3)).round(3), [f"r\u00f6w-{k}" * (1 + k % 3) for k in range(70)]
    y = np.where(X[:, 0] + rng.normal(size=70) > 0, "up", "down")
    rows = [*zip(ids, *X.T, y, strict=True)] * 2
    text = "\n".join(["id,a,b,c,y", *(",".join(map(str, row)) for row in rows)])
    (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
    data = {"source": str(tmp_path / "rows.csv"), "id": "id"} | ({"test": test} if test else {})
    found = run({"data": data, "kernel": "linear", "C": 0.1, "cluster": {"kind": "inline"}}, store=tmp_path / "runs")
    errors = json.loads((Path(found["run"]) / "evaluation.json").read_text())["errors"]
    stored = load_model(found["model"])
    decision = stored.decision_function(X)[:, 0]
    assert len(errors) >= 5
    for error in errors:
        at = ids.index(error["id"])
        assert error["row"] % 70 == at
        assert (error["label"], error["said"]) == (y[at], stored.predict(X)[at]) != (y[at], y[at])
        assert error["by"] == pytest.approx(abs(decision[at]), rel=1e-4)
        assert error["copies"] == (1 if test else 2)
    assert [error["by"] for error in errors] == sorted([error["by"] for error in errors], reverse=True)


def test_run__problems_that_others_stopped_are_solved_again(tmp_path, monkeypatch):
    """As after `rm -r STORE/.cache/live`: what was stopped is in no model."""
    asked = []
    monkeypatch.setattr(Line, "stopped", lambda line: asked.append(line) or len(asked) < 3)
    found = run(IRIS, store=tmp_path)
    assert len(asked) >= 3
    assert found["status"] == "converged"
    assert {entry["status"] for entry in found["per_class"]} == {"converged"}


@pytest.mark.parametrize("changes", [[], ["cache.limit=10KiB"]], ids=["resident", "columns"])
def test_run__another_version_finds_no_answers_of_this_one(tmp_path, monkeypatch, changes):
    assert run(IRIS, changes, store=tmp_path)["problems"]["reused"] == 0
    assert run(IRIS, changes, store=tmp_path)["problems"]["reused"] == 3
    monkeypatch.setattr("pipeline.kernel.gram.VERSION", "99.0")
    assert run(IRIS, changes, store=tmp_path)["problems"]["reused"] == 0
