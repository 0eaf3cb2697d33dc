"""Worker processes and a small dataset, started once for all tests of this folder."""

import os
import time

import numpy as np
import pytest

from pipeline.compute.cluster import open_workers

PATIENCE = 240  # seconds: a test that hangs is ended after 300
DRAWN = ("report", "storage", "test_tasks", "test_probability")  # folders and files whose tests look at pages


@pytest.fixture(autouse=True, scope="module")
def _drawings(request):
    """Figures are drawn where tests look at them, and in all runs of `flows`."""
    if not {request.path.parent.name, request.path.stem} & set(DRAWN):
        request.getfixturevalue("without_figures")


@pytest.fixture(scope="session")
def cluster_of_two():
    with open_workers({"kind": "local", "workers": 2, "memory": "4GiB"}) as workers:
        yield workers


@pytest.fixture
def two_workers(cluster_of_two):
    """Both answer: a test before may have ended one, which the scheduler counts a moment longer than it lives."""
    client, end = cluster_of_two.client, time.monotonic() + PATIENCE
    while len(client.run(os.getpid, on_error="ignore")) < 2:
        assert time.monotonic() < end, "a worker that was ended was not replaced"
        client.wait_for_workers(2, timeout=PATIENCE)
    assert cluster_of_two._count() == 2  # it counts them now and then, and may have seen the one that was left
    return cluster_of_two


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    """700 rows of 12 columns, two classes, ingested from an npz file."""
    from pipeline.config.load import load_experiment
    from pipeline.rows.dataset import ingest

    folder = tmp_path_factory.mktemp("dataset")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 12)) + 3.0
    np.savez(folder / "rows.npz", X=X, y=np.where(X[:, 0] > 3.0, 1, -1))
    return ingest(load_experiment({"data": {"source": str(folder / "rows.npz")}}), folder / "cache")


@pytest.fixture(scope="session")
def address_of_two_workers(cluster_of_two, tmp_path_factory):
    """A `cluster` section that connects to these workers as somebody else's, with the keys made for them."""
    folder, security = tmp_path_factory.mktemp("tls"), cluster_of_two.client.security
    pems = {"ca": security.tls_ca_file, "cert": security.tls_client_cert, "key": security.tls_client_key}
    for name, text in pems.items():
        (folder / name).write_text(text)
    files = {name: str(folder / name) for name in pems}
    return {"kind": "address", "address": cluster_of_two.client.scheduler.address, "tls": files}
