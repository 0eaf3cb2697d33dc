import functools
import importlib.metadata
import json
import operator
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import threadpoolctl

from pipeline.compute import cluster, workers
from pipeline.compute.cluster import open_workers
from pipeline.compute.workers import ClusterLost
from pipeline.config.load import load_experiment
from svmcore.errors import InputError, MemoryLimit, UnknownPlugin
from svmcore.kernels import Kernel


def run_python(script, *args, **options):
    return subprocess.Popen([sys.executable, *args, str(script)], stdout=subprocess.PIPE, text=True, **options)


# ---- the work
@pytest.mark.parametrize("kind", ["inline", "dask"])
def test_map__answers_every_item_with_its_index(kind, two_workers):
    with open_workers({"kind": "inline"}) as inline:
        workers = inline if kind == "inline" else two_workers
        found = dict(workers.map(functools.partial(pow, 2), list(range(30))))
    assert found == {i: 2**i for i in range(30)}


def test_map__keeps_few_items_in_flight(two_workers):
    taken = []

    class Items(list):
        def __iter__(self):
            for item in range(100):
                taken.append(item)
                yield item

    results = two_workers.map(abs, Items())
    next(results)
    assert len(taken) <= 5 * two_workers.n
    assert len(list(results)) == 99


def test_map__returns_the_errors_of_the_input_as_they_are(two_workers):
    with pytest.raises(UnknownPlugin, match="did you mean 'rbf'"):
        list(two_workers.map(Kernel.create, [{"name": "rfb"}]))


def test_map__raises_what_a_task_raises(two_workers):
    with pytest.raises(ZeroDivisionError):
        list(two_workers.map(functools.partial(operator.truediv, 1), [0], retries=0))


@pytest.fixture
def patient(monkeypatch):
    """A worker that was killed may take minutes to start again where the machine is busy."""
    monkeypatch.setattr(workers, "LOST_SECONDS", 600.0)


def test_map__survives_a_killed_worker(two_workers, patient):
    results = two_workers.map(time.sleep, [0.05] * 20)
    found = [next(results)]
    os.kill(next(iter(two_workers.client.run(os.getpid).values())), signal.SIGKILL)
    found += list(results)
    assert sorted(index for index, _ in found) == list(range(20))


@pytest.mark.full
def test_map__survives_every_worker_killed_three_times_in_a_row(two_workers, patient):
    results = two_workers.map(time.sleep, [0.05] * 60)
    found = []
    for _ in range(3):
        two_workers.client.wait_for_workers(2)
        for pid in two_workers.client.run(os.getpid).values():
            os.kill(pid, signal.SIGKILL)
        found += [next(results) for _ in range(10)]
    found += list(results)
    assert sorted(index for index, _ in found) == list(range(60))


def test_map__an_error_that_is_no_exception_comes_back_too(two_workers):
    """Dask would wait for its result for ever."""
    with pytest.raises(RuntimeError, match="Failed: on purpose"):
        list(two_workers.map(pytest.fail, ["on purpose"]))


def test_workers__have_one_blas_thread_each(two_workers):
    info = dict(two_workers.map(lambda _: threadpoolctl.threadpool_info(), [0]))[0]
    assert {library["num_threads"] for library in info if library["user_api"] == "blas"} == {1}


def faults_of_arrays_again(n_bytes):
    """Pages that a worker had to be given for 20 arrays one after the other, of which each is written."""
    import resource

    counts = []
    for _ in range(21):
        np.empty(n_bytes, np.uint8)[::4096] = 1
        counts.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt)
    return counts[-1] - counts[0]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="how memory is kept is said to glibc")
def test_workers__have_memory_again_that_they_had_before(two_workers):
    """Dask tells them to give it back at once; a proof asks for ten arrays of a megabyte, thousands of times."""
    found = dict(two_workers.map(faults_of_arrays_again, [1 << 20]))[0]
    assert found < 20 * 256 / 4  # pages: a quarter of what is asked for


def test_memory__a_task_beyond_it_is_refused_and_the_worker_lives(two_workers):
    with pytest.raises(MemoryLimit, match=r"raise cluster\.memory"):
        list(two_workers.map(np.ones, [10**9]))
    assert dict(two_workers.map(abs, [-1])) == {0: 1}


# ---- tasks that hang beside live workers
@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(workers, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(workers, "COPY_SECONDS", 0.5)


def hanging(item):
    """Note who began; the first to begin, or everybody, hangs until the folder has a file `end`, a minute at most."""
    folder, everybody = item
    with open(f"{folder}/begun", "a") as file:
        file.write(f"{os.getpid()}\n")
    late = len(Path(folder, "begun").read_text().splitlines()) == 1
    until = time.monotonic() + 60.0
    while (late or everybody) and not Path(folder, "end").exists() and time.monotonic() < until:
        time.sleep(0.05)
    return "late" if late else "copy"


def test_hang__of_one_task_is_got_round_by_one_copy_on_another_worker(two_workers, tmp_path, impatient):
    two_workers.client.wait_for_workers(2)
    found = []
    for landed in two_workers.map(hanging, [(tmp_path, False)]):
        found.append(landed)
        (tmp_path / "end").touch()
    time.sleep(1.0)
    assert found == [(0, "copy")]  # what comes late goes to nobody
    pids = (tmp_path / "begun").read_text().split()
    assert len(set(pids)) == len(pids) == 2


def test_hang__of_the_copies_too_ends_the_work_with_one_sentence(two_workers, tmp_path, impatient, monkeypatch):
    monkeypatch.setattr(workers, "HANG_SECONDS", 3.0)
    with pytest.raises(ClusterLost, match=r"tasks hang \(1 of them\): no result and no progress"):
        list(two_workers.map(hanging, [(tmp_path, True)]))
    (tmp_path / "end").touch()
    assert len((tmp_path / "begun").read_text().split()) == 2


def test_hang__is_not_said_of_tasks_that_show_progress(two_workers, tmp_path, impatient, monkeypatch):
    monkeypatch.setattr(workers, "HANG_SECONDS", 1.0)
    threading.Timer(3.0, (tmp_path / "end").touch).start()
    assert dict(two_workers.map(hanging, [(tmp_path, True)], sign=time.monotonic)) == {0: "late"}


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


def test_map__a_lost_scheduler_ends_the_work_with_one_sentence():
    from distributed import LocalCluster

    running = LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    with open_workers({"kind": "address", "address": running.scheduler_address}) as workers:
        results = workers.map(time.sleep, [0.05] * 100)
        next(results)
        running.close()
        with pytest.raises(ClusterLost, match="run the command again"):
            list(results)


@pytest.mark.full
def test_map__a_task_that_ends_every_worker_is_given_up(two_workers, patient):
    with pytest.raises(ClusterLost, match=r"raise cluster\.memory"):
        list(two_workers.map(os._exit, [1]))
    assert dict(two_workers.map(abs, [-1])) == {0: 1}


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


def test_open__waits_less_than_the_promised_15_seconds():
    assert cluster.CONNECT_SECONDS < 14


def test_open__refuses_workers_of_another_version(plain_address, monkeypatch):
    monkeypatch.setattr(workers, "VERSION", "99.0")
    config = {"kind": "address", "address": plain_address, "insecure": True}
    installed = importlib.metadata.version("marginflow")
    with pytest.raises(InputError, match=rf"99\.0, and .* has {installed}"), open_workers(config):
        pass


def test_map__refuses_a_worker_of_another_version_that_joined_later(two_workers, monkeypatch):
    monkeypatch.setattr(workers, "VERSION", "99.0")
    with pytest.raises(InputError, match=r"must run marginflow 99\.0"):
        list(two_workers.map(abs, [1]))


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
