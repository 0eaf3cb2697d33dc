"""A user's own Dask client, its dashboard, and its report of what the workers did."""

import pytest
from distributed import get_task_stream

from pipeline import run
from pipeline.compute import dashboard
from svmcore.errors import InputError

CONFIG = {
    "data": {"source": "sklearn:iris", "test": 0.2, "scale": "standard"},
    "kernel": {"name": "rbf", "gamma": 0.5},
    "sweep": {"grid": {"C": [1, 10]}, "folds": 3},
}


def test_run__on_the_users_own_client_gives_the_same_answers_and_leaves_it_open(two_workers, tmp_path):
    client = two_workers.client
    with get_task_stream(client) as stream:
        found = run(CONFIG, store=str(tmp_path / "a"), client=client)
    same = run(CONFIG | {"cluster": {"kind": "inline"}}, store=str(tmp_path / "b"))
    for name in ("points", "best"):
        without = [{k: v for k, v in point.items() if k != "seconds"} for point in _list(found[name])]
        assert without == [{k: v for k, v in point.items() if k != "seconds"} for point in _list(same[name])]
    assert client.submit(abs, -1).result() == 1
    names = {key["key"].rpartition("-")[0] for key in stream.data}
    assert {"compute strip", "solve some"} <= names
    assert found["config"]["cluster"]["address"] == client.scheduler.address


def _list(points):
    return points if isinstance(points, list) else [points]


class Client:
    dashboard_link = "http://host:8787/status"

    def __init__(self, *services):
        self.services = dict.fromkeys(services, 1)

    def scheduler_info(self, n_workers):
        return {"services": self.services}


def test_dashboard__is_told_where_one_is_served(monkeypatch):
    monkeypatch.setattr(dashboard, "_has_bokeh", lambda: True)
    assert dashboard.dashboard_of(Client("dashboard")) == "http://host:8787/status"
    assert dashboard.dashboard_of(Client()) is None
    monkeypatch.setattr(dashboard, "_has_bokeh", lambda: False)
    assert dashboard.dashboard_of(Client("dashboard")) is None


def test_performance_report__that_nothing_can_draw_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(dashboard, "_has_bokeh", lambda: False)
    with pytest.raises(InputError, match="needs bokeh"):
        dashboard.check_reportable()
