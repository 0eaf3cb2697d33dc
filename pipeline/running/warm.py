"""Everything that is compiled for common runs, compiled in advance: small real runs, each verified."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.answers.warm import warm_up
from pipeline.model.verify import verify
from pipeline.running.run import run

__all__ = ["RUNS", "warm"]

IRIS = {"source": "sklearn:iris", "test": 0.2, "scale": "standard"}
PIXELS = {"source": "sklearn:digits", "test": 0.2, "scale": 16, "rows": 400}
RUNS: dict[str, dict[str, Any]] = {
    "rows of numbers": {"data": IRIS, "kernel": {"name": "rbf", "gamma": "scale"}},
    "rows of bytes": {"data": PIXELS, "kernel": {"name": "rbf", "gamma": "scale"}},
    "linear": {"data": IRIS, "kernel": {"name": "linear"}},
    "polynomial": {"data": IRIS, "kernel": {"name": "polynomial", "degree": 2, "coef0": 1.0, "gamma": "scale"}},
}


def warm() -> Iterator[str]:
    """Compile; yields the name of each part before its turn."""
    yield "solvers"
    warm_up()
    with tempfile.TemporaryDirectory(prefix="marginflow-warm-") as folder:
        for name, config in RUNS.items():
            yield name
            record = run({**config, "cluster": {"kind": "inline"}, "store": folder})
            verify(Path(record["model"]))
