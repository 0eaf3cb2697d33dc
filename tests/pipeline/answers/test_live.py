"""How problems tell that they run and that they have ended, and who counts them."""

import threading
import time

import pytest

from pipeline.answers.live import Line, watching
from pipeline.storage.leases import owned_folder
from svmcore.monitor import Progress


@pytest.fixture
def watched(tmp_path):
    """A watch of five problems, two of which were found, and what it has passed on."""
    told = []

    def progress(stage, done, total, **info):
        told.append((done, total, info["status"]))

    with watching(tmp_path / "live", {}, 5, progress, before=2) as watch:
        yield watch, told


def wait_for(told, count):
    deadline = time.monotonic() + 20
    while len(told) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return told


def test_watch__counts_a_problem_by_its_own_line_and_not_again_by_its_task(watched):
    watch, told = watched
    Line(str(watch.folder), "a" * 64).ended(9.0, 100, 1e-4, "converged")
    assert wait_for(told, 1) == [(3, 5, "converged")]
    watch.finished("a" * 64, 1e-4, "converged")
    watch.finished("b" * 64, None, "infeasible")
    assert told == [(3, 5, "converged"), (4, 5, "infeasible")]


def test_watch__counts_none_that_runs_or_was_stopped(watched):
    watch, told = watched
    line = Line(str(watch.folder), "a" * 64)
    line.report(Progress(1.0, 10, 0.5))
    assert wait_for(told, 1) == [(2, 5, "running")]
    line.ended(1.0, 10, 0.5, "stopped")
    time.sleep(0.5)
    assert told == [(2, 5, "running")]
    assert watch.done == 2


def test_problems__that_tell_all_the_time_are_stopped_with_their_folder(tmp_path):
    """A file that comes while a folder is emptied keeps it, and no problem would stop before its own end."""
    for _ in range(10):
        with owned_folder(tmp_path / "live") as folder:
            lines = [Line(str(folder), letter * 64) for letter in "abcd"]
            solvers = [threading.Thread(target=tell_until_stopped, args=(line,)) for line in lines]
            for solver in solvers:
                solver.start()
            wait_for_files(folder, len(lines))
        for solver in solvers:
            solver.join(timeout=2)
        assert not any(solver.is_alive() for solver in solvers)
        assert not list((tmp_path / "live").iterdir())


def tell_until_stopped(line):
    deadline = time.monotonic() + 10
    while not line.stopped() and time.monotonic() < deadline:
        line.report(Progress(1.0, 10, 0.5))


def wait_for_files(folder, count):
    while len([file for file in folder.iterdir() if len(file.name) == 32]) < count:
        time.sleep(0.002)
