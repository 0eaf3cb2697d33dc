import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline import run
from pipeline.artifacts import _write_manifest
from pipeline.verify import verify
from svmcore.errors import InputError


@pytest.fixture
def copied(rows_run, tmp_path):
    """A copy of the run that may be damaged."""
    return Path(shutil.copytree(rows_run["run"], tmp_path / "run"))


def differing(folder):
    report = verify(folder)
    assert report["agrees"] == (not report["differences"])
    return [difference["part"] for difference in report["differences"]]


@pytest.mark.parametrize("what", ["run", "model"])
def test_verify__agrees_and_recomputes_every_certificate(rows_run, what):
    report = verify(rows_run[what])
    assert report["agrees"]
    assert report["differences"] == []
    assert report["accuracy"] == rows_run["accuracy"]
    for ours, stored in zip(report["per_class"], rows_run["per_class"], strict=True):
        assert ours["dual"] == pytest.approx(stored["dual"], rel=1e-5)
        assert ours["dual"] != stored["dual"]  # float64 columns: it was computed again
        assert ours["kkt_gap"] <= 1.05e-4


def test_verify__one_flipped_byte_names_the_part(copied):
    part = copied / "model.zarr" / "coef" / "c" / "0" / "0"
    whole = bytearray(part.read_bytes())
    whole[5] ^= 4
    part.write_bytes(whole)
    assert differing(copied) == ["coef/c/0/0"]


def rewritten(folder, change):
    """Change the model's arrays or attributes and make the manifest fit again: only the recomputation can tell."""
    import zarr

    group = zarr.open_group(str(folder / "model.zarr"), mode="r+")
    change(group)
    (folder / "model.zarr" / "manifest.json").unlink()
    _write_manifest(folder / "model.zarr")
    return folder


def halve_one(group):
    coef = group["coef"][...]
    coef[0, np.abs(coef[0]).argmax()] /= 2
    group["coef"][...] = coef


def shift_bias(group):
    group["bias"][...] = group["bias"][...] + [0.0, 0.1, 0.0]


def boast(group):
    entries = group.attrs["per_class"]
    entries[2]["dual"] *= 1.001
    group.attrs["per_class"] = entries


def better(group):
    group.attrs["accuracy"] = 1.0
    group.attrs["train_accuracy"] = 0.5


def other_rows(group):
    group["support_vectors"][...] = group["support_vectors"][...] * 1.001


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (halve_one, ["dual of class ant", "primal of class ant", "kkt_gap of class ant"]),
        (shift_bias, ["bias of class bee"]),
        (boast, ["dual of class cat"]),
        (better, ["train_accuracy"]),
        (other_rows, ["support_vectors"]),
    ],
)
def test_verify__a_forged_claim_with_fitting_hashes_is_found(copied, change, parts):
    assert set(parts) <= set(differing(rewritten(copied, change)))


def test_verify__other_data_at_the_source_is_found(rows_config, tmp_path):
    text = Path(rows_config["data"]["source"]).read_text().splitlines()
    (tmp_path / "rows.csv").write_text("\n".join(text))
    config = rows_config | {"data": rows_config["data"] | {"source": str(tmp_path / "rows.csv")}}
    found = run(config, store=tmp_path / "runs")
    text[5] = text[7]
    (tmp_path / "rows.csv").write_text("\n".join(text))
    assert differing(found["run"]) == ["data"]
    (tmp_path / "rows.csv").unlink()
    with pytest.raises(InputError, match=r"rows\.csv"):
        verify(found["run"])


def test_verify__sparse_squared_hinge_with_folds_of_copies(tmp_path):
    rng = np.random.default_rng(5)
    X = (rng.random((120, 8)) < 0.3).astype(int)
    y = np.where(X[:, 0] + X[:, 1] > 0, 1, -1)
    lines = [f"{label} " + " ".join(f"{j + 1}:1" for j in np.flatnonzero(x)) for x, label in zip(X, y, strict=True)]
    (tmp_path / "rows.libsvm").write_text("\n".join(lines) + "\n")
    config = {"data": {"source": str(tmp_path / "rows.libsvm")}, "loss": "squared_hinge", "cluster": {"kind": "inline"}}
    found = run(config, ["bias=penalised", "class_weight=balanced", "kernel.name=polynomial"], store=tmp_path / "runs")
    assert found["plan"]["n_merged"] < found["n_train"]
    report = verify(found["run"])
    assert report["agrees"], json.dumps(report["differences"])
