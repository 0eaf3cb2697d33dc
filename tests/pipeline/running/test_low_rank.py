"""A run with an approximation, from its config to a verified model: landmarks, both certificates, all who read it."""

import json
from pathlib import Path

import numpy as np
import pytest
import zarr
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import rbf_kernel

from pipeline import load_model, run
from pipeline.config.load import load_experiment
from pipeline.kernel.factor import open_factor
from pipeline.model.parts import write_model_manifest
from pipeline.model.verify import verify
from pipeline.running.plan import plan_of
from svmcore.errors import UnknownPlugin, Unsupported
from svmcore.export import export_model

GAMMA = 0.1
CONFIG = {
    "name": "low",
    "data": {"source": "sklearn:digits", "test": 0.2, "scale": 16},
    "kernel": {"name": "rbf", "gamma": GAMMA},
    "C": 10,
    "approximation": {"name": "nystroem", "rank": 150},
    "cluster": {"kind": "inline"},
}


@pytest.fixture(scope="module", params=["kmeans", "rpcholesky"])
def trained(request, tmp_path_factory):
    store = str(tmp_path_factory.mktemp("store"))
    config = CONFIG | {"approximation": CONFIG["approximation"] | {"landmarks": request.param}}
    return config, store, run(config, store=store)


def test_run__is_certified_and_about_as_right_as_the_exact_machine(trained):
    _, _, found = trained
    assert found["status"] == "converged"
    assert found["accuracy"] > 0.97
    assert found["plan"]["plan"] == "factor"
    assert found["exact_gap"] == max(entry["exact"]["relative_gap"] for entry in found["per_class"])


def test_model__goes_through_landmarks_whose_expansion_has_the_stored_primal(trained):
    _, _, found = trained
    model = load_model(found["model"]).model
    X, y = load_digits(return_X_y=True)
    assert len(model.support_vectors) <= 150
    decision = rbf_kernel(X / 16.0, model.support_vectors, gamma=GAMMA) @ model.coef.T + model.bias
    np.testing.assert_allclose(model.decision_function(X / 16.0), decision, atol=1e-8)
    assert np.mean(decision.argmax(axis=1) == y) > 0.97
    K = rbf_kernel(model.support_vectors, gamma=GAMMA)
    for entry, coef in zip(found["per_class"], model.coef, strict=True):
        assert 0.5 * coef @ K @ coef + 10 * entry["slack"] == pytest.approx(
            entry["primal"], rel=1e-4
        )  # at its best bias
        assert entry["exact"]["dual"] <= entry["dual"] <= entry["primal"] <= entry["exact"]["primal"]


def test_verify__agrees_and_finds_a_changed_claim(trained, tmp_path):
    _, _, found = trained
    report = verify(found["model"])
    assert report["agrees"], report["differences"]
    group = zarr.open_group(found["model"], mode="r+")
    kept = group.attrs["per_class"]
    try:
        wrong = json.loads(json.dumps(kept))
        wrong[3]["exact"]["dual"] *= 1.001
        group.attrs["per_class"] = wrong
        write_model_manifest(Path(found["model"]))
        assert [each["part"] for each in verify(found["model"], trust=True)["differences"]] == ["exact dual of class 3"]
    finally:
        group.attrs["per_class"] = kept
        write_model_manifest(Path(found["model"]))


def test_run__again_reuses_the_factor_and_every_answer(trained):
    config, store, found = trained
    again = run(config, store=store)
    assert again["problems"] == {"total": 10, "reused": 10}
    assert [entry["dual"] for entry in again["per_class"]] == [entry["dual"] for entry in found["per_class"]]


def test_onnx__says_what_the_model_says(trained, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="an optional package of the tests")
    _, _, found = trained
    stored, X = load_model(found["model"]), load_digits().data[:50]
    export_model(stored.model, tmp_path / "model.onnx", stored.scaling.shift, stored.scaling.factor)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    labels = session.run(None, {"X": X.astype(np.float64)})[0]
    np.testing.assert_array_equal(labels, stored.predict(X))


def test_factor__is_the_same_on_workers_and_damaged_blocks_are_made_again(tmp_path):
    config = CONFIG | {"data": {"source": "sklearn:digits", "scale": 16, "rows": 600}}
    alone = run(config, store=str(tmp_path / "a"))
    two = run(config | {"cluster": {"kind": "local", "workers": 2}}, store=str(tmp_path / "b"))
    folders = [next((tmp_path / name / ".cache" / "gram").iterdir()) for name in "ab"]
    np.testing.assert_array_equal(*map(open_factor, folders))
    assert [e["dual"] for e in alone["per_class"]] == [e["dual"] for e in two["per_class"]]
    values, before = folders[0] / "c" / "0" / "0", np.array(open_factor(folders[0]))
    values.write_bytes(b"\x01" + values.read_bytes()[1:])
    run(config | {"C": 1.0}, store=str(tmp_path / "a"))
    np.testing.assert_array_equal(open_factor(folders[0]), before)


def test_sweep__points_of_a_rank_share_a_factor(tmp_path):
    sweep = {"grid": {"C": [1.0, 10.0], "approximation.rank": [20, 100]}, "folds": 3}
    config = CONFIG | {"data": CONFIG["data"] | {"rows": 500}, "sweep": sweep}
    found = run(config, store=str(tmp_path))
    assert found["plan"]["kernels"] == 2
    assert found["best"]["params"]["approximation.rank"] == 100
    assert verify(found["model"])["agrees"]


@pytest.mark.parametrize("task", [{"task": "svr"}, {"task": "nu-svc", "nu": 0.1}, {"task": "one-class", "nu": 0.1}])
def test_every_machine__has_a_factor(task, tmp_path):
    config = {key: value for key, value in CONFIG.items() if key != "C" or task["task"] == "svr"} | task
    label = {"label": None} if task["task"] == "one-class" else {}
    data = {"source": "sklearn:breast_cancer", "scale": "standard", **label}
    found = run(config | {"data": data, "approximation": {"name": "nystroem", "rank": 60}}, store=str(tmp_path))
    assert found["status"] == "converged"
    assert verify(found["model"])["agrees"]


def test_plan__foretells_the_factor(tmp_path):
    found = plan_of(load_experiment(CONFIG, [f"store={tmp_path}"]))
    assert found["plan"] == "factor"
    assert found["kernel_bytes"] == found["n_merged"] * 150 * 4
    assert found["kernel_evaluations"] == found["n_merged"] * 150


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        ({"approximation": {"name": "nystrom"}}, UnknownPlugin, "did you mean 'nystroem'"),
        ({"kernel": {"name": "tanh"}}, Unsupported, "positive semi-definite kernel of rows, not kernel=tanh"),
    ],
)
def test_config__refuses_what_cannot_be(keys, error, message):
    with pytest.raises(error, match=message):
        load_experiment(CONFIG | keys)


def test_config__without_an_approximation_has_the_fingerprint_that_it_had():
    plain = {key: value for key, value in CONFIG.items() if key != "approximation"}
    assert "approximation" not in load_experiment(plain).to_dict()
    assert load_experiment(plain).fingerprint() != load_experiment(CONFIG).fingerprint()


def test_polish__gives_the_exact_machine_from_the_answers_on_the_factor(tmp_path, monkeypatch):
    """A better start needs fewer pairs on working sets, and the proof is that of the exact machine."""
    monkeypatch.setattr("svmcore.solvers.row_steps.MOST", 0)  # from nothing, fewer do where each looks at all rows
    plain = {key: value for key, value in CONFIG.items() if key != "approximation"} | {"solver": {"name": "smo"}}
    exact = run(plain, store=str(tmp_path / "exact"))
    polish = CONFIG | {"approximation": CONFIG["approximation"] | {"polish": True}}
    found = run(polish, store=str(tmp_path / "polished"))
    assert found["status"] == "converged"
    for entry, other in zip(found["per_class"], exact["per_class"], strict=True):
        assert entry["kkt_gap"] <= 1e-3
        assert entry["dual"] == pytest.approx(other["dual"], rel=1e-4)
        assert entry["dual"] <= other["primal"]
    assert sum(e["n_iter"] for e in found["per_class"]) < sum(e["n_iter"] for e in exact["per_class"])
    assert verify(found["model"])["agrees"]
    assert run(polish, store=str(tmp_path / "polished"))["problems"] == {"total": 20, "reused": 20}
