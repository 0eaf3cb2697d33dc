"""Where a run comes from, in its metrics, its model and its card."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import load_model, run
from pipeline.report.card import model_card
from pipeline.rows.schema import Schema
from pipeline.running.provenance import circumstances


def test_metrics__say_program_libraries_seed_host_and_what_was_read(rows_run, rows_csv):
    found = rows_run["provenance"]
    assert found["sources"] == {"source": hashlib.sha256(rows_csv.read_bytes()).hexdigest()}
    assert found["seed"] == 0
    assert {"numpy", "scipy", "numba", "zarr"} <= set(found["libraries"])
    assert found["at"].startswith("20")
    assert found["host"]


def test_model__says_what_is_the_same_in_every_run_and_nothing_else(rows_run):
    kept = load_model(rows_run["model"]).metadata["provenance"]
    assert {"at", "host", "platform", "products", "git"}.isdisjoint(kept)
    assert kept == {key: rows_run["provenance"][key] for key in kept}
    assert kept["sources"] == rows_run["provenance"]["sources"]


def test_test_rows__are_told_from_others(rows_run, rows_config, tmp_path):
    def rows_of(**data):
        config = rows_config | {"data": rows_config["data"] | data}
        return run(config, store=str(tmp_path / "runs"))["provenance"]["test_rows"]

    same = rows_run["provenance"]["test_rows"]
    assert rows_of(scale="none") == same
    assert rows_of(test=0.3) != same
    copy = tmp_path / "copy.csv"
    copy.write_bytes(Path(rows_config["data"]["source"]).read_bytes())
    assert rows_of(test=str(copy)) not in (same, None)
    assert rows_of(test=None) is None


def test_git__is_told_with_its_dirtiness(tmp_path, monkeypatch):
    def git(*argv):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *argv], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert circumstances()["git"] is None
    git("init")
    (tmp_path / "rows.yaml").write_text("a")
    git("add", ".")
    git("commit", "-m", "first")
    clean = circumstances()["git"]
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    (tmp_path / "rows.yaml").write_text("b")
    assert circumstances()["git"] == clean | {"dirty": True}


def test_git__nothing_that_a_repository_names_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init"], check=True, capture_output=True)
    (tmp_path / "evil.sh").write_text("#!/bin/sh\ntouch ran\n")
    (tmp_path / "evil.sh").chmod(0o755)
    with (tmp_path / ".git" / "config").open("a") as file:
        file.write(f"[core]\n\tfsmonitor = {tmp_path}/evil.sh\n")
    circumstances()
    assert not (tmp_path / "ran").exists()


def test_card__lies_beside_the_model_and_says_what_it_is(rows_run):
    text = (Path(rows_run["run"]) / "MODEL_CARD.md").read_text()
    assert "# Model card: rows" in text
    assert "Its classes: ant, bee, cat." in text
    assert f"| accuracy | {rows_run['accuracy']:.4f} | {rows_run['train_accuracy']:.4f} |" in text
    assert "| width | number | " in text
    assert rows_run["provenance"]["sources"]["source"] in text
    assert f'load_model("{rows_run["model"]}")' in text


def test_card__names_are_no_markup(rows_run):
    schema = Schema(2, names=("a|b\n# c", "<img>"))
    text = model_card(rows_run | {"classes": ["*x*", "[y](z)"]}, schema)
    assert r"a\|b # c" in text
    assert r"\<img\>" in text
    assert r"\*x\*, \[y\](z)" in text


def test_card__of_a_failed_gate_says_so(rows_run):
    failed = {"passed": False, "against": None, "failed": [{"rule": "min.accuracy", "found": 0.9, "needed": 0.95}]}
    text = model_card(rows_run | {"gate": failed}, Schema(2))
    assert "**The gate of its config said no:**" in text
    assert "- min.accuracy: found 0.9, needed 0.95" in text
    assert "2 numbers, in the order of the training data." in text


def test_run__of_a_hard_margin_is_written_as_json(tmp_path):
    config = {"data": {"source": "sklearn:iris"}, "C": float("inf"), "kernel": {"name": "rbf", "gamma": 10.0}}
    record = run(config | {"cluster": {"kind": "inline"}}, store=str(tmp_path))
    assert json.loads((Path(record["run"]) / "metrics.json").read_text())["config"]["C"] == ".inf"


@pytest.mark.parametrize("key", ["config", "provenance", "gate"])
def test_metrics__have_the_keys(rows_run, key):
    assert key in rows_run


@pytest.mark.skipif((platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="other BLAS, other names")
def test_products__name_the_kernels_that_are_used():
    """A process without wide instructions, and what it says of itself."""
    script = "from pipeline.running.provenance import products; print(products())"
    env = os.environ | {"OPENBLAS_CORETYPE": "Nehalem", "NUMBA_CPU_NAME": "generic"}
    told = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout
    assert told.strip() == "openblas Nehalem, bytes as floats"
