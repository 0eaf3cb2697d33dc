"""Arrays that are written from front to back: what comes back, and in what chunks it lies."""

import numpy as np
import pytest
import zarr

from pipeline.storage import sealed
from pipeline.storage.sealed import ArrayWriter

CHUNK = 100  # rows of two float64


def written(folder, parts, row=(2,)):
    writer = ArrayWriter(folder, row, np.float64)
    for part in parts:
        writer.append(part)
    writer.close()
    return zarr.open_array(str(folder), mode="r")


@pytest.mark.parametrize(
    ("lengths", "chunk"),
    [([3, 4], 7), ([], 1), ([0, 1], 1), ([99], 99), ([100], 100), ([60, 60], 100), ([350], 100), ([1] * 101, 100)],
)
def test_writer__has_chunks_of_the_size_of_its_rows_up_to_one_that_is_full(monkeypatch, tmp_path, lengths, chunk):
    monkeypatch.setattr(sealed, "CHUNK_BYTES", CHUNK * 16)
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(length, 2)) for length in lengths]
    array = written(tmp_path / "array", parts)
    assert array.chunks == (chunk, 2)
    np.testing.assert_array_equal(array[:], np.concatenate([np.empty((0, 2)), *parts]))


def test_writer__stores_a_few_rows_in_a_few_bytes(tmp_path):
    written(tmp_path / "array", [np.zeros(90)], row=())
    assert sum(path.stat().st_size for path in (tmp_path / "array" / "c").rglob("*") if path.is_file()) < 1000
