"""Workers of a run that are lost and come back."""

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from pipeline.compute.cluster import open_workers
from pipeline.compute.workers import ClusterLost
from pipeline.config.load import load_experiment
from pipeline.running import session as sessions
from pipeline.running.session import check_inputs, open_session
from pipeline.running.steps import worth_another_try
from svmcore.errors import InputError


@pytest.fixture
def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


def cluster_at(address):
    """A scheduler and a worker of somebody else."""
    from distributed import LocalCluster

    options = {"n_workers": 1, "processes": False, "protocol": "tcp://", "dashboard_address": ":0"}
    return LocalCluster(**options, scheduler_port=int(address.rpartition(":")[2]))


def session_on(address, folder):
    cluster = {"kind": "address", "address": address, "insecure": True}
    exp = load_experiment({"data": {"source": "sklearn:iris"}, "cluster": cluster})
    return open_session(exp, check_inputs(exp, str(folder)))


def test_remote__a_scheduler_that_is_away_for_longer_than_an_attempt_is_found_again(address, tmp_path, monkeypatch):
    """It is started again when the first attempt to reach it has failed, not a moment sooner."""
    monkeypatch.setattr("pipeline.compute.cluster.CONNECT_SECONDS", 0.5)
    first, second = cluster_at(address), []
    with session_on(address, tmp_path) as session:
        assert dict(session.workers.map(abs, [-1])) == {0: 1}
        first.close()
        with pytest.raises(ClusterLost) as lost:
            dict(session.workers.map(abs, [-1, -2]))
        assert worth_another_try(lost.value)

        def pause(seconds):
            if not second:
                monkeypatch.setattr("pipeline.compute.cluster.CONNECT_SECONDS", 12.0)
                second.append(cluster_at(address))

        monkeypatch.setattr(sessions, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
        assert dict(session.workers.map(abs, [-1, -2])) == {0: 1, 1: 2}
    second[0].close()


def test_remote__one_that_was_never_there_is_refused_at_once(address, tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.compute.cluster.CONNECT_SECONDS", 0.5)
    with pytest.raises(InputError, match="does not answer"), session_on(address, tmp_path):
        pass
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_remote__one_that_does_not_come_back_is_lost(address, tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.compute.workers.LOST_SECONDS", 0.5)
    monkeypatch.setattr("pipeline.compute.cluster.CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(sessions, "LOST_SECONDS", 0.5)
    first = cluster_at(address)
    with session_on(address, tmp_path) as session:
        first.close()
        for sentence in ("run the command again", "did not come back"):
            with pytest.raises(ClusterLost, match=sentence):
                dict(session.workers.map(abs, [-1, -2]))


def test_steady__workers_that_were_lost_open_no_others(address, tmp_path, monkeypatch):
    """Shards are asked on many threads: what one finds lost, no other may put in its place."""
    monkeypatch.setattr("pipeline.compute.workers.LOST_SECONDS", 0.5)
    monkeypatch.setattr("pipeline.compute.cluster.CONNECT_SECONDS", 3.0)
    first = cluster_at(address)
    with session_on(address, tmp_path) as session:
        steady = session.workers.steady()
        assert dict(steady.map(abs, [-1])) == {0: 1}
        (where,) = steady.addresses()
        first.close()
        with pytest.raises(ClusterLost):
            dict(steady.map(abs, [-1]))
        with cluster_at(address):
            assert steady.ask(abs, -1, where) is None
            assert dict(session.workers.map(abs, [-1])) == {0: 1}
            assert session.workers.addresses() != [where]


def test_remote__workers_are_opened_again_on_another_thread(address, tmp_path, monkeypatch):
    """As kernels are, which are computed ahead of the solver; SIGTERM is as it was when all is done."""
    monkeypatch.setattr("pipeline.compute.workers.LOST_SECONDS", 0.5)
    monkeypatch.setattr("pipeline.compute.cluster.CONNECT_SECONDS", 3.0)
    before, first = signal.getsignal(signal.SIGTERM), cluster_at(address)
    with session_on(address, tmp_path) as session, ThreadPoolExecutor(1) as pool:
        first.close()
        with pytest.raises(ClusterLost):
            dict(session.workers.map(abs, [-1]))
        with cluster_at(address):
            assert pool.submit(lambda: dict(session.workers.map(abs, [-1]))).result() == {0: 1}
    assert signal.getsignal(signal.SIGTERM) == before


def test_local__workers_that_are_killed_as_they_start_are_started_again(monkeypatch):
    """Dask says "Nanny failed to start", which is no fault of the input or the code."""

    def fails(**options):
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr("distributed.LocalCluster", fails)
    with pytest.raises(ClusterLost, match="did not start") as lost, open_workers({"kind": "local", "workers": 1}):
        pass
    assert worth_another_try(lost.value)
