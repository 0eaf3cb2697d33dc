"""Owners that are killed, stopped and woken: real processes, some in a PID namespace, where ours mean nothing."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from pipeline.storage.cache import claim, evict, using
from pipeline.storage.files import write_atomic
from pipeline.storage.leases import LeaseLost, again_if_lost, delete, owned_folder, owned_name, sweep, told_when_lost
from pipeline.storage.runs import open_store

OWNER = Path(__file__).with_name("owner.py")
ELSEWHERE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]  # where our pids mean nothing
SECONDS = 0.6


@pytest.fixture
def start():
    """Start an owner; returns it and the line that it says first."""
    with contextlib.ExitStack() as stack:

        def started(what, folder, seconds=600, elsewhere=False):
            argv = [*(ELSEWHERE if elsewhere else []), sys.executable, str(OWNER), what, str(folder), str(seconds)]
            process = stack.enter_context(subprocess.Popen(argv, stdin=-1, stdout=-1, text=True))
            stack.callback(_end, process)
            return process, process.stdout.readline().strip()

        yield started


def _end(process):
    with contextlib.suppress(ProcessLookupError, psutil.Error):
        for one in [*psutil.Process(process.pid).children(recursive=True), process]:
            one.kill()


@pytest.fixture
def elsewhere(start, tmp_path):
    """Start an owner that this process takes for one of another host; returns it, its pid here and its line."""
    if os.geteuid() != 0 or subprocess.run([*ELSEWHERE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a PID namespace of its own needs root")

    def started(what, seconds):
        process, line = start(what, tmp_path, seconds, elsewhere=True)
        return process, psutil.Process(process.pid).children()[0].pid, line

    return started


def wake(process):
    """Let the owner end, and return how it did."""
    return process.communicate("\n")[0].strip()


# ---- owners on this host
def test_owner__killed_loses_its_draft_at_once(start, tmp_path):
    process, line = start("draft", tmp_path)
    with open_store(tmp_path).draft():
        assert Path(line).is_dir()
    process.kill()
    process.wait()
    with open_store(tmp_path).draft():
        assert not Path(line).exists()
    assert not list((tmp_path / ".drafts").iterdir())
    assert not list((tmp_path / ".cache" / ".leases").iterdir())


def test_owner__that_is_stopped_here_keeps_its_folder_past_any_expiry(start, tmp_path):
    process, line = start("folder", tmp_path, SECONDS)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(1.5 * SECONDS)
    sweep(tmp_path)
    assert Path(line).is_dir()
    os.kill(process.pid, signal.SIGCONT)
    assert wake(process) == "whole"


def test_owner__whose_pid_is_another_process_now_is_dead(tmp_path):
    host, boot, pid, began, number, seconds = owned_name().rsplit("-", 5)
    for name in (owned_name(), "-".join([host, boot, pid, str(int(began) - 1), number, seconds])):
        (tmp_path / name).mkdir()
    sweep(tmp_path)
    (left,) = tmp_path.iterdir()
    assert f"-{began}-" in left.name


def test_sweep__names_of_an_older_version_go_by_age(tmp_path):
    for name, age in (("host-12-abcdef01", 2 * 86400), ("host-13-abcdef01", 3600)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["host-13-abcdef01"]


# ---- owners elsewhere
def test_owner_elsewhere__is_safe_while_it_beats(elsewhere, tmp_path):
    process, _, line = elsewhere("folder", SECONDS)
    for _ in range(6):
        time.sleep(SECONDS / 3)
        sweep(tmp_path)
    assert Path(line).is_dir()
    assert wake(process) == "whole"


def test_owner_elsewhere__that_slept_too_long_learns_that_its_folder_went(elsewhere, tmp_path):
    process, pid, line = elsewhere("folder", SECONDS)
    os.kill(pid, signal.SIGSTOP)
    sweep(tmp_path)
    assert Path(line).is_dir()
    time.sleep(1.5 * SECONDS)
    sweep(tmp_path)
    assert not Path(line).exists()
    os.kill(pid, signal.SIGCONT)
    assert wake(process) == "lost"


def test_owner_elsewhere__that_slept_and_was_not_swept_goes_on(elsewhere, tmp_path):
    process, pid, line = elsewhere("folder", SECONDS)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(1.5 * SECONDS)
    os.kill(pid, signal.SIGCONT)
    time.sleep(SECONDS / 2)
    sweep(tmp_path)
    assert Path(line).is_dir()
    assert wake(process) == "whole"


def test_cache_elsewhere__is_used_again_by_an_owner_that_woke_up(elsewhere, tmp_path):
    """Asleep for too long it protects nothing; awake again it says anew what it uses."""
    entry = tmp_path / "gram" / "used"
    entry.mkdir(parents=True)
    (entry / "part").write_bytes(b"x" * 8192)
    process, pid, line = elsewhere("cache", SECONDS)
    time.sleep(1.5 * SECONDS)
    assert evict(tmp_path, 0) == 0
    os.kill(pid, signal.SIGSTOP)
    time.sleep(1.5 * SECONDS)
    sweep(tmp_path / ".leases")
    assert not Path(line).exists()
    os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + 20
    while not Path(line).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert evict(tmp_path, 0) == 0
    assert wake(process) == "whole"
    assert evict(tmp_path, 0) == 1


# ---- losing a folder
def test_draft__that_was_taken_away_is_written_anew(tmp_path):
    store, turns = open_store(tmp_path), []

    def work():
        with store.draft() as folder:
            (folder / "metrics.json").write_text("{}")
            if not turns:
                folder.rename(tmp_path / "taken")  # as a sweep does
                folder.mkdir()  # as a library does that makes the folders it writes to
            turns.append(folder)
            assert store.publish(folder, "name/run")

    again_if_lost(work)
    assert len(turns) == 2
    assert [*store.run_keys()] == ["name/run"]


def test_run_keys__folders_that_go_while_they_are_listed_are_no_runs(tmp_path, monkeypatch):
    """Another process prunes: between the name of a folder and what is in it there is time."""
    for name in ("kept/run", "gone/run", "half/run", ".drafts/run", "name/.hidden"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "metrics.json").write_text("{}")
    (tmp_path / "half" / "run" / "metrics.json").unlink()
    scandir = os.scandir

    def pruned(path="."):
        if Path(os.fspath(path)).name == "gone":
            raise FileNotFoundError(path)
        return scandir(path)

    assert [*open_store(tmp_path).run_keys()] == ["gone/run", "kept/run"]
    monkeypatch.setattr(os, "scandir", pruned)
    assert [*open_store(tmp_path).run_keys()] == ["kept/run"]


def test_folder__errors_of_work_that_lost_nothing_stay_what_they_are(tmp_path):
    with pytest.raises(ZeroDivisionError), owned_folder(tmp_path) as folder, told_when_lost(folder):
        _ = 1 / 0
    with pytest.raises(ZeroDivisionError), owned_folder(tmp_path) as folder:
        _ = folder.rmdir() or 1 / 0  # its own doing
    with pytest.raises(LeaseLost) as caught, owned_folder(tmp_path) as folder, told_when_lost(folder):
        os.listdir(folder.rename(tmp_path / "taken").with_name(folder.name))
    assert isinstance(caught.value.__cause__, FileNotFoundError)


# ---- users and removers at once
def test_claim__what_is_there_after_it_stays_there_whoever_evicts(start, tmp_path):
    process, _ = start("removing", tmp_path)
    found = made = 0
    for turn in range(150):
        entry = tmp_path / "gram" / "used"
        with using(tmp_path):
            claim(tmp_path, ["gram/used"])
            if not entry.exists():
                made += 1
                entry.mkdir(parents=True)
                (entry / "part").write_bytes(b"x" * 8192)
            else:
                found += 1
            time.sleep(0.001 * (turn % 4))
            assert (entry / "part").exists()
        time.sleep(0.001 * (turn % 7))
    (tmp_path / "stop").touch()
    wake(process)
    assert made > 1
    assert found > 1


# ---- writes
def test_write__killed_before_its_rename_leaves_what_was_there_and_is_swept(start, tmp_path):
    write_atomic(tmp_path / "file", b"old")
    process, partial = start("torn", tmp_path)
    assert process.wait() == -signal.SIGKILL
    assert Path(partial).read_bytes() == b"new"
    assert (tmp_path / "file").read_bytes() == b"old"
    write_atomic(tmp_path / "file", b"newer")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"newer")]


def test_write__many_at_once_are_each_whole(tmp_path):
    contents = [bytes([k]) * 100_000 for k in range(8)]
    threads = [threading.Thread(target=write_atomic, args=(tmp_path / "file", one, False)) for one in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file").read_bytes() in contents
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("times", [1, 3])
def test_delete__what_comes_while_a_folder_is_emptied_goes_too(times, tmp_path, monkeypatch):
    folder, rmtree, came = tmp_path / "folder", shutil.rmtree, []
    folder.mkdir()

    def meanwhile(path, **how):
        rmtree(path, **how)
        if len(came) < times:
            came.append(path.mkdir())
            (path / "late").write_text("renamed to here after the folder was listed")

    monkeypatch.setattr(shutil, "rmtree", meanwhile)
    delete(folder)
    assert len(came) == times
    assert not folder.exists()
