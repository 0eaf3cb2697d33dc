"""Readers of npz: rows and labels, and archives in which anything is wrong."""

import errno
import io
import zipfile

import numpy as np
import pytest

from pipeline.rows.sources import npz

from .written_rows import SMALL, X, Y, error, read, text_file


@pytest.mark.parametrize("rows_bytes", [SMALL, 1 << 25])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz__rows_and_labels(tmp_path, save, order, rows_bytes):
    save(tmp_path / "a.npz", X=np.asarray(X * 100, dtype=np.int16, order=order), y=Y)
    found, labels, blocks = read(tmp_path / "a.npz", rows_bytes)
    assert np.array_equal(found, (X * 100).astype(np.int16))
    assert labels == Y.tolist()
    assert (len(blocks) > 1) == (rows_bytes == SMALL and order == "C")


def test_npz__string_labels(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=np.where(Y > 0, "b", "a"))
    assert set(read(tmp_path / "a.npz")[1]) == {"a", "b"}


def test_npz__what_is_wrong_is_named(tmp_path):
    path = tmp_path / "a.npz"

    def saved(**arrays):
        np.savez(path, **arrays)
        return path

    assert "no member 'y'" in error(saved(X=X))
    assert "found: X" in error(saved(X=X))
    assert "no member 'X'" in error(saved(y=Y))
    assert "X has 50 rows but y has 49" in error(saved(X=X, y=Y[:49]))
    assert "shape (50, 2, 2)" in error(saved(X=X.reshape(50, 2, 2), y=Y))
    assert "type complex128" in error(saved(X=X * 1j, y=Y))
    bad = X.copy()
    bad[31, 2] = np.nan
    assert "row 32, column 2 (counted from 0): NaN" in error(saved(X=bad, y=Y), rows_bytes=SMALL)
    assert "row 3: the label is nan" in error(saved(X=X, y=np.where(np.arange(50) == 2, np.nan, Y)))
    assert "shape (0, 4)" in error(saved(X=X[:0], y=Y[:0]))
    whole = saved(X=X, y=Y).read_bytes()
    assert "not a whole .npz" in error(text_file(tmp_path, whole[: len(whole) // 2], "t.npz"))
    assert "4 features, but 3 are expected" in error(saved(X=X, y=Y), n_features=3)
    assert "bytes that are not UTF-8" in error(saved(X=X, y=np.array(["é".encode("latin-1")] * 50)))
    assert "infinity" in error(saved(X=X * np.longdouble("1e400"), y=Y))


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def zipped(path, method=zipfile.ZIP_STORED, **members):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return path


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"", "is not a NumPy array"),
        (npy(X)[:40], "is not a NumPy array"),
        (npy(X).replace(b"}", b"("), "is not a NumPy array"),
        (npy(X)[:-8], "an array ends before its shape says"),
    ],
    ids=["empty", "cut in the header", "a changed header", "cut in the values"],
)
def test_npz__a_member_that_is_no_array(tmp_path, content, wrong):
    assert wrong in error(zipped(tmp_path / "a.npz", X_npy=content, y_npy=npy(Y)))


def test_npz__a_member_without_its_ending_is_missing(tmp_path):
    assert "no member 'y'" in error(zipped(tmp_path / "a.npz", X_npy=npy(X), y=npy(Y)))


def flipped(path, marker, at, bits):
    """The archive with some bits changed, `at` bytes behind each `marker`."""
    raw, start = bytearray(path.read_bytes()), -1
    while (start := raw.find(marker, start + 1)) >= 0:
        raw[start + at] ^= bits
    path.write_bytes(raw)
    return path


METHODS = {"stored": 0, "deflated": zipfile.ZIP_DEFLATED, "bzip2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_npz__a_changed_byte_is_found_in_every_compression(tmp_path, method):
    path = zipped(tmp_path / "a.npz", method, X_npy=npy(X), y_npy=npy(Y))
    assert read(path)[1] == Y.tolist()
    assert "not a whole .npz" in error(flipped(path, b"X.npy", 60, 255))


@pytest.mark.parametrize(
    ("marker", "at", "bits", "wrong"),
    [
        (b"PK\1\2", 8, 1, "needs a password"),
        (b"PK\1\2", 10, 99, "not a whole .npz archive (That compression method"),
        (b"PK\5\6", 18, 1, "not a whole .npz archive ([Errno 22] Invalid argument"),
    ],
    ids=["a password", "an unknown compression", "an offset out of the file"],
)
def test_npz__a_directory_that_cannot_be_followed(tmp_path, marker, at, bits, wrong):
    path = zipped(tmp_path / "a.npz", X_npy=npy(X), y_npy=npy(Y))
    assert wrong in error(flipped(path, marker, at, bits))


def test_npz__a_failing_disk_is_not_blamed_on_the_file(tmp_path, monkeypatch):
    """An OSError is worth another try; an InputError ends the run."""
    path = zipped(tmp_path / "a.npz", X_npy=npy(X), y_npy=npy(Y))

    class Failing(io.FileIO):
        def readinto(self, *args):
            raise OSError(errno.EIO, "Input/output error")

        read = readall = readinto

    monkeypatch.setattr(npz, "open_bytes", lambda url: Failing(path))
    with pytest.raises(OSError, match="Input/output"):
        read(path)


def test_npz__objects_are_never_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=np.array([print] * 50, dtype=object))
    assert "Python objects" in error(tmp_path / "a.npz")


def test_npz__a_flipped_bit_is_found(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        at = archive.getinfo("X.npy").header_offset + 400
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    raw[at] ^= 1
    assert "not a whole .npz" in error(text_file(tmp_path, bytes(raw), "b.npz"))
