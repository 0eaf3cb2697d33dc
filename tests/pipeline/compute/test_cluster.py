"""Clusters: how they are opened, who may connect, and what they leave behind."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pipeline.compute import cluster
from pipeline.compute.cluster import open_workers
from pipeline.config.load import load_experiment
from svmcore.errors import InputError


def run_python(script, *args, **options):
    return subprocess.Popen([sys.executable, *args, str(script)], stdout=subprocess.PIPE, text=True, **options)


# ---- connecting
@pytest.fixture(scope="module")
def plain_address():
    """A scheduler without TLS and its two workers."""
    from distributed import LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "protocol": "tcp://"}
    with LocalCluster(**options, dashboard_address=":0") as running:
        yield running.scheduler_address


def test_address__uses_the_workers_of_a_running_scheduler(plain_address):
    with open_workers({"kind": "address", "address": plain_address, "insecure": True}) as workers:
        assert workers.n == 2
        assert dict(workers.map(abs, [-3])) == {0: 3}


def test_scheduler_file__names_a_running_scheduler(plain_address, tmp_path):
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"address": plain_address}))
    with open_workers({"kind": "scheduler_file", "path": str(path), "insecure": True}) as workers:
        assert dict(workers.map(abs, [-3])) == {0: 3}


# ---- who may connect, and what may be imported
def test_plain_tcp__is_refused_unless_it_is_accepted(plain_address, tmp_path):
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"address": plain_address}))
    for config in ({"kind": "address", "address": plain_address}, {"kind": "scheduler_file", "path": str(path)}):
        with pytest.raises(InputError, match=r"set cluster\.insecure: true"), open_workers(config):
            pass
    kwargs = {"n_workers": 0, "protocol": "tcp://", "dashboard_address": ":0"}
    config = {"kind": "factory", "factory": "distributed.LocalCluster", "kwargs": kwargs}
    with pytest.raises(InputError, match="not encrypted"), open_workers(config):
        pass


def test_local__nobody_without_its_keys_can_run_code_in_it(two_workers):
    """What another user of the host can try: the scheduler's and the workers' ports, plainly and with own keys."""
    from distributed import Client
    from distributed.security import Security

    scheduler = two_workers.client.scheduler.address
    assert scheduler.startswith("tls://")
    assert all(address.startswith("tls://") for address in two_workers.client.scheduler_info()["workers"])
    for address, security in ((scheduler.replace("tls", "tcp"), None), (scheduler, Security.temporary())):
        with pytest.raises(OSError, match=r"\S"):
            Client(address, security=security, timeout=1.5)


def test_local__its_scratch_files_are_for_this_user_alone(two_workers):
    folders = two_workers.client.run(lambda dask_worker: dask_worker.local_directory)
    for folder in map(Path, folders.values()):
        private = next(parent for parent in folder.parents if parent.name == "workers")
        assert private.stat().st_mode & 0o777 == 0o700
        assert private.stat().st_uid == os.getuid()


def test_local__a_worker_that_is_gone_while_dask_looks_is_started_again():
    """Dask looks after 15 s unless it is told otherwise; here at once, when no worker can be there again."""
    import dask

    early = dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"})
    with early, open_workers({"kind": "local", "workers": 2}) as workers:
        victim = next(iter(workers.client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        end = time.monotonic() + 60
        while len(set(workers.client.run(os.getpid, on_error="ignore").values()) - {victim}) < 2:
            assert time.monotonic() < end, "nobody took its place"
            time.sleep(0.1)


@pytest.mark.parametrize(
    "name",
    ["os.system", "subprocess.Popen", "distributed_evil.Cluster", "distributed.Client", "distributed.utils.sync"],
)
def test_factory__only_classes_of_clusters_from_known_packages_are_made(name, tmp_path, monkeypatch):
    """A package that only looks like Dask's is not even imported."""
    (tmp_path / "distributed_evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nCluster = dict")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError), open_workers({"kind": "factory", "factory": name, "kwargs": {}}):
        pass
    assert not (tmp_path / "ran").exists()
    if not name.startswith("distributed."):
        with pytest.raises(InputError, match="MARGINFLOW_FACTORIES"):
            load_experiment({"data": {"source": "sklearn:iris"}, "cluster": {"kind": "factory", "factory": name}})


def test_factory__the_host_may_allow_others(tmp_path, monkeypatch):
    (tmp_path / "our_cluster.py").write_text("from distributed import LocalCluster as OurCluster")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MARGINFLOW_FACTORIES", "elsewhere.Cluster, our_cluster")
    kwargs = {"n_workers": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with open_workers({"kind": "factory", "factory": "our_cluster.OurCluster", "kwargs": kwargs}) as workers:
        assert dict(workers.map(abs, [-3])) == {0: 3}


def test_factory__builds_the_cluster_it_names():
    kwargs = {"n_workers": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with open_workers({"kind": "factory", "factory": "distributed.LocalCluster", "kwargs": kwargs}) as workers:
        assert dict(workers.map(abs, [-3])) == {0: 3}


def test_factory__adapts_to_the_work_between_two_bounds():
    kwargs = {"n_workers": 0, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    config = {"kind": "factory", "factory": "distributed.LocalCluster", "kwargs": kwargs}
    with open_workers({**config, "workers": {"minimum": 1, "maximum": 3}}) as workers:
        assert len(workers.addresses()) == 1
        most = max(len(workers.addresses()) for _ in workers.map(time.sleep, [0.5] * 40))
        assert 1 < most <= 3


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"kind": "local", "workers": {"maximum": 3}}, "belongs to cluster.kind factory, given local"),
        (
            {"kind": "factory", "factory": "dask_jobqueue.SLURMCluster", "workers": {"minimum": 4, "maximum": 3}},
            "no larger",
        ),
        (
            {"kind": "factory", "factory": "dask_jobqueue.SLURMCluster", "workers": {"minimum": 0, "maximum": 3}},
            "positive",
        ),
    ],
)
def test_workers__between_bounds_that_cannot_be(cluster, message):
    with pytest.raises(InputError, match=message):
        load_experiment({"data": {"source": "sklearn:iris"}, "cluster": cluster})


def test_tls__the_files_of_the_config_open_an_encrypted_cluster(tmp_path):
    pytest.importorskip("cryptography")
    from distributed import LocalCluster
    from distributed.security import Security

    security = Security.temporary()
    files = {}
    for key, pem in {
        "ca": security.tls_ca_file,
        "cert": security.tls_client_cert,
        "key": security.tls_client_key,
    }.items():
        files[key] = str(tmp_path / f"{key}.pem")
        Path(files[key]).write_text(pem)
    with LocalCluster(n_workers=1, processes=False, security=security, dashboard_address=":0") as running:
        assert running.scheduler_address.startswith("tls://")
        with open_workers({"kind": "address", "address": running.scheduler_address, "tls": files}) as workers:
            assert dict(workers.map(abs, [-3])) == {0: 3}


@pytest.mark.parametrize(
    "config",
    [
        {"kind": "address", "address": "tcp://127.0.0.1:1", "insecure": True},
        {"kind": "address", "address": "127.0.0.1", "insecure": True},
        {"kind": "address", "address": "carrier-pigeon://roof", "insecure": True},
        {"kind": "scheduler_file", "path": "scheduler.json", "insecure": True},
        {"kind": "scheduler_file", "path": "/nowhere/scheduler.json"},
        {"kind": "scheduler_file", "path": "broken.json"},
        {"kind": "address", "address": "tls://127.0.0.1:1", "tls": {"ca": "no.pem", "cert": "no", "key": "no"}},
        {"kind": "factory", "factory": "nowhere.SLURMCluster"},
        {"kind": "factory", "factory": "distributed.NoCluster"},
        {"kind": "factory", "factory": "distributed.SpecCluster", "kwargs": {"wokers": 1}},
        {"kind": "locale"},
    ],
    ids=lambda config: "-".join(str(value) for value in config.values() if isinstance(value, str)),
)
def test_open__an_unusable_cluster_is_one_sentence(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    (tmp_path / "scheduler.json").write_text('{"address": "tcp://127.0.0.1:1"}')
    (tmp_path / "broken.json").write_text('{"addr')
    with pytest.raises(InputError) as caught, open_workers(config):
        pass
    assert "\n" not in str(caught.value)


COLLECTED = """
import gc
from distributed import LocalCluster, utils
from distributed.utils import LoopRunner
from pipeline.compute.cluster import open_workers
from svmcore.errors import InputError

where, name = {place}
before = getattr(where, name)
setattr(where, name, lambda *args, **kwargs: (gc.collect(), before(*args, **kwargs))[1])
if __name__ == "__main__":
    gc.disable()
    for address in ("carrier-pigeon://roof", "127.0.0.1"):
        try:
            with open_workers({{"kind": "address", "address": address, "insecure": True}}):
                pass
        except InputError:
            pass
    LocalCluster(n_workers=1, processes=False, dashboard_address=":0").close()
"""


@pytest.mark.parametrize(
    "place",
    ['LoopRunner, "_start_unlocked"', 'LoopRunner, "_stop_unlocked"', 'utils, "asyncio_run"'],
    ids=["start", "stop", "loop"],
)
def test_open__a_client_that_failed_and_is_collected_while_another_starts_keeps_nobody_waiting(place, tmp_path):
    """Its end would want a lock: held by the same thread, or by the one that waits for this thread's loop."""
    script = tmp_path / "driver.py"
    script.write_text(COLLECTED.format(place=place))
    with run_python(script, stderr=subprocess.PIPE) as driver:
        try:
            driver.communicate(timeout=60)
        finally:
            driver.kill()
    assert driver.returncode == 0


def test_open__waits_less_than_the_promised_15_seconds():
    assert cluster.CONNECT_SECONDS < 14


def test_open__refuses_workers_of_another_version(plain_address, monkeypatch):
    monkeypatch.setattr(cluster, "VERSION", "99.0")
    config = {"kind": "address", "address": plain_address, "insecure": True}
    installed = importlib.metadata.version("marginflow")
    with pytest.raises(InputError, match=rf"99\.0, and .* has {installed}"), open_workers(config):
        pass


# ---- processes
SCRIPT = """
import os, time
from pipeline.compute.cluster import open_workers
environment = dict(os.environ)
with open_workers({"kind": "local", "workers": 2}) as workers:
    assert {key for key in os.environ if key not in environment} <= {"__DASK_PARENT_PID"}
    print(*workers.client.run(os.getpid).values(), flush=True)
    list(workers.map(time.sleep, [0.2] * 2))
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, -2)],
    ids=["SIGKILL", "SIGTERM", "SIGINT"],
)
def test_local__leaves_no_process_behind(number, code, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(SCRIPT.replace("* 2", "* 600"))
    with run_python(script, stderr=subprocess.DEVNULL) as driver:
        try:
            assert len(driver.stdout.readline().split()) == 2
            children = psutil.Process(driver.pid).children(recursive=True)
            driver.send_signal(number)
            assert driver.wait(timeout=20) == code
        finally:
            driver.kill()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_local__a_script_without_a_main_guard_runs_once_quietly_in_its_own_environment(tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(SCRIPT)
    with run_python(script, stderr=subprocess.PIPE) as driver:
        out, err = driver.communicate(timeout=60)
    assert (len(out.splitlines()), err, driver.returncode) == (1, "", 0)


def test_import__loads_neither_dask_nor_zarr():
    code = (
        "import pipeline.compute.cluster, pipeline.kernel.gram, pipeline.kernel.columns, sys;"
        "sys.exit(any(m in sys.modules for m in ('dask', 'distributed', 'zarr', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
