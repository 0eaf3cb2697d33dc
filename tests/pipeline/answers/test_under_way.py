"""Variables of a long solve, kept for whoever comes after a kill."""

import dataclasses

import numpy as np
import pytest

from pipeline.answers import under_way
from pipeline.answers.problem import ProblemTask
from svmcore.monitor import Monitor

TASK = ProblemTask("", "", None, "", "", {"name": "linear"}, {"name": "svc"}, "ovr", 0, 1.0, None, {"name": "smo"})


@pytest.fixture
def task(tmp_path):
    return dataclasses.replace(TASK, root=str(tmp_path))


def test_kept__are_found_by_the_same_problem_and_forgotten_with_its_answer(task):
    assert under_way.kept(task, 5) is None
    beta = np.array([0.0, 1.5, 0.0, -0.25, 0.0])
    under_way.keep(task, beta)
    np.testing.assert_array_equal(under_way.kept(task, 5), beta)
    assert under_way.kept(task, 6) is None
    assert under_way.kept(dataclasses.replace(task, C=2.0), 5) is None
    under_way.forget(task)
    under_way.forget(task)
    assert under_way.kept(task, 5) is None


def test_kept__that_cannot_be_read_are_none(task):
    under_way.keep(task, np.ones(3))
    file = under_way.place(task)
    file.write_bytes(file.read_bytes()[:40])
    assert under_way.kept(task, 3) is None


def test_monitor__hands_variables_over_every_thirty_seconds(monkeypatch):
    now, kept = [100.0], []
    monkeypatch.setattr("svmcore.monitor.time.perf_counter", lambda: now[0])
    monitor = Monitor(keep=lambda beta: kept.append((now[0], beta)), _started=100.0)
    for now[0] in (100.0, 129.9, 130.0, 140.0, 159.9, 160.5):
        monitor.keeps(lambda: "beta")
    assert kept == [(130.0, "beta"), (160.5, "beta")]
    Monitor().keeps(lambda: pytest.fail("nobody keeps them"))
