"""`warm` compiles what runs need: nothing is left to compile for the first one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config.load import load_experiment
from pipeline.running.warm import PARTS, RUNS


def entries(folder):
    return {path.name for path in folder.rglob("*.nb[ic]")}


def python(folder, *argv):
    """Run Python with compiled code of its own."""
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder / "compiled")}
    command = [sys.executable, *map(str, argv)]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=True)


def marginflow(folder, *argv):
    return python(folder, "-m", "flows.cli", *argv)


@pytest.mark.parametrize("name", RUNS)
def test_runs__are_configs(name):
    assert load_experiment(RUNS[name])


FIRST_FIT = """
from sklearn.datasets import load_breast_cancer, load_iris
from svmcore.estimator import SVC
X, y = load_iris(return_X_y=True)
SVC().fit(X, y).predict(X)
SVC(kernel="linear").fit(X[:100], y[:100])
SVC(kernel="precomputed").fit(X @ X.T, y)
X, y = load_breast_cancer(return_X_y=True)
SVC().fit(X, y)  # K of float64 in more than one tile
"""
FIRST_LARGE_FITS = """
import numpy as np
from svmcore.estimator import SVC
rng = np.random.default_rng(3)
for p, kinds in ((8, 1), (60, 1), (60, 2), (123, 2)):
    X = rng.normal(size=(20_000, p)).astype(np.float32)
    X = X if kinds == 1 else (X > 0.5).astype(np.float32)
    y = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=len(X)) > 0.0
    SVC(C=10.0, gamma=1.0 / p, tol=1e-2).fit(X, y)
"""


@pytest.mark.full  # compiles everything: a minute on free cores
def test_warm__leaves_next_to_nothing_to_compile(tmp_path):
    told = marginflow(tmp_path, "warm").stderr
    assert all(name in told for name in PARTS)
    before = entries(tmp_path)
    for first in (FIRST_FIT, FIRST_LARGE_FITS):
        python(tmp_path, "-c", first)
        assert entries(tmp_path) == before
    digits = Path(__file__).parents[3] / "config" / "digits.yaml"
    marginflow(tmp_path, "run", digits, "--no-prefect", "--store", tmp_path / "store")
    assert len(before) > 80
    assert len(entries(tmp_path) - before) <= 4
