"""The cost model of shards against clusters of 4, 16 and 64 workers whose tasks sleep the seconds that it foretells.

Every message is real: the lines of shards, Dask's short way, TCP, and as many bytes as the model counts. The workers
are in one process, because there are not that many cores.
"""

import contextlib
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pipeline.compute.workers import DaskWorkers
from pipeline.layout import shards as model
from pipeline.layout.probe import Work
from pipeline.layout.rates import Rates
from svmcore.kernels import Kernel
from svmcore.shards import Opening, Reply
from svmcore.shards.group import THREADS
from svmcore.shards.line import Line
from svmcore.shards.met import Met

pytestmark = pytest.mark.full

ROWS, FEATURES, SUPPORT, CHAINS, CORES = 1_000_000, 20, 3000.0, 8, 2
RATE = Rates(entry=1e-10, step=1e-6, step_entry=1e-9, strip=1e-9, fault=1e-10)
EXCHANGES = 20
WORKS, UNION = [Work((SUPPORT,), 1e5)], 2 * SUPPORT
SCHEDULER = """
import asyncio, sys
from distributed import Scheduler

async def run():
    async with Scheduler(host="127.0.0.1", dashboard_address=None) as scheduler:
        print(scheduler.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(run())
"""
WORKERS = """
import asyncio, contextlib, sys
from distributed import Worker

async def run():
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(int(sys.argv[2])):
            await stack.enter_async_context(Worker(sys.argv[1], nthreads=1, host="127.0.0.1", dashboard=False))
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(run())
"""


def sleeping(envelope):
    """What a shard would answer, after the seconds that it would take: each call gives seconds and bytes."""
    answers = []
    for _, (seconds, _, size) in envelope.calls:
        time.sleep(seconds)
        answers.append(bytes(size))
    return Reply("there", answers)


def foretold(workers):
    at = model.Layout(ROWS, FEATURES, workers, CORES)
    return model.solve_seconds(at, WORKS, CHAINS, UNION, 1e-8, 4e-8, RATE)


class Emulated:
    """Lines to as many workers, and what the model says of each message."""

    def __init__(self, client, count):
        workers, homes = DaskWorkers(client), sorted(client.nthreads())
        pattern = Kernel.create({"name": "rbf", "gamma": 1.0}).prepare_gram(np.zeros((2, 1))).pattern
        opening = Opening("", None, 0, 1, 1, None, pattern, "float32", 0)
        self.pool = ThreadPoolExecutor(min(THREADS, count))

        def transport(index, envelope):
            return workers.ask(sleeping, envelope, homes[index])

        self.lines = [Line(i, opening, transport, Met(1, pattern), self.pool) for i in range(count)]

    def every(self, seconds, there, back):
        """One message to each worker and its answer, all under way together."""
        asked = [line.ask("sleep", seconds, bytes(int(there)), int(back)) for line in self.lines]
        assert all(len(one.result()) == int(back) for one in asked)


def parts():
    """Seconds of one problem that are divided among workers and those of the driver, and its rounds."""
    huge = 10**12
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("ROUND_TRIP", 0.0), ("MESSAGE", 0.0), ("BANDWIDTH", np.inf)):
            patch.setattr(model, name, value)
        alone = foretold(huge)
        divided = foretold(1) - alone
    rounds = round(model.FIRST_ROUNDS + model.WASTE * SUPPORT / model.NEWCOMERS)
    return divided / CHAINS, alone * min(model.AT_ONCE, CORES) / CHAINS, rounds


def sizes(count):
    """Bytes of a round to each worker and from it: rows of newcomers are fetched, then all are sent what changed."""
    rows = model.WASTE * UNION * FEATURES * 8.0 / CHAINS / parts()[2]
    half = (model.TOLD_BYTES + model.SET_BYTES / count) / 2
    return rows / count, rows + half, half


def solved(cluster, count):
    """Seconds of all problems, as many at once as the model says."""
    divided, alone, rounds = parts()
    (fetched, there, back), ends = sizes(count), ROWS * model.ROW_BYTES / count
    busy = threading.Semaphore(CORES)

    def problem(_):
        cluster.every(0.0, ends / 2, 0)
        for _ in range(rounds):
            cluster.every(0.0, 0, fetched)
            with busy:
                time.sleep(alone / rounds)
            cluster.every(divided / count / rounds, there, back)
        cluster.every(0.0, 0, ends / 2)

    began = time.perf_counter()
    with ThreadPoolExecutor(model.AT_ONCE) as threads:
        list(threads.map(problem, range(CHAINS)))
    return time.perf_counter() - began


def message_seconds(cluster, count):
    """Of a message to each of many workers, which do nothing: here all of them share the driver's cores."""
    fetched, there, back = sizes(count)
    began = time.perf_counter()
    for _ in range(EXCHANGES):
        cluster.every(0.0, 0, fetched)
        cluster.every(0.0, there, back)
    return (time.perf_counter() - began) / (2 * EXCHANGES * count)


@contextlib.contextmanager
def process(script, *argv):
    """A script in a process that ends when its input does."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", script, *map(str, argv)], text=True, **pipes) as found:
        try:
            yield found
        finally:
            found.stdin.close()


@contextlib.contextmanager
def emulated(count):
    """A driver's lines to so many workers."""
    from distributed import Client

    with process(SCHEDULER) as scheduler:
        address = scheduler.stdout.readline().strip()
        with process(WORKERS, address, count), Client(address) as client:
            client.wait_for_workers(count, timeout=120)
            cluster = Emulated(client, count)
            cluster.every(0.0, 1, 1)
            yield cluster


@pytest.mark.parametrize("count", [4, 16, 64])
def test_model__foretells_what_an_emulated_cluster_takes(count, monkeypatch):
    """What a message costs is measured here, before and after; a wire is not there, and its bytes are in that cost."""
    with emulated(count) as cluster:
        before = message_seconds(cluster, count)
        seconds = solved(cluster, count)
        message = (before + message_seconds(cluster, count)) / 2
    monkeypatch.setattr(model, "MESSAGE", message)
    monkeypatch.setattr(model, "BANDWIDTH", np.inf)
    told = f"{count} workers: {seconds:.2f} s, foretold {foretold(count):.2f}, a message {1e3 * message:.2f} ms"
    sys.stdout.write(told + "\n")
    assert seconds == pytest.approx(foretold(count), rel=0.25)
