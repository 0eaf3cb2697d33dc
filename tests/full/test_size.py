"""What a driver needs for very many problems: memory within bounds, and seconds of its own for each.

`SIZE=1 pytest tests/full/test_size.py -s` runs the sizes that are promised (minutes to half an hour); without it a
tenth of them.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.full

WHOLE = bool(os.environ.get("SIZE"))
LIMIT = 4 << 30
RUN = """
import json, sys, time
from pipeline import run
from pipeline.running.clock import peak_memory_bytes

if __name__ == "__main__":
    run({"data": {"source": "sklearn:iris"}, "cluster": {"kind": "inline"}}, store=sys.argv[2] + "/warm")
    before = time.process_time()
    found = run(json.loads(sys.argv[1]), store=sys.argv[2])
    print(json.dumps([found["problems"], peak_memory_bytes(), time.process_time() - before, found["seconds"]]))
"""


def driven(config, folder):
    """Problems, peak memory in bytes, CPU seconds of the driver's process, and seconds by stage of a run."""
    argv = [sys.executable, "-c", RUN, json.dumps(config), str(folder / "runs")]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=folder)
    problems, peak, spent, seconds = json.loads(done.stdout)
    sys.stdout.write(f"{problems}: {peak / 2**30:.2f} GiB, {spent:.1f} s of the driver, {seconds}\n")
    return problems, peak, spent


def rows(folder, n, n_classes, n_features):
    rng = np.random.default_rng(0)
    y = np.arange(n) % n_classes
    X = 3.0 * rng.normal(size=(n_classes, n_features))[y] + rng.normal(size=(n, n_features))
    np.savez(folder / "rows.npz", X=X, y=y)
    return str(folder / "rows.npz")


def test_classes__a_thousand_of_them_on_twenty_thousand_rows(tmp_path):
    k, n = (1000, 20_000) if WHOLE else (300, 3000)
    config = {
        "data": {"source": rows(tmp_path, n, k, 16), "test": 0.1, "scale": "standard"},
        "solver": {"name": "smo", "tol": 1e-2},
        "cluster": {"kind": "local", "workers": 2},
    }
    problems, peak, _ = driven(config, tmp_path)
    assert problems["total"] == k
    assert peak < LIMIT


def test_batch__of_ten_thousand_problems_costs_the_driver_two_milliseconds_each(tmp_path):
    points = 1000 if WHOLE else 100
    config = {
        "data": {"source": rows(tmp_path, 150, 2, 3)},
        "solver": {"name": "smo", "tol": 1e-2},
        "cluster": {"kind": "local", "workers": 2},
        "sweep": {
            # weights make every point a chain of its own
            "grid": {"class_weight": [{"0": 1 + i / points} for i in range(points)], "bias": ["free", "none"]},
            "folds": 5,
            "refit": False,
        },
    }
    problems, peak, spent = driven(config, tmp_path)
    assert problems["total"] == 10 * points
    assert peak < LIMIT
    assert spent < 3.0 + 2e-3 * problems["total"]
