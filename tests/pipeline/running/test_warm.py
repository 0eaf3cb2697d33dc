"""`warm` compiles what runs need: nothing is left to compile for the first one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config.load import load_experiment
from pipeline.running.warm import RUNS


def entries(folder):
    return {path.name for path in folder.rglob("*.nb[ic]")}


def marginflow(folder, *argv):
    """Run a command with compiled code of its own."""
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder / "compiled")}
    command = [sys.executable, "-m", "flows.cli", *map(str, argv)]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("name", RUNS)
def test_runs__are_configs(name):
    assert load_experiment(RUNS[name])


@pytest.mark.full  # compiles everything: half a minute on a free core
def test_warm__leaves_next_to_nothing_to_compile(tmp_path):
    told = marginflow(tmp_path, "warm").stderr
    assert all(name in told for name in RUNS)
    before = entries(tmp_path)
    digits = Path(__file__).parents[3] / "config" / "digits.yaml"
    marginflow(tmp_path, "run", digits, "--no-prefect", "--store", tmp_path / "store")
    assert len(before) > 80
    assert len(entries(tmp_path) - before) <= 4
