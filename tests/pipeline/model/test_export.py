"""The pipeline's artefacts leave as LIBSVM text and ONNX, and become estimators and back."""

import numpy as np
import pytest

from pipeline.model.stored import load_model, save_model
from pipeline.rows.scaling import Scaling
from svmcore.estimator import SVC

ROWS = np.random.default_rng(0).normal(scale=2.0, size=(200, 2))


def test_export__writes_onnx_with_its_scaling_and_labels(rows_run, tmp_path, capsys):
    from flows.cli import main

    onnxruntime = pytest.importorskip("onnxruntime")
    assert main(["export", rows_run["model"], str(tmp_path / "model.onnx")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'model.onnx'}\n"
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert session.run(["label"], {"X": ROWS})[0].tolist() == load_model(rows_run["model"]).predict(ROWS).tolist()


def test_export__says_what_a_format_cannot_hold(rows_run, tmp_path, capsys):
    from flows.cli import main

    assert main(["export", rows_run["model"], str(tmp_path / "model.libsvm")]) == 2
    assert "labels are integers" in capsys.readouterr().err


def test_artefact__becomes_an_estimator(rows_run):
    stored = load_model(rows_run["model"])
    estimator = SVC.from_model(stored.model)
    assert estimator.predict(stored.scaling.apply(ROWS)).tolist() == stored.predict(ROWS).tolist()


def test_estimator__becomes_an_artefact(tmp_path):
    y = (ROWS[:, 0] > 0).astype(int) + (ROWS[:, 1] > 0)
    for scheme in ("ovo", "ovr"):
        estimator = SVC(multi_class=scheme).fit(ROWS, y)
        none = Scaling("none", np.zeros(2), np.ones(2))
        support = np.arange(len(estimator.model_.support_vectors))
        save_model(tmp_path / scheme, estimator.model_, none, support, {"config": {}, "per_class": []})
        assert load_model(tmp_path / scheme).predict(ROWS).tolist() == estimator.predict(ROWS).tolist()
