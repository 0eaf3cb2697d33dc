"""Readers of Parquet, zarr, bundled sets and object stores, and what holds of a source in any format."""

import bz2
import gzip

import numpy as np
import pytest
from scipy import sparse

from pipeline.config.load import load_experiment
from pipeline.rows.sources.open import check_sources, format_of, open_source
from svmcore.errors import InputError

from .written_rows import SMALL, X, Y, csv_text, error, libsvm_text, read, text_file


# ---- archives and files ----
@pytest.mark.parametrize("name", ["a.libsvm", "a.csv"])
@pytest.mark.parametrize(("pack", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_truncated_archive(tmp_path, name, pack, compress):
    raw = libsvm_text() * 20 if "svm" in name else csv_text().encode() * 20
    whole = compress(raw)
    assert f"not a whole {pack} archive" in error(text_file(tmp_path, whole[: len(whole) // 2], name + pack))
    assert f"not a whole {pack} archive" in error(text_file(tmp_path, b"no archive at all", name + pack))
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    assert "not a whole" in error(text_file(tmp_path, bytes(broken), name + pack))


@pytest.mark.parametrize("name", ["a.svm", "a.csv", "a.npz", "a.parquet", "a.zarr", "a.csv.gz"])
def test_a_missing_file_and_a_folder(tmp_path, name):
    assert "no such f" in error(tmp_path / name)
    if not name.endswith("zarr"):
        (tmp_path / name).mkdir()
        assert "is a folder" in error(tmp_path / name)


@pytest.mark.parametrize("name", ["a.svm", "a.npz", "a.parquet"])
def test_an_empty_file(tmp_path, name):
    text = error(text_file(tmp_path, b"", name))
    assert "no rows" in text or "not a whole" in text


def test_compressed_binary_formats_are_refused(tmp_path):
    with pytest.raises(InputError, match="decompress it"):
        format_of("x.parquet.gz")


def test_sources_are_checked_before_any_work(tmp_path):
    check_sources(load_experiment({"data": {"source": "sklearn:iris", "test": 0.2}}))
    with pytest.raises(InputError, match="no such file"):
        check_sources(load_experiment({"data": {"source": "sklearn:iris", "test": str(tmp_path / "t.csv")}}))


# ---- Parquet ----
def parquet(folder, columns, name="a.parquet"):
    import pyarrow as pa
    from pyarrow import parquet as pq

    pq.write_table(pa.table(columns), folder / name, row_group_size=16)
    return folder / name


@pytest.mark.parametrize("rows_bytes", [SMALL, 1 << 25])
def test_parquet__rows_and_labels(tmp_path, rows_bytes):
    columns = {
        "kind": [f"k{y}" for y in Y],
        "i": np.arange(50, dtype=np.int16),
        "b": Y > 0,
        "f": X[:, 0].astype(np.float32),
    }
    found, labels, blocks = read(parquet(tmp_path, columns), rows_bytes, label="kind")
    assert np.array_equal(found, np.stack([np.arange(50), Y > 0, X[:, 0].astype(np.float32)], axis=1))
    assert labels == [f"k{y}" for y in Y]
    assert (len(blocks) > 1) == (rows_bytes == SMALL)


def test_parquet__dictionary_labels_and_fold(tmp_path):
    import pyarrow as pa

    columns = {"a": [1.0, 2.0], "fold": [3, 4], "kind": pa.array(["x", "y"]).dictionary_encode()}
    found, labels, blocks = read(parquet(tmp_path, columns), fold_column="fold")
    assert found.tolist() == [[1.0], [2.0]]
    assert labels == ["x", "y"]
    assert blocks[0].fold.tolist() == [3, 4]


def test_parquet__what_is_wrong_is_named(tmp_path):
    good = {"a": [1.0, 2.0, 3.0], "y": [0, 1, 1]}
    assert "row 2, column 'a': a missing value" in error(parquet(tmp_path, good | {"a": [1.0, None, 2.0]}))
    assert "row 3, column 'a': NaN" in error(parquet(tmp_path, good | {"a": [1.0, 2.0, float("nan")]}))
    assert "row 1, column 'y': a missing value" in error(parquet(tmp_path, good | {"y": [None, 1, 1]}))
    assert "'a' has type string" in error(parquet(tmp_path, good | {"a": ["x", "y", "z"]}))
    assert "no label column 'kind'" in error(parquet(tmp_path, good), label="kind")
    whole = parquet(tmp_path, good).read_bytes()
    assert "not a whole Parquet" in error(text_file(tmp_path, whole[: len(whole) // 2], "t.parquet"))
    assert "no rows" in error(parquet(tmp_path, {"a": np.empty(0), "y": np.empty(0)}))


# ---- zarr and scikit-learn ----
@pytest.mark.parametrize("rows_bytes", [SMALL, 1 << 25])
def test_zarr__dense_and_csr(tmp_path, rows_bytes):
    import zarr

    group = zarr.create_group(str(tmp_path / "d.zarr"))
    group.create_array("X", data=X, chunks=(7, 4))
    group.create_array("y", data=Y)
    found, labels, _ = read(tmp_path / "d.zarr", rows_bytes)
    assert np.array_equal(found, X)
    assert labels == Y.tolist()
    group = zarr.create_group(str(tmp_path / "s.zarr"))
    S = sparse.csr_array(X)
    parts = group.create_group("X", attributes={"shape": [50, 4]})
    for name in ("data", "indices", "indptr"):
        parts.create_array(name, data=getattr(S, name))
    group.create_array("y", data=Y)
    found, labels, blocks = read(tmp_path / "s.zarr", rows_bytes)
    assert sparse.issparse(blocks[0].X)
    assert np.array_equal(found, X)
    assert labels == Y.tolist()


def test_zarr__what_is_wrong_is_named(tmp_path):
    import zarr

    group = zarr.create_group(str(tmp_path / "d.zarr"))
    bad = X.copy()
    bad[3, 1] = np.inf
    group.create_array("X", data=bad)
    assert "no array 'y'" in error(tmp_path / "d.zarr")
    group.create_array("y", data=Y)
    assert "row 4, column 1 (counted from 0): infinity" in error(tmp_path / "d.zarr")


def zarr_csr(folder, shape=(50, 4), **changed):
    """A group with the parts of a CSR matrix, some of them `changed`, None for none."""
    import zarr

    S = sparse.csr_array(X)
    group = zarr.create_group(str(folder / "s.zarr"), overwrite=True)
    group.create_array("y", data=Y)
    parts = group.create_group("X", attributes={"shape": list(shape)})
    for name in ("data", "indices", "indptr"):
        if (part := changed.get(name, lambda value: value)(getattr(S, name))) is not None:
            parts.create_array(name, data=part)
    return folder / "s.zarr"


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"data": lambda v: None}, "no array 'X/data'"),
        ({"data": lambda v: v[:-1]}, "indptr is not CSR's"),
        ({"data": lambda v: v * 1j}, "are complex128, int32 and int32; numbers, integers"),
        ({"data": lambda v: np.where(v == v[7], np.nan, v)}, "nan; finite numbers"),
        ({"indices": lambda v: v + 1}, "column 4 (counted from 0)"),
        ({"indices": lambda v: v - 1}, "column -1 (counted from 0)"),
        ({"indptr": lambda v: v + 1}, "indptr is not CSR's"),
        ({"indptr": lambda v: v[::-1].copy()}, "indptr is not CSR's"),
        ({"indptr": lambda v: np.where(v == v[9], 10**6, v)}, "indptr is not CSR's"),
        ({"shape": (50,)}, "[rows, columns] are needed"),
    ],
)
def test_zarr__parts_that_are_no_csr_are_refused_before_compiled_code_follows_them(tmp_path, changed, wrong):
    assert wrong in error(zarr_csr(tmp_path, **changed))


@pytest.mark.parametrize("file", ["zarr.json", "X/zarr.json", "X/data/zarr.json", "X/data/c/0", "y/c/0"])
def test_zarr__a_file_that_is_cut_short_is_found(tmp_path, file):
    folder = zarr_csr(tmp_path)
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(whole[: len(whole) // 2])
    assert "not a whole zarr group" in error(folder)


@pytest.mark.parametrize("text", ["-1", "[]", '"group"', "null"])
@pytest.mark.parametrize("file", ["zarr.json", "X/zarr.json", "y/zarr.json"])
def test_zarr__metadata_that_are_json_of_another_kind_are_found(tmp_path, file, text):
    folder = zarr_csr(tmp_path)
    (folder / file).write_text(text)
    assert "zarr group" in error(folder)


@pytest.mark.parametrize(
    ("name", "shape"), [("iris", (150, 4)), ("digits", (1797, 64)), ("wine", (178, 13)), ("breast_cancer", (569, 30))]
)
def test_bundled_sets(name, shape):
    found, labels, blocks = read(f"sklearn:{name}", 1 << 16)
    assert found.shape == shape
    assert len(labels) == shape[0]
    assert len(blocks) == -(-shape[0] // ((1 << 16) // (8 * shape[1])))


# ---- sources ----
def test_the_digest_is_of_the_bytes(tmp_path):
    a, b = text_file(tmp_path, csv_text(), "a.csv"), text_file(tmp_path, csv_text(), "b.csv")
    assert open_source(str(a)).digest() == open_source(str(b)).digest()
    b.write_text(csv_text().replace("0", "1", 1))
    assert open_source(str(a)).digest() != open_source(str(b)).digest()


def test_progress_reaches_its_total(tmp_path):
    for path in (text_file(tmp_path, csv_text()), text_file(tmp_path, libsvm_text(), "a.svm"), "sklearn:iris"):
        source = open_source(str(path))
        seen = [source.done for _ in source.blocks(SMALL)]
        assert seen == sorted(seen)
        assert source.done == source.total > 0


def test_an_environment_variable_in_a_path(tmp_path, monkeypatch):
    text_file(tmp_path, csv_text())
    monkeypatch.setenv("DATA_HOME", str(tmp_path))
    assert read("${DATA_HOME}/data.csv")[0].shape == (50, 4)


@pytest.mark.parametrize("name", ["a.csv", "a.svm", "a.svm.gz", "a.npz", "a.parquet"])
def test_an_object_store_gives_the_same_rows(tmp_path, name):
    if name.endswith("npz"):
        np.savez(tmp_path / name, X=X, y=Y)
    elif name.endswith("parquet"):
        parquet(tmp_path, {"a": X[:, 0], "y": Y})
    else:
        raw = csv_text().encode() if "csv" in name else libsvm_text()
        text_file(tmp_path, gzip.compress(raw) if name.endswith("gz") else raw, name)
    url = f"file://{tmp_path}/{name}"  # goes through obstore, as s3:// does
    found, labels, _ = read(url, SMALL)
    expected, y, _ = read(tmp_path / name, SMALL)
    assert np.array_equal(found, expected)
    assert labels == y
    assert open_source(url).digest() == open_source(str(tmp_path / name)).digest()


def test_an_object_that_is_not_there(tmp_path):
    assert "cannot be opened" in error(f"file://{tmp_path}/none.csv")
    assert "cannot be opened" in error("ftp://host/none.csv")
