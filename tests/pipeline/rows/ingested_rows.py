"""300 rows with a constant column, in three classes, and data sets that are made of such."""

import bz2
import io

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from pipeline.config.load import load_experiment
from pipeline.rows.dataset import ingest
from svmcore.errors import InputError

rng = np.random.default_rng(1)
N, P = 300, 6
ROWS = np.round(rng.normal(size=(N, P)) * [1, 1, 5, 0.1, 2, 3], 2)
ROWS += [0, 3, 0, 0, -7, 0]
ROWS[:, 5] = 2.5  # a constant column
LABELS = rng.integers(0, 3, N)
COPIES = np.array([*range(N), *range(40), *range(20)])  # rows 0..19 three times, 20..39 twice


def make(folder, *overrides, X=ROWS, y=LABELS, test=None, name="rows.npz", **config):
    """Ingest X, y saved as npz or LIBSVM."""
    data = {"source": save(folder, X, y, name)}
    if test is not None:
        data["test"] = save(folder, *test, name="test_" + name) if isinstance(test, tuple) else test
    return ingest(load_experiment({"data": data} | config, overrides), folder / "cache")


def save(folder, X, y, name):
    path = folder / name
    if name.endswith(".npz"):
        np.savez(path, X=X, y=y)
    elif ".csv" in name:
        np.savetxt(path, np.column_stack([X, y]), delimiter=",")  # packed by its name
    else:
        buffer = io.BytesIO()
        dump_svmlight_file(X, y, buffer, zero_based=False)
        path.write_bytes(bz2.compress(buffer.getvalue()) if name.endswith(".bz2") else buffer.getvalue())
    return str(path)


def error(folder, *overrides, **keys):
    with pytest.raises(InputError) as caught:
        make(folder, *overrides, **keys)
    assert "\n" not in str(caught.value)
    assert list((folder / "cache").rglob("*")) in ([], [folder / "cache" / "data"])  # nothing is left behind
    return str(caught.value)


def dense(X):
    return X.toarray() if sparse.issparse(X) else X
