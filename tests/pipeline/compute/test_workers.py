"""Work on a cluster's workers: results, errors, limits, killed workers, and tasks that hang."""

import contextlib
import functools
import operator
import os
import platform
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl

from pipeline.compute import workers
from pipeline.compute.cluster import open_workers
from pipeline.compute.workers import ClusterLost, DaskWorkers
from svmcore.errors import InputError, MemoryLimit, UnknownPlugin
from svmcore.kernels import Kernel


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


def test_map__a_lost_scheduler_ends_the_work_with_one_sentence():
    from distributed import LocalCluster

    running = LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    with open_workers({"kind": "address", "address": running.scheduler_address}) as workers:
        results = workers.map(time.sleep, [0.05] * 100)
        next(results)
        running.close()
        with pytest.raises(ClusterLost, match="run the command again"):
            list(results)


def test_map__a_client_that_has_closed_itself_ends_the_work_with_one_sentence(monkeypatch):
    """As it does when it cannot connect again: then it is nobody's default, and others' clients know nothing of it."""
    from distributed import Client, LocalCluster

    monkeypatch.setattr(workers, "POLL_SECONDS", 0.1)
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as running,
        contextlib.closing(Client(running)) as client,
    ):
        results = DaskWorkers(client).map(time.sleep, [0.0] + [1.0] * 3)
        next(results)
        client.sync(client._close, fast=True)
        with pytest.raises(ClusterLost, match="run the command again"):
            list(results)


@pytest.mark.full
def test_map__a_task_that_ends_every_worker_is_given_up(two_workers, patient):
    with pytest.raises(ClusterLost, match=r"raise cluster\.memory"):
        list(two_workers.map(os._exit, [1]))
    assert dict(two_workers.map(abs, [-1])) == {0: 1}


def test_map__refuses_a_worker_of_another_version_that_joined_later(two_workers, monkeypatch):
    monkeypatch.setattr(workers, "VERSION", "99.0")
    with pytest.raises(InputError, match=r"must run marginflow 99\.0"):
        list(two_workers.map(abs, [1]))


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
