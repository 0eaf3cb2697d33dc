"""Data that several files of machines share."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def data():
    """120 rows of 4 features, a target, three classes: each machine takes what it needs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    value = 3.0 * np.sin(X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=120)
    return X, value, np.digitize(value, np.quantile(value, [0.35, 0.7]))
