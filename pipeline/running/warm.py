"""Everything that is compiled for common runs, compiled in advance: small real runs, each verified.

The parts share the cores: a function that several of them need is compiled by the first
(`svmcore.runtime.compiled_files`).
"""

import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from pipeline.answers.warm import warm_up
from pipeline.model.verify import verify
from pipeline.running.run import run
from svmcore.runtime.threads import n_cores

__all__ = ["PARTS", "RUNS", "warm"]

PROCESSES = 4  # at most, of half a gigabyte each
ROWS = 1600  # more than are solved in one compiled pass,
MANY, MEGABYTES = 5000, 20  # more than are solved without leaving rows out, where K does not fit
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
    """Compile; yields the name of each part when it is done."""
    parallel = Parallel(n_jobs=min(PROCESSES, n_cores()), return_as="generator_unordered")
    yield from parallel(delayed(_compile)(name) for name in PARTS)


def _compile(name: str) -> str:
    """Do a part; returns its name."""
    PARTS[name]()
    return name


def _run(config: dict[str, Any]) -> None:
    """A run of a config, verified."""
    with tempfile.TemporaryDirectory(prefix="marginflow-warm-") as folder:
        record = run({**config, "cluster": {"kind": "inline"}, "store": folder})
        verify(Path(record["model"]))


def _fit_small() -> None:
    """Fit few rows as users of the estimators do: of classes, dense, sparse, of bytes, of a given K, with targets."""
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
    SVC().fit(wide[:600], wide[:600, 0] > 0.0)
    SVC().fit(np.abs(X * 9.0).astype(np.uint8), y > 0)
    SVC().fit(csr_array(np.maximum(X, 0.0)), y > 0)
    SVC(kernel="precomputed").fit(wide @ wide.T, wide[:, 0] > 0.0)
    GridSearchCV(SVC(), {"C": [1.0, 10.0]}, cv=2).fit(X, y)
    SVR().fit(X, X[:, 0])


def _fit_large() -> None:
    """Fit rows whose K is not kept: of numbers, of bytes, few and many features; then of labels drawn by lot."""
    from svmcore.estimator import SVC

    rng = np.random.default_rng(0)
    signs = np.sign(rng.normal(size=(MANY, 40)))
    pixels = (60 * signs + 128).astype(np.float32) / np.float32(255)
    noisy = signs + 0.3 * rng.normal(size=signs.shape)
    y = signs[:, 0] * signs[:, 1] + 0.5 * signs[:, 2] > 0.0
    marks = (rng.random((MANY, 123)) < 0.1).astype(np.float64)
    dark = np.hstack([pixels, pixels]) * (rng.random((MANY, 80)) < 0.2)
    for rows in (noisy[:, :16], noisy, signs, pixels, dark.astype(np.float32), marks):
        SVC(cache_size=MEGABYTES).fit(rows, y)
        SVC(cache_size=MEGABYTES, tol=0.1).fit(rows, rng.random(MANY) > 0.5)


PARTS: dict[str, Callable[[], None]] = {
    "large tables": _fit_large,
    "small tables": _fit_small,
    "solvers": warm_up,
    **{name: functools.partial(_run, config) for name, config in RUNS.items()},
}
