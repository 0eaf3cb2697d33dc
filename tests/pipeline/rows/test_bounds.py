"""Files that promise more than they hold are refused before memory is taken. 6 s in all."""

import bz2
import gzip
import io
import json
import tracemalloc
import zipfile

import numpy as np
import pytest
import zarr

from pipeline.config.sections import Data
from pipeline.rows.sources.open import open_source
from svmcore.errors import InputError

ROOM = 400 << 20  # bytes; every file here would take more, most of them more than there is


def refused(path, **extra):
    """The error of a source, in one line, and within ROOM."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            list(open_source(str(path), Data(source=str(path)), **extra).blocks())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    assert peak < ROOM, f"{peak:,} bytes"
    return text


# ---- compression and lines
@pytest.mark.parametrize(("pack", "compressed"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
@pytest.mark.parametrize("name", ["a.csv", "a.libsvm"])
def test_an_archive_that_grows_without_end_is_refused(tmp_path, name, pack, compressed):
    """96 MB of rows that are all alike: each block of them is small, and there could be any number."""
    path = tmp_path / (name + pack)
    line = (b"0." + b"0" * 2044 + b",") * 4 + b"1\n" if "csv" in name else b"1 1:1" + b" " * 8186 + b"\n"
    path.write_bytes(compressed(line * 2048) * 6)
    assert "more than 250 times" in refused(path)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.libsvm"])
def test_a_line_without_an_end_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"1" * (70 << 20), 1) if name.endswith("gz") else b"1" * (70 << 20))
    assert "line 1 is longer than 67,108,864 bytes" in refused(path)


def test_a_well_packed_file_is_read(tmp_path):
    """Zeros pack well: a file of data is not taken for a bomb."""
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"0,0,0,1\n0,0,0,2\n" * 200_000))
    assert sum(len(block.X) for block in open_source(str(path)).blocks()) == 400_000


def test_a_line_of_very_many_cells_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"," * 2_000_000 + b"\n")
    assert "2,000,001 columns, more than 262,144" in refused(path)


def test_a_cell_without_an_end_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'1,2\n3,"' + b"4" * 200_000)
    assert "field larger than field limit" in refused(path)


def test_an_index_that_promises_a_vector_of_16_gb_is_refused(tmp_path):
    path = tmp_path / "a.libsvm"
    path.write_text("1 2147483646:1\n-1 1:1\n")
    assert "features, more than 67,108,864" in refused(path)


# ---- arrays
def npy(shape, dtype="<f8", body=b"\0" * 64):
    stream = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + body


@pytest.mark.parametrize("name", ["X", "y"])
@pytest.mark.parametrize("shape", [(10**18,), (10**18, 10**18), (2**32, 2**32), (8, 10**17), (-1, 4), (-8,)])
def test_npz__a_header_that_promises_more_than_there_is(tmp_path, name, shape):
    path = tmp_path / "a.npz"
    members = {"X": npy((4, 2)), "y": npy((4,), body=b"\0" * 32)} | {name: npy(shape)}
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in members.items():
            archive.writestr(f"{member}.npy", content)
    assert "promises" in refused(path)


def test_npz__a_member_of_zeros_packed_a_thousand_times(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", npy((4, 2)))
        with archive.open("y.npy", "w") as member:
            member.write(npy((10 * (1 << 20),), "<f8", b""))
            for _ in range(10):
                member.write(bytes(8 << 20))
    assert "more than 250 times" in refused(path)


def test_npz__a_directory_that_is_not_utf_8(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, X=np.eye(3), y=np.arange(3), **{"é": np.eye(2)})
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xfe"))
    assert "not a whole .npz archive" in refused(path)


@pytest.mark.parametrize("name", ["X", "y"])
@pytest.mark.parametrize("key", ["shape", "chunks"])
def test_zarr__metadata_that_promises_more_than_there_is(tmp_path, name, key):
    path = tmp_path / "a.zarr"
    group = zarr.create_group(str(path))
    group.create_array("X", data=np.eye(4))
    group.create_array("y", data=np.arange(4))
    meta = path / name / "zarr.json"
    facts = json.loads(meta.read_text())
    huge = [10**12, *facts["shape"][1:]]
    if key == "shape":
        facts["shape"] = huge
    else:
        facts["chunk_grid"]["configuration"]["chunk_shape"] = huge
    meta.write_text(json.dumps(facts))
    assert "times as many" in refused(path)
