"""A CSV of 2 GB is ingested in less than 1 GB of resident memory."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.full

GIGABYTE = 10**9
COLUMNS = 40
INGEST = """
import json, resource, sys
from pipeline.config.schema import load_experiment
from pipeline.rows.dataset import ingest
exp = load_experiment({"data": {"source": sys.argv[1], "test": 0.1, "scale": "standard"}})
d = ingest(exp, sys.argv[2])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
counts = [int(d.n_train), int(d.n_merged), int(d.n_test), int(d.n_features)]
print(json.dumps({"peak": peak, "counts": counts, "classes": d.classes}))
"""


def write_large_csv(path, size):
    """Write `size` bytes of rows, all different in their first cell, but every row of the last block twice."""
    rng = np.random.default_rng(0)
    tails = [
        ",".join(f"{v:.9g}" for v in row) + f",{'abc'[i % 3]}\n"
        for i, row in enumerate(rng.normal(size=(4000, COLUMNS - 1)))
    ]
    block = 0
    with path.open("w") as file:
        file.write(",".join([*(f"x{j}" for j in range(COLUMNS)), "kind"]) + "\n")
        while file.tell() < size:
            file.write("".join(f"{block}.{i:04d},{tail}" for i, tail in enumerate(tails)))
            block += 1
        file.write("".join(f"{block - 1}.{i:04d},{tail}" for i, tail in enumerate(tails)))
    return 4000 * block


def test_a_csv_of_2_gb_is_ingested_within_1_gb_of_memory(tmp_path):
    path = tmp_path / "large.csv"
    distinct = write_large_csv(path, 2 * GIGABYTE)
    assert path.stat().st_size > 2 * GIGABYTE
    command = [sys.executable, "-c", INGEST, str(path), str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1200)
    found = json.loads(done.stdout)
    assert found["peak"] < GIGABYTE
    n_train, n_merged, n_test, n_features = found["counts"]
    assert n_train + n_test == distinct + 4000
    assert n_train - 4000 <= n_merged < n_train
    assert (n_features, found["classes"]) == (COLUMNS, ["a", "b", "c"])
