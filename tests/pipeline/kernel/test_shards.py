"""Rows in shards on Dask workers: the same proof as in one process, also where workers are killed in mid-run."""

import os
import signal
import threading

import numpy as np
import pytest

from pipeline.compute.cluster import open_workers
from pipeline.compute.workers import ClusterLost, InlineWorkers
from pipeline.config.load import load_experiment
from pipeline.kernel.choose import asked_or_chosen, plan_kernel
from pipeline.kernel.columns import computed_columns
from pipeline.kernel.shards import columns_bytes, open_shards
from pipeline.rows.dataset import ingest
from svmcore import certify
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.solvers import SMO
from svmcore.tasks import classification

KERNEL = {"name": "rbf", "gamma": 0.3}


@pytest.fixture(scope="module")
def exp(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 5))
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * rng.normal(size=3000) > 0.8, 1, -1)
    np.savez(folder / "rows.npz", X=X, y=y)
    return load_experiment({"data": {"source": str(folder / "rows.npz")}, "kernel": KERNEL, "plan": "shards"})


@pytest.fixture(scope="module")
def data(exp, tmp_path_factory):
    return ingest(exp, tmp_path_factory.mktemp("cache"))


def opened(exp, data, workers):
    return open_shards(exp, str(data.path), data, plan_kernel(exp, data, data.path.parents[1]), workers)


def proved(data, y, found, C=10.0):
    """By float64 columns of one process."""
    judge = computed_columns(str(data.path), Kernel.create(KERNEL), np.float64)
    return certify(classification(judge, y, C), found.beta).proves(1e-3)


def target(data):
    return np.where(data.targets() > 0, 1.0, -1.0)


def test_shards__on_workers_are_proved_and_end_with_their_source(exp, data, two_workers):
    source, y = opened(exp, data, two_workers), target(data)
    assert len(source.group.lines) == 2
    found = SMO().solve(classification(source, y, 10.0))
    assert found.status == "converged"
    assert proved(data, y, found)
    homes = source.table.transport.homes
    assert sorted(homes.values()) == two_workers.addresses()
    assert sum(held_on(two_workers).values()) == 2
    source.close()
    assert all(line.losses == 0 for line in source.group.lines)


def held_on(workers):
    from pipeline.kernel import shards

    return workers.client.run(lambda: len(shards._host.shards))


def test_shards__in_this_process(exp, data):
    found = SMO().solve(classification(opened(exp, data, InlineWorkers()), target(data), 10.0))
    assert proved(data, target(data), found)


def test_shards__of_a_worker_that_is_killed_are_made_again_on_another(exp, data):
    """One of two workers dies as soon as it holds a program, and the one in its place, and the other one."""
    with open_workers({"kind": "local", "workers": 2}) as workers:
        source, y = opened(exp, data, workers), target(data)
        killed = []

        def kill(index):
            pids = workers.client.run(os.getpid)
            pid = pids.get(source.table.transport.homes.get(index), 0)
            if pid:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

        state_of, told = source.state, threading.Event()

        def watched(qp, beta, score):
            state = state_of(qp, beta, score)
            apply = state.apply

            def counted(idx, values):
                if state.n_rounds in (1, 3, 4):
                    kill(state.n_rounds % 2)
                apply(idx, values)
                told.set()

            state.apply = counted
            return state

        source.state = watched
        found = SMO(newcomers=32).solve(classification(source, y, 10.0))
        assert len(killed) == 3
        assert found.status == "converged"
        assert proved(data, y, found)
        assert sum(line.losses for line in source.group.lines) >= 3


class Gone(InlineWorkers):
    """Workers that are lost after so many calls."""

    left = 8

    def map(self, fn, items, **more):
        self.left -= 1
        if self.left < 0:
            raise ClusterLost("nobody is left")
        return super().map(fn, items)


def test_shards__of_a_cluster_that_is_lost_ask_nobody_any_more(exp, data):
    workers = Gone()
    source = opened(exp, data, workers)
    with pytest.raises(ClusterLost, match="nobody is left"):
        SMO(newcomers=32).solve(classification(source, target(data), 10.0))
    source.close()
    with pytest.raises(ClusterLost, match="nobody is left"):
        source.table.transport(0, None)
    assert workers.left == -1


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"solver": "smo-mvp"}, "plan: shards is for solver smo, not smo-mvp; set solver.name: smo"),
        ({"plan": "resident", "cache": {"limit": "1MB"}}, "plan: resident needs 34.3 MiB for K"),
    ],
)
def test_plan__that_cannot_be_is_refused(exp, data, more, error):
    given = load_experiment(exp.to_dict() | more)
    with pytest.raises(InputError, match=error):
        asked_or_chosen(given, data, np.float32)


def test_plan__is_chosen_by_where_workers_are_and_what_fits(exp, data):
    far = {"kind": "address", "address": "tcp://far:1", "insecure": True}
    small = {"limit": "1MB"}

    def chosen(**keys):
        return asked_or_chosen(load_experiment(exp.to_dict() | {"plan": "auto"} | keys), data, np.float32)

    assert chosen() == chosen(cluster=far) == "resident"
    assert chosen(cache=small) == "columns"
    assert chosen(cache=small, cluster=far) == "shards"
    assert chosen(cache=small, cluster=far, solver="smo-mvp") == "columns"


def test_columns__of_a_shard_have_their_part_of_the_memory(exp):
    def bytes_of(**cluster):
        given = exp.to_dict() | {"cache": {"limit": "1GiB"}, "cluster": cluster}
        return columns_bytes(load_experiment(given), 4)

    assert bytes_of(kind="local") == 1 << 28
    assert bytes_of(kind="local", memory="100MB") == 40_000_000
    assert bytes_of(kind="address", address="tcp://far:1", insecure=True) == 1 << 30


def test_ask__goes_straight_to_a_worker_and_says_nothing_where_there_is_none(two_workers):
    address = two_workers.addresses()[0]
    assert two_workers.ask(abs, -2, address) == 2
    assert two_workers.ask(abs, "a string", address) is None
    assert two_workers.ask(abs, -2, "tls://127.0.0.1:1") is None
    assert InlineWorkers().ask(abs, -2, "") is None
