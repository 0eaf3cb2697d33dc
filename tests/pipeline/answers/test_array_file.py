"""Facts and arrays in one file: what is written is read, and every other byte is told."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from pipeline.answers.array_file import read_arrays, write_arrays
from pipeline.storage.files import sweep_drafts
from pipeline.storage.manifest import Damaged, new_manifest
from svmcore.errors import InputError

FACTS = {"C": 2.5, "certificate": {"gap": None}}
ARRAYS = {"rows": np.array([3, 1, 2]), "beta": np.array([0.5, -0.0, np.inf]), "none": np.empty(0)}


@pytest.fixture
def file(tmp_path):
    write_arrays(tmp_path / "deep" / "one", "answer", 3, FACTS, ARRAYS)
    return tmp_path / "deep" / "one"


@given(
    st.dictionaries(
        st.text(max_size=5),
        arrays_of.arrays(st.sampled_from(["<f8", "<i8", "<f4", "|u1", "|b1"]), st.integers(0, 20)),
        max_size=4,
    )
)
def test_read__gives_the_bits_that_were_written(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("arrays") / "one"
    write_arrays(path, "answer", 3, FACTS, arrays)
    facts, found = read_arrays(path, "answer", 3)
    assert {name: facts[name] for name in FACTS} == FACTS
    assert {name: (a.dtype, a.tobytes()) for name, a in found.items()} == {
        name: (a.dtype, a.tobytes()) for name, a in arrays.items()
    }


def test_read__tells_every_changed_byte(file):
    whole = file.read_bytes()
    assert whole.index(b"\n") < len(whole) - 48
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(InputError):
            read_arrays(file, "answer", 3)


def test_read__tells_every_length_but_the_right_one(file):
    whole = file.read_bytes()
    for data in (*(whole[:length] for length in range(len(whole))), whole + b"\0"):
        file.write_bytes(data)
        with pytest.raises(Damaged, match=r"one: damaged: .*; delete it and run again"):
            read_arrays(file, "answer", 3)


@pytest.mark.parametrize(
    ("shapes", "numbers"),
    [({"beta": ["|O", 1]}, b"\0" * 8), ({"beta": ["<f8", 2]}, b"\0" * 8), ({"beta": 5}, b""), (["beta"], b"")],
    ids=["objects", "too long", "no shape", "no names"],
)
def test_read__of_one_whose_hashes_fit_another_hand_says_so(tmp_path, shapes, numbers):
    facts = {"arrays": shapes}
    first = new_manifest("answer", 3, facts, {"arrays": hashlib.sha256(numbers).hexdigest()})
    (tmp_path / "one").write_bytes(json.dumps(first).encode() + b"\n" + numbers)
    with pytest.raises(InputError, match=r"one: its hashes fit, but its arrays are none .*; delete it and run again"):
        read_arrays(tmp_path / "one", "answer", 3)


def test_read__of_another_kind_or_of_none(file):
    with pytest.raises(InputError, match="holds a answer, and a model is needed"):
        read_arrays(file, "model", 3)
    with pytest.raises(InputError, match="install a newer marginflow"):
        read_arrays(file, "answer", 2)
    with pytest.raises(FileNotFoundError):
        read_arrays(file.with_name("other"), "answer", 3)


def test_write__that_was_killed_leaves_what_the_sweep_of_its_folder_removes(file):
    """A draft is not taken for a file, and the next writer does not list the folder for it."""
    script = (
        "import os, sys; from pathlib import Path; from pipeline.storage import files\n"
        "files.rename = lambda *of: os._exit(9)\n"
        "files.write_atomic(Path(sys.argv[1]), b'half', durable=False, swept=False)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(file)], check=False).returncode == 9
    assert len([*file.parent.iterdir()]) == 2
    write_arrays(file, "answer", 3, FACTS, ARRAYS)
    assert len([*file.parent.iterdir()]) == 2
    sweep_drafts(file.parent)
    assert [*file.parent.iterdir()] == [file]
