"""Rows in shards on the workers, for a K that fits no one process: who holds which, and how they are spoken with.

A shard has a home, the worker that answered for it last. No task is pinned: where the home has gone another worker
answers that it has no such shard, and is told what makes one.
"""

import threading
from typing import Any

import numpy as np

from pipeline.compute.workers import ClusterLost, Workers
from pipeline.config.schema import Experiment
from pipeline.kernel.choose import KernelPlan
from pipeline.rows.dataset import open_dataset
from svmcore.kernels import Kernel
from svmcore.shards import Envelope, Host, Reply, ShardedSource
from svmcore.train.posing.plan import served_kernel

__all__ = ["WorkerShards", "open_shards"]

SAMPLE = 4096  # rows that tell how all are prepared
ASKED_HOME = 3  # how often a home is asked again, while it lives, after another worker took its task
COLUMNS_SHARE = 0.4  # of a worker's memory


def _rows(address: str, start: int, stop: int) -> Any:
    return open_dataset(address).X(start, stop)


_host = Host(_rows)  # of this process


def _host_answer(envelope: Envelope) -> Reply:
    """Answer a message; the host is that of the process it came to."""
    return _host.answer(envelope)


def shard_answer(envelope: Envelope) -> tuple[str, Reply]:
    """Answer a message on a worker, which says who it is."""
    return _here(), _host_answer(envelope)


def _here() -> str:
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:  # in the driver's own process
        return ""


class WorkerShards:
    """The way to the shards: a callable of a shard's number and a message, for several threads at once."""

    def __init__(self, workers: Workers) -> None:
        self.workers, self.homes = workers, dict[int, str]()
        self.lost: ClusterLost | None = None
        self._lock = threading.Lock()
        self._there = workers.addresses()

    def __call__(self, index: int, envelope: Envelope) -> Reply:
        """Ask the home of the shard, or who is there; once the cluster was lost, nobody: others open it anew."""
        if self.lost is not None:
            raise self.lost
        for _ in range(ASKED_HOME):
            home = self._home(index)
            where, reply = self._asked(envelope, home)
            if where == home or reply.generation is not None:
                break
            self._there = self.workers.addresses()
        if reply.generation is not None:
            self.homes[index] = where
        return reply

    def _asked(self, envelope: Envelope, home: str) -> tuple[str, Reply]:
        """Who has answered, and what: the home by the short way, or whoever took the task."""
        if (reply := self.workers.ask(_host_answer, envelope, home)) is not None:
            return home, reply
        try:
            ((_, answer),) = self.workers.map(shard_answer, [envelope], near=home)
        except ClusterLost as error:
            self.lost = error
            raise
        return answer

    def _home(self, index: int) -> str:
        """The home of a shard; where it has none, or that has gone, the worker with the fewest shards."""
        with self._lock:
            if self.homes.get(index) not in self._there:
                held = [self.homes.get(other) for other in self.homes]
                self.homes[index] = min(self._there or [""], key=lambda one: (held.count(one), one))
            return self.homes[index]


def open_shards(exp: Experiment, address: str, dataset: Any, plan: KernelPlan, workers: Workers) -> ShardedSource:
    """The rows of a dataset, which workers find at `address`, in as many shards as there are workers."""
    kernel = served_kernel(Kernel.create(plan.kernel), exp.machine)
    count = max(1, min(workers.n, dataset.n_merged))
    edges = np.linspace(0, dataset.n_merged, count + 1).round().astype(int).tolist()
    sample = dataset.X(0, min(SAMPLE, dataset.n_merged))
    limit = columns_bytes(exp, count)
    return ShardedSource.open(address, edges, kernel, sample, plan.dtype, WorkerShards(workers.steady()), limit)


def columns_bytes(exp: Experiment, count: int) -> int:
    """Bytes of the columns of each of `count` shards: a part of a worker's memory, or of what this host may use."""
    limit = exp.cache.limit if exp.cluster.remote else exp.cache.limit // count
    return limit if exp.cluster.memory is None else min(limit, int(COLUMNS_SHARE * exp.cluster.memory))
