"""A small dataset and the sweep over it, for the tests of batches."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from .digits_sweep import CS, FOLDS, GAMMAS, SEED, N


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """600 rows of digits scaled to 0 ... 1 as an npz file: (path, X, y)."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:N] / 16.0, y[:N]
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(path, X=X, y=y)
    return path, X, y


@pytest.fixture(scope="module")
def config(digits):
    return {
        "name": "sweep",
        "seed": SEED,
        "data": {"source": str(digits[0])},
        "kernel": {"name": "rbf", "gamma": 0.05},
        "solver": {"name": "smo", "tol": 1e-4},
        "cluster": {"kind": "inline"},
        "sweep": {"grid": {"kernel.gamma": list(GAMMAS), "C": list(CS)}, "folds": FOLDS},
    }
