"""Processes share what they compile: each function is compiled once, and none runs what is stale or another's."""

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from svmcore.runtime import compiled_files
from svmcore.runtime.compiled_files import forget_moved

FUNCTION = """
from svmcore.runtime.compiled import njit

@njit
def grown(x):
    return x + {step}
"""
CALL = """
import sys, time
from pathlib import Path
import numpy as np
from function import grown

Path(f"here.{sys.argv[2]}").touch()
while len(list(Path().glob("here.*"))) < int(sys.argv[3]):
    time.sleep(0.001)
x = np.dtype(sys.argv[1]).type(1)
print(float(grown(x)), sum(grown.stats.cache_misses.values()), sum(grown.stats.cache_hits.values()))
"""
KILLED = """
import os
import numpy as np
from function import grown

grown._cache._cache_file._save_data = lambda name, data: os._exit(9)
grown(np.float64(1))
"""
TYPES = ("float64", "float32")


@pytest.fixture
def folder(tmp_path):
    """A folder with a module of one function, which is compiled into it."""
    (tmp_path / "call.py").write_text(CALL)
    (tmp_path / "killed.py").write_text(KILLED)
    write(tmp_path, step=1)
    return tmp_path


def write(folder, step):
    """The module, of another size each time: numba tells files apart by that and by the clock."""
    (folder / "function.py").write_text(FUNCTION.format(step=step) + "#" * step)


def started(folder, *argv):
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder / "compiled")}
    return subprocess.Popen([sys.executable, *argv], env=env, cwd=folder, stdout=subprocess.PIPE, text=True)


def told(process):
    """What a process says: the result, and how often it compiled and how often it found what was compiled."""
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    result, misses, hits = out.split()
    return float(result), int(misses), int(hits)


def called(folder, kinds):
    """Processes that call the function at the same time, each with a number of its kind."""
    for old in folder.glob("here.*"):
        old.unlink()
    count = str(len(kinds))
    return [told(p) for p in [started(folder, "call.py", kind, str(i), count) for i, kind in enumerate(kinds)]]


def codes(folder):
    return sorted(folder.rglob("*.nbc"))


def test_processes__compile_a_function_once(folder):
    found = called(folder, ["float64"] * 2)
    assert sorted(found) == [(2.0, 0, 1), (2.0, 1, 0)]
    assert len(codes(folder)) == 1


def test_processes__that_compile_for_different_types_keep_all(folder):
    assert [found[:2] for found in called(folder, TYPES)] == [(2.0, 1)] * len(TYPES)
    assert [found for kind in TYPES for found in called(folder, [kind])] == [(2.0, 0, 1)] * len(TYPES)


def test_process__that_is_killed_between_index_and_code_leaves_nothing_stale(folder):
    assert called(folder, ["float64"]) == [(2.0, 1, 0)]
    write(folder, step=10)
    killed = started(folder, "killed.py")
    assert killed.wait(timeout=120) == 9
    killed.stdout.close()
    assert called(folder, ["float64"]) == [(11.0, 1, 0)]
    assert called(folder, ["float64"]) == [(11.0, 0, 1)]


def test_code__of_before_is_swept_away(folder):
    called(folder, ["float64", "float32"])
    write(folder, step=10)
    assert called(folder, ["float64"]) == [(11.0, 1, 0)]
    assert len(codes(folder)) == 1


def test_lock__of_a_process_that_never_ends_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_files, "PATIENCE", 0.1)
    path = tmp_path / "a.lock"
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with compiled_files._alone(path):
            pass
        with compiled_files._alone(tmp_path / "b.lock"), path.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with compiled_files._alone(path), path.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_lock__is_given_back_though_a_child_has_its_file(tmp_path):
    path = tmp_path / "a.lock"
    with compiled_files._alone(path):
        child = os.fork()
        if child == 0:
            signal.pause()
    try:
        with path.open() as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_lock__is_not_needed_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    with compiled_files._alone(tmp_path / "file" / "a.lock"):
        assert not (tmp_path / "file" / "a.lock").exists()


def package(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def compiled(folder):
    return sorted(path.name for path in folder.rglob("*.nb[ic]"))


def test_forget_moved__keeps_what_was_compiled_from_the_same_files(tmp_path):
    root = package(tmp_path, "a.py", "room/b.py")
    forget_moved(root)
    package(root, "__pycache__/a.nbi", "room/__pycache__/b.nbi")
    forget_moved(root)
    assert compiled(root) == ["a.nbi", "b.nbi"]


def test_forget_moved__deletes_it_when_a_file_has_moved(tmp_path):
    root = package(tmp_path, "a.py", "room/b.py")
    forget_moved(root)
    package(root, "__pycache__/a.nbi", "__pycache__/a.1.nbc", "room/__pycache__/b.nbi")
    (root / "room" / "b.py").rename(root / "b.py")
    forget_moved(root)
    assert compiled(root) == []
    assert len(list(root.glob("__pycache__/modules.*"))) == 1


def test_forget_moved__deletes_it_when_the_options_have_changed(tmp_path):
    root = package(tmp_path, "a.py")
    forget_moved(root, b"before")
    package(root, "__pycache__/a.nbi")
    forget_moved(root, b"after")
    assert compiled(root) == []


def test_forget_moved__leaves_a_package_that_cannot_be_written_to(tmp_path):
    root = package(tmp_path, "a.py")
    (root / "__pycache__").touch()  # no folder can be made here
    forget_moved(root)
