"""Everything that is compiled for common runs, compiled in advance: small real runs, each verified."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.answers.warm import warm_up
from pipeline.model.verify import verify
from pipeline.running.run import run

__all__ = ["RUNS", "warm"]

ROWS = 1600  # more than are solved in one compiled pass,
MANY, MEGABYTES = 5000, 20  # and more than are solved without leaving rows out, where K does not fit
IRIS = {"source": "sklearn:iris", "test": 0.2, "scale": "standard"}
PIXELS = {"source": "sklearn:digits", "test": 0.2, "scale": 16, "rows": 400}
RUNS: dict[str, dict[str, Any]] = {
    "rows of numbers": {"data": IRIS, "kernel": {"name": "rbf", "gamma": "scale"}},
    "rows of few decimals": {"data": {**IRIS, "scale": "none"}, "kernel": {"name": "rbf", "gamma": "scale"}},
    "rows of bytes": {"data": PIXELS, "kernel": {"name": "rbf", "gamma": "scale"}},
    "linear": {"data": IRIS, "kernel": {"name": "linear"}},
    "polynomial": {"data": IRIS, "kernel": {"name": "polynomial", "degree": 2, "coef0": 1.0, "gamma": "scale"}},
}


def warm() -> Iterator[str]:
    """Compile; yields the name of each part before its turn."""
    yield "solvers"
    warm_up()
    yield "estimators"
    _fit_estimators()
    with tempfile.TemporaryDirectory(prefix="marginflow-warm-") as folder:
        for name, config in RUNS.items():
            yield name
            record = run({**config, "cluster": {"kind": "inline"}, "store": folder})
            verify(Path(record["model"]))


def _fit_estimators() -> None:
    """Fit few rows as users of the estimators do: of three classes, of two, dense, sparse, of bytes, with targets."""
    from scipy.sparse import csr_array

    from svmcore.estimator import SVC, SVR, GridSearchCV

    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4)).round(1)  # of few decimals, as measured numbers are
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, (0.5, 1.5))
    wide = rng.normal(size=(ROWS, 30))
    for kernel in ("rbf", "linear", "sigmoid"):
        SVC(kernel=kernel).fit(X, y).decision_function(X)
        SVC(kernel=kernel).fit(wide, wide[:, 0] > 0.0)
    SVC().fit(wide[:300].round(3), y.repeat(2))
    SVC().fit(np.abs(X * 9.0).astype(np.uint8), y > 0)
    SVC().fit(csr_array(np.maximum(X, 0.0)), y > 0)
    signs = np.sign(rng.normal(size=(MANY, 16)))
    pixels = (60 * signs + 128).astype(np.float32) / np.float32(255)
    for rows in (signs + 0.3 * rng.normal(size=signs.shape), signs, pixels):
        SVC(cache_size=MEGABYTES).fit(rows, signs[:, 0] * signs[:, 1] + 0.5 * signs[:, 2] > 0.0)
    GridSearchCV(SVC(), {"C": [1.0, 10.0]}, cv=2).fit(X, y)
    SVR().fit(X, X[:, 0])
