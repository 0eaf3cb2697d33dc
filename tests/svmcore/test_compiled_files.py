"""Processes share what they compile: each function is compiled once, and none runs what is stale or another's."""

import fcntl
import os
import pickle
import signal

import numba
import numpy as np
import pytest

from svmcore.runtime import compiled_files
from svmcore.runtime.compiled_from import made_from

from ..forks import forks_with

FUNCTION = """
from svmcore.runtime.compiled import njit_sums

@njit_sums  # its options are a set, in another order in each process
def grown(x):
    return x + {step}
"""
# The first compilation of a process takes longer than another, and not always as long.
IMPORTS = "import numba, numpy, svmcore.runtime.compiled; numba.njit(lambda x: x)(1.0)"
FRESH = """
import sys
import numba

sys.dont_write_bytecode = True  # it would be taken for the source that follows in the same second
numba.config.CACHE_DIR = "compiled"
"""
CALL = (
    FRESH
    + """
import time
from pathlib import Path
import numpy as np
from function import grown

Path(f"here.{sys.argv[2]}").touch()
while len(list(Path().glob("here.*"))) < int(sys.argv[3]):
    time.sleep(0.001)
x = np.dtype(sys.argv[1]).type(1)
print(float(grown(x)), sum(grown.stats.cache_misses.values()), sum(grown.stats.cache_hits.values()))
"""
)
KILLED = (
    FRESH
    + """
import os
import numpy as np
from function import grown

grown._cache._cache_file._save_data = lambda name, data: os._exit(9)
grown(np.float64(1))
"""
)
TYPES = ("float64", "float32")
GONE = pickle.dumps(numba.__version__) + b"cmodule_that_has_gone\nName\n."


@pytest.fixture(scope="module")
def forks():
    with forks_with(IMPORTS) as forks:
        yield forks


@pytest.fixture
def folder(tmp_path):
    """A folder with a module of one function, which is compiled into it."""
    write(tmp_path, step=1)
    return tmp_path


def write(folder, step):
    """The module, of another size each time: numba tells files apart by that and by the clock."""
    (folder / "function.py").write_text(FUNCTION.format(step=step) + "#" * step)


def called(forks, folder, kinds):
    """Processes that call the function at the same time, each with a number of its kind.

    What each says: the result, and how often it compiled and how often it found what was compiled.
    """
    for old in folder.glob("here.*"):
        old.unlink()
    argvs = [[kind, str(place), str(len(kinds))] for place, kind in enumerate(kinds)]
    return [told(*ended) for ended in forks.run(folder, *[CALL] * len(kinds), argvs=argvs)]


def told(code, output):
    assert code == 0, output
    result, misses, hits = output.split()
    return float(result), int(misses), int(hits)


def codes(folder):
    return sorted(folder.rglob("*.nbc"))


def test_processes__compile_a_function_once(forks, folder):
    found = called(forks, folder, ["float64"] * 2)
    assert sorted(found) == [(2.0, 0, 1), (2.0, 1, 0)]
    assert len(codes(folder)) == 1


def test_processes__that_compile_for_different_types_keep_all(forks, folder):
    assert [found[:2] for found in called(forks, folder, TYPES)] == [(2.0, 1)] * len(TYPES)
    assert [found for kind in TYPES for found in called(forks, folder, [kind])] == [(2.0, 0, 1)] * len(TYPES)


def test_process__that_is_killed_between_index_and_code_leaves_nothing_stale(forks, folder):
    assert called(forks, folder, ["float64"]) == [(2.0, 1, 0)]
    write(folder, step=10)
    assert forks.run(folder, KILLED) == [(9, "")]
    assert called(forks, folder, ["float64"]) == [(11.0, 1, 0)]
    assert called(forks, folder, ["float64"]) == [(11.0, 0, 1)]


def test_code__of_before_is_swept_away(forks, folder):
    called(forks, folder, ["float64", "float32"])
    write(folder, step=10)
    assert called(forks, folder, ["float64"]) == [(11.0, 1, 0)]
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


@pytest.mark.parametrize(
    ("suffix", "left"),
    [
        (".nbi", lambda content: b""),
        (".nbi", lambda content: content[: len(content) // 2]),
        (".nbi", lambda content: GONE),
        (".nbc", lambda content: b""),
        (".nbc", lambda content: content[: len(content) // 2]),
    ],
    ids=["no index", "half an index", "an index of what has gone", "no code", "half of the code"],
)
def test_file__that_cannot_be_read_is_compiled_again(suffix, left, forks, folder):
    """As a full disk, a power cut or a version with other modules leaves it."""
    assert called(forks, folder, ["float64"]) == [(2.0, 1, 0)]
    (path,) = folder.rglob(f"*{suffix}")
    path.write_bytes(left(path.read_bytes()))
    assert called(forks, folder, ["float64"]) == [(2.0, 1, 0)]
    assert called(forks, folder, ["float64"]) == [(2.0, 0, 1)]


CALLER = """
from svmcore.runtime.compiled import njit
import elsewhere
from elsewhere import {name}

@njit
def grown(x):
    return inner(x)

@njit
def inner(x):
    return x + {value}
"""
COMPILED = """
from svmcore.runtime.compiled import njit
from further import STEP

@njit
def step():
    return STEP
"""
WRITTEN = """
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from further import amount

@intrinsic
def step(context):
    def generate(context, builder, signature, arguments):
        return amount()
    return types.int64(), generate
"""
FURTHER = """
STEP = {step}

def amount():
    from llvmlite import ir
    return ir.Constant(ir.IntType(64), {step})
"""


@pytest.mark.parametrize(
    ("elsewhere", "name", "value"),
    [
        ("from further import STEP", "STEP", "STEP"),
        (COMPILED, "step", "step()"),
        (WRITTEN.replace("from further import amount", FURTHER), "step", "step()"),
    ],
    ids=["a constant", "what a function reads", "what is not compiled"],
)
def test_code__is_stale_once_another_file_has_changed(elsewhere, name, value, forks, folder):
    def change(step):
        (folder / "further.py").write_text(FURTHER.format(step=step))
        (folder / "elsewhere.py").write_text(elsewhere.replace("{step}", str(step)))

    (folder / "function.py").write_text(CALLER.format(name=name, value=value))
    change(1)
    assert called(forks, folder, ["float64"]) == [(2.0, 1, 0)]
    assert called(forks, folder, ["float64"]) == [(2.0, 0, 1)]
    change(10)
    assert called(forks, folder, ["float64"]) == [(11.0, 1, 0)]


def test_made_from__looks_into_modules_of_the_same_package(monkeypatch):
    def function(x):
        return compiled_files.PATIENCE + np.pi

    function.__module__ = "svmcore.somewhere"
    before = made_from(function, {})
    monkeypatch.setattr(np, "pi", 3)
    assert made_from(function, {}) == before
    monkeypatch.setattr(compiled_files, "PATIENCE", 1.0)
    assert made_from(function, {}) != before


def test_made_from__tells_other_options_in_any_order():
    def function(x):
        return x

    options = {"fastmath": {"contract", "reassoc"}, "nogil": True}
    assert made_from(function, options) == made_from(function, dict(reversed(options.items())))
    assert made_from(function, options) != made_from(function, options | {"fastmath": {"contract"}})
