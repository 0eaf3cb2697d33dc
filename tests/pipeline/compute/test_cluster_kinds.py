"""One batch on every kind of cluster: the same results and the same model, byte for byte.

Schedulers and workers are processes of their own, started as a user starts them.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from pipeline import run
from pipeline.compute.workers import ClusterLost
from pipeline.config import yaml12
from pipeline.config.load import load_experiment
from pipeline.running.run import execute
from pipeline.running.session import check_inputs

BIN = Path(sys.executable).parent
NETWORK = "10.77.83"


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """1,200 rows of three classes: some strips of K, two gammas, two folds."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 1200)
    np.savez(folder / "rows.npz", X=rng.normal(size=(1200, 20)) + 0.8 * rng.normal(size=(3, 20))[y], y=y)
    grid = {"C": [1, 10], "kernel.gamma": [0.02, 0.1]}
    return {
        "name": "rows",
        "data": {"source": str(folder / "rows.npz"), "scale": "standard"},
        "sweep": {"grid": grid, "folds": 2},
    }


@pytest.fixture(scope="module")
def inline(batch, tmp_path_factory):
    return answer(run(batch | {"cluster": {"kind": "inline"}}, store=tmp_path_factory.mktemp("inline")))


def answer(found):
    """What must not depend on who computed it."""
    folder = Path(found["run"])
    return (folder / "results.csv").read_bytes(), (folder / "model.zarr" / "manifest.json").read_bytes()


@contextlib.contextmanager
def started(*argv):
    """A process that is ended with the block."""
    with subprocess.Popen(list(map(str, argv)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def dask_processes(folder, scheduler_options=(), worker_options=(), scheduler_in=(), workers_in=()):
    """`dask scheduler` and two `dask worker`s; yields the scheduler file, which gives the workers the address."""
    file = folder / "scheduler.json"
    quiet = ["--no-dashboard", "--scheduler-file", file]
    scheduler = [*scheduler_in, BIN / "dask", "scheduler", "--port", "0", *quiet, *scheduler_options]
    worker = [*workers_in, BIN / "dask", "worker", *quiet, "--nworkers", "2", "--nthreads", "1"]
    worker += ["--local-directory", folder / "scratch", "--death-timeout", "60", *worker_options]
    with started(*scheduler):
        deadline = time.monotonic() + 60
        while not file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with started(*worker):
            yield file


@pytest.mark.full
@pytest.mark.parametrize("workers", [1, 2])
def test_local__gives_the_bytes_of_inline(batch, inline, tmp_path, workers):
    found = run(batch | {"cluster": {"kind": "local", "workers": workers}}, store=tmp_path)
    assert answer(found) == inline


@pytest.mark.full
def test_scheduler_file__gives_the_bytes_of_inline(batch, inline, tmp_path):
    with dask_processes(tmp_path) as file:
        found = run(
            batch | {"cluster": {"kind": "scheduler_file", "path": str(file), "insecure": True}},
            store=tmp_path / "runs",
        )
    assert answer(found) == inline


def test_address__over_tls_gives_the_bytes_of_inline(batch, inline, tmp_path):
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    for pem in issued.cert_chain_pems:
        pem.write_to_path(str(tmp_path / "cert.pem"), append=True)
    files = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "cert", "key")}
    options = ["--tls-ca-file", files["ca"], "--tls-cert", files["cert"], "--tls-key", files["key"]]
    with dask_processes(tmp_path, [*options, "--protocol", "tls", "--host", "127.0.0.1"], options) as file:
        address = json.loads(file.read_text())["address"]
        assert address.startswith("tls://")
        cluster = {"kind": "address", "address": address, "tls": files}
        found = run(batch | {"cluster": cluster}, store=tmp_path / "runs")
    assert answer(found) == inline


@pytest.mark.full  # the scheduler listens on the host's outer address, which not every sandbox lets itself reach
@pytest.mark.parametrize("tls", [False, True])
def test_factory__of_dask_jobqueue_gives_the_bytes_of_inline(batch, inline, tmp_path, tls):
    """Its jobs are shell scripts, as on a batch system; they end with the run, which it may encrypt."""
    if importlib.util.find_spec("dask_jobqueue") is None:  # importing it here would take Ctrl-C from pytest
        pytest.skip("dask_jobqueue is not installed")
    kwargs = {"cores": 1, "memory": "1GiB", "local_directory": str(tmp_path), "log_directory": str(tmp_path)}
    kwargs |= {"python": sys.executable, "scheduler_options": {"dashboard_address": "127.0.0.1:0"}}
    cluster = {"kind": "factory", "factory": "dask_jobqueue.local.LocalCluster", "workers": 2, "kwargs": kwargs}
    if tls:
        kwargs |= {"security": True, "shared_temp_directory": str(tmp_path)}
    else:
        cluster |= {"insecure": True}
    assert answer(run_elsewhere([], batch, cluster, tmp_path)) == inline
    left = [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]
    assert not psutil.wait_procs(left, timeout=10)[1]


@pytest.mark.full
def test_scheduler__that_is_killed_and_started_again_costs_what_was_in_flight(batch, inline, tmp_path):
    """It is back when the run has given the connection up: Dask's own attempts to connect again do not help here."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    at, told = ["--host", "127.0.0.1", "--port", str(port)], []
    cluster = {"kind": "address", "address": f"tcp://127.0.0.1:{port}", "insecure": True}
    exp = load_experiment(batch | {"cluster": cluster})
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
        first.enter_context(dask_processes(tmp_path / "first", at))

        def kill(stage, done, total, **info):
            if stage == "solve" and done >= 4:
                first.close()

        def restart(name, state, error=None):
            if state == "retrying":
                told.append((name, type(error)))
                second.enter_context(dask_processes(tmp_path / "second", at))

        found = execute(exp, check_inputs(exp, str(tmp_path / "runs")), kill, restart)
    assert told == [("solve", ClusterLost)]
    assert found["problems"]["reused"] >= 4
    assert answer(found) == inline


def run_elsewhere(prefix, batch, cluster, folder):
    """Metrics of a `marginflow run` in a process of its own."""
    (folder / "rows.yaml").write_text(json.dumps(batch | {"cluster": cluster}))
    argv = [*prefix, sys.executable, "-m", "flows.cli", "run", str(folder / "rows.yaml"), "--no-prefect", "--json"]
    argv += ["--store", str(folder / "runs")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ---- two hosts
def ip(*argv):
    subprocess.run(["ip", *argv], check=True, capture_output=True)


@pytest.fixture
def two_hosts():
    """Commands that run a program in one of two network namespaces, joined by a cable."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2's ip")
    names = [f"mf{os.getpid()}{side}" for side in "ab"]
    try:
        try:
            for name in names:
                ip("netns", "add", name)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
        for number, name in enumerate(names, start=1):
            ip("link", "set", name, "netns", name)
            ip("-n", name, "addr", "add", f"{NETWORK}.{number}/24", "dev", name)
            for device in ("lo", name):
                ip("-n", name, "link", "set", device, "up")
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.mark.full
def test_address__of_another_host_gives_the_bytes_of_inline(batch, inline, tmp_path, two_hosts):
    """The driver and the scheduler on one host, the workers on the other; the store is a folder both see."""
    here, there = two_hosts
    host = ["--host", f"{NETWORK}.1"]
    with dask_processes(tmp_path, host, ["--host", f"{NETWORK}.2"], here, there) as file:
        cluster = {"kind": "address", "address": json.loads(file.read_text())["address"], "insecure": True}
        assert NETWORK in cluster["address"]
        found = run_elsewhere(here, batch, cluster, tmp_path)
    assert answer(found) == inline


def test_page__its_configs_load_and_its_slurm_jobs_ask_for_what_they_say():
    """The script of a job is made by dask_jobqueue, without SLURM, in a process that may lose its Ctrl-C."""
    page = (Path(__file__).parents[3] / "docs" / "clusters.md").read_text()
    blocks = re.findall(r"^```yaml\n(data:.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    clusters = [load_experiment(yaml12.parse(block)).cluster for block in blocks]
    assert [cluster.factory.rpartition(".")[2] for cluster in clusters] == ["SLURMCluster", "KubeCluster"]
    script = "import json, sys; from dask_jobqueue import SLURMCluster as S"
    script += "; print(S(scheduler_options={'dashboard_address': ':0'}, **json.loads(sys.argv[1])).job_script())"
    kwargs = {key: value for key, value in clusters[0].kwargs.items() if "security" not in key and "temp" not in key}
    found = subprocess.run(
        [sys.executable, "-c", script, json.dumps(kwargs)], capture_output=True, text=True, check=True
    )
    assert all(
        line in found.stdout for line in ("#SBATCH -p batch", "#SBATCH -t 02:00:00", "--cpus-per-task=1", "--mem=4G")
    )
