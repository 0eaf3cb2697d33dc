"""Finished runs that several tests look at, made once; nobody may change them (copy first)."""

import os
import signal

import numpy as np
import pytest


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c():
    """A shell starts what it puts in the background deaf to Ctrl-C, and so would be the drivers that tests send one."""
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def _own_key(tmp_path_factory):
    """A key of the tests' own tells what they wrote, in the processes that they start too."""
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    yield
    del os.environ["XDG_CONFIG_HOME"]
    if before is not None:
        os.environ["XDG_CONFIG_HOME"] = before


def draw_nothing(patch):
    """Pages of runs have no figures, which take half of a small run."""
    for module in ("curves", "model", "sweep", "targets"):
        patch.setattr(f"pipeline.report.figures.{module}.draw_svg", lambda *given: "")


@pytest.fixture(scope="module")
def without_figures():
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        yield


@pytest.fixture
def here_without_figures(monkeypatch):
    """In one test of a module whose others look at them."""
    draw_nothing(monkeypatch)


@pytest.fixture(scope="session")
def rows_csv(tmp_path_factory):
    """90 rows of two features, three named classes, each row twice; a path of a CSV with a header."""
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(15, 2)) + centre for centre in ((0, 0), (3, 0), (0, 3))]).round(3)
    names = np.repeat(["ant", "bee", "cat"], 15)
    lines = [f"{x[0]},{x[1]},{name}" for x, name in zip(X, names, strict=True)]
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    path.write_text("\n".join(["width,length,kind", *lines, *lines]) + "\n")
    return path


@pytest.fixture(scope="session")
def rows_config(rows_csv):
    return {
        "name": "rows",
        "data": {"source": str(rows_csv), "test": 0.2, "scale": "standard"},
        "C": 10,
        "solver": {"name": "smo", "tol": 1e-4},
        "cluster": {"kind": "inline"},
    }


@pytest.fixture(scope="session")
def rows_run(rows_config, tmp_path_factory):
    """Metrics of a run of `rows_config`."""
    from pipeline import run

    return run(rows_config, store=tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def noise_npz(tmp_path_factory):
    """1,000 rows with labels drawn by lot: at a large C and a tiny tol no solver is done with them for minutes."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("noise") / "noise.npz"
    np.savez(path, X=rng.normal(size=(1000, 10)), y=rng.integers(0, 2, 1000))
    return path


@pytest.fixture(scope="module")
def s3():
    """URL of a bucket; the environment is what a user of a server of their own sets."""
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "lab")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "never-in-a-file")
        patch.setenv("AWS_REGION", "us-east-1")
        import boto3

        boto3.client("s3").create_bucket(Bucket="lab")
        yield "s3://lab"
    server.stop()
