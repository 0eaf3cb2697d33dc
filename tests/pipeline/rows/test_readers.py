"""Readers: what each format gives, equal whatever the block size, and one sentence for every way a file can be bad."""

import bz2
import errno
import gzip
import io
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from pipeline.config.load import load_experiment
from pipeline.config.sections import Data
from pipeline.rows.sources import npz
from pipeline.rows.sources.libsvm_parser import LineError, parse_block
from pipeline.rows.sources.open import check_sources, format_of, open_source
from svmcore.errors import InputError

rng = np.random.default_rng(0)
X = np.round(rng.normal(size=(50, 4)), 3) * (rng.random((50, 4)) < 0.7)
Y = rng.integers(0, 3, 50)
SMALL = 400  # bytes of a block: several blocks in every file here


def read(url, rows_bytes=1 << 25, **keys):
    """All rows of a source: (X dense, y list, blocks)."""
    extra = {key: keys.pop(key) for key in ("fold_column", "base", "n_features") if key in keys}
    source = open_source(str(url), Data(source=str(url), **keys), **extra)
    blocks = list(source.blocks(rows_bytes))
    p = max(block.X.shape[1] for block in blocks)
    rows = [
        np.pad(np.asarray(b.X.todense() if sparse.issparse(b.X) else b.X), ((0, 0), (0, p - b.X.shape[1])))
        for b in blocks
    ]
    labels = None if blocks[0].y is None else [label for b in blocks for label in b.y.tolist()]
    return np.concatenate(rows), labels, blocks


def error(url, **keys):
    with pytest.raises(InputError) as caught:
        read(url, **keys)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(url)), text
    return text


def text_file(folder, text, name="data.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def csv_text(delimiter=",", header=True, label_at=4):
    names = [f"x{j}" for j in range(4)]
    names.insert(label_at, "kind")
    lines = [delimiter.join(names)] if header else []
    for row, label in zip(X.tolist(), Y.tolist(), strict=True):
        cells = [repr(value) for value in row]
        cells.insert(label_at, str(label))
        lines.append(delimiter.join(cells))
    return "\n".join(lines) + "\n"


# ---- LIBSVM ----
def libsvm_text(zero_based=False):
    buffer = io.BytesIO()
    dump_svmlight_file(X, Y, buffer, zero_based=zero_based)
    return buffer.getvalue()


@pytest.mark.parametrize("rows_bytes", [SMALL, 1 << 25])
@pytest.mark.parametrize("pack", ["", ".gz", ".bz2"])
def test_libsvm__equals_scikit_learns_reader(tmp_path, pack, rows_bytes):
    raw = libsvm_text()
    packed = {"": raw, ".gz": gzip.compress(raw), ".bz2": bz2.compress(raw)}[pack]
    found, labels, blocks = read(text_file(tmp_path, packed, "a.libsvm" + pack), rows_bytes)
    expected, y = load_svmlight_file(io.BytesIO(raw))
    assert np.array_equal(found[:, 1:], expected.toarray())  # column 0 is the index 0, which the file does not use
    assert labels == y.tolist()
    assert (len(blocks) > 1) == (rows_bytes == SMALL)
    assert all(block.X.indices.dtype == np.int32 and not (block.X.data == 0).any() for block in blocks)


@pytest.mark.parametrize(("zero_based", "base"), [(True, 0), (False, 1)])
def test_libsvm__the_base_is_known_at_the_end(tmp_path, zero_based, base):
    source = open_source(str(text_file(tmp_path, libsvm_text(zero_based), "a.svm")))
    assert source.base is None
    list(source.blocks(SMALL))
    assert source.base == base


def test_libsvm__with_a_base_columns_are_features(tmp_path):
    found, _, _ = read(text_file(tmp_path, libsvm_text(), "a.svm"), base=1, n_features=4)
    assert np.array_equal(found, X)


def test_libsvm__comments_blank_lines_and_line_ends(tmp_path):
    found, labels, _ = read(text_file(tmp_path, b"# head\n\n+1 1:2 3:-.5 # tail\r\n  -1\t2:1e-3 \n1", "a.svm"))
    assert labels == [1.0, -1.0, 1.0]
    assert found[:, 1:].tolist() == [[2, 0, -0.5], [0, 0.001, 0], [0, 0, 0]]


@given(
    st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=5),
    st.sampled_from(["r", ".3g", ".17g", ".25f", "+.5e"]),
)
def test_libsvm__every_number_is_pythons_float(numbers, style):
    tokens = [repr(v) if style == "r" else format(v, style) for v in numbers]
    text = tokens[0] + "".join(f" {j}:{t}" for j, t in enumerate(tokens)) + "\n"
    parsed = parse_block(text.encode())
    assert parsed.values.tolist() == [float(t) for t in tokens]
    assert parsed.labels.tolist() == [float(tokens[0])]


@given(st.text("01 :.-+e#an\n\t", max_size=30))
def test_libsvm__any_text_parses_or_says_why(text):
    try:
        parsed = parse_block(text.encode())
    except LineError as reason:
        offset = reason.offset
    else:
        offset = -1
        assert len(parsed.indptr) == len(parsed.labels) + 1
        assert np.isfinite(parsed.values).all()
        assert np.isfinite(parsed.labels).all()
    assert -1 <= offset < len(text)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1 2:x", "'2:x' is not a finite number"),
        ("1 2:", "the value in '2:'"),
        ("1 2", "'2' is not of the form index:value"),
        ("1 abc 1:2", "'abc' is not of the form"),
        ("1 a:2", "the index in 'a:2'"),
        ("1 -1:2", "the index in '-1:2'"),
        ("1 1.5:2", "the index in '1.5:2'"),
        ("1 99999999999:2", "the index in"),
        ("1 3:1 2:1", "indices of a line must ascend"),
        ("1 3:1 3:1", "indices of a line must ascend"),
        ("1 2:nan", "'2:nan' is not a finite number"),
        ("1 2:inf", "'2:inf' is not a finite number"),
        ("1 2:1e999", "not a finite number"),
        ("1 2:1:3", "the value in '2:1:3'"),
        ("1 2:1_0", "the value in '2:1_0'"),
        ("yes 1:2", "the label 'yes'"),
        ("nan 1:2", "the label 'nan'"),
        ("1:2 2:3", "the label '1:2'"),
        ("1 qid:3 1:2", "the index in 'qid:3'"),
    ],
)
@pytest.mark.parametrize("rows_bytes", [40, 1 << 25])
def test_libsvm__a_malformed_line_is_named(tmp_path, line, words, rows_bytes):
    path = text_file(tmp_path, "# a comment\n1 1:1\n\n-1 2:0.5\n" * 5 + line + "\n1 1:1\n", "bad.svm")
    text = error(path, rows_bytes=rows_bytes)
    assert "line 21: " in text
    assert words in text


def test_libsvm__an_index_zero_is_refused_where_training_counted_from_one(tmp_path):
    path = text_file(tmp_path, "1 1:1\n-1 0:1 2:1\n", "t.svm")
    assert "line 2: the index 0" in error(path, base=1)
    assert "line 2: the index 3, but there are 2 features" in error(
        text_file(tmp_path, "1 1:1\n-1 3:1\n", "u.svm"), base=1, n_features=2
    )


# ---- CSV ----
@pytest.mark.parametrize("rows_bytes", [SMALL, 1 << 25])
@pytest.mark.parametrize("delimiter", list(",;\t| "))
@pytest.mark.parametrize("header", [True, False])
def test_csv__header_and_delimiter_are_detected(tmp_path, delimiter, header, rows_bytes):
    path = text_file(tmp_path, csv_text(delimiter, header))
    found, labels, blocks = read(path, rows_bytes)
    assert np.array_equal(found, X)
    assert labels == [str(label) for label in Y]
    assert (len(blocks) > 1) == (rows_bytes == SMALL)


@pytest.mark.parametrize("label", ["kind", 1, -4])
@pytest.mark.parametrize("pack", [".gz", ".bz2"])
def test_csv__label_by_name_and_position_from_an_archive(tmp_path, label, pack):
    raw = csv_text(label_at=1).encode()
    path = text_file(tmp_path, gzip.compress(raw) if pack == ".gz" else bz2.compress(raw), "d.csv" + pack)
    found, labels, _ = read(path, label=label)
    assert np.array_equal(found, X)
    assert labels == [str(value) for value in Y]


def test_csv__numbers_as_names_of_columns(tmp_path):
    found, labels, _ = read(text_file(tmp_path, "0,1,target\n2.5,3,1\n4,5,0\n"))
    assert found.tolist() == [[2.5, 3], [4, 5]]
    assert labels == ["1", "0"]


def test_csv__string_labels_quotes_signs_and_line_ends(tmp_path):
    text = '\ufeffa,b,kind\r\n1,+2.5,"setosa, wild"\r\n\r\n 3 ,4e-1, versicolor \r\n'
    found, labels, _ = read(text_file(tmp_path, text))
    assert found.tolist() == [[1, 2.5], [3, 0.4]]
    assert labels == ["setosa, wild", "versicolor"]


def test_csv__a_fold_column_is_taken_out(tmp_path):
    path = text_file(tmp_path, "a,fold,b,kind\n1,A,2,x\n3,B,4,y\n")
    found, labels, blocks = read(path, fold_column="fold")
    assert found.tolist() == [[1, 2], [3, 4]]
    assert blocks[0].fold.tolist() == ["A", "B"]
    assert labels == ["x", "y"]


def test_csv__rows_to_predict_need_no_label(tmp_path):
    found, labels, _ = read(text_file(tmp_path, "a,b\n1,2\n3,4\n"), n_features=2, label="kind")
    assert found.tolist() == [[1, 2], [3, 4]]
    assert labels is None


@pytest.mark.parametrize("rows_bytes", [20, 1 << 25])
def test_csv__a_bad_cell_is_named_by_row_and_column(tmp_path, rows_bytes):
    body = "1,2,0\n" * 10
    bad = text_file(tmp_path, "a,b,kind\n" + body + "1,oops,1\n" + body)
    text = error(bad, rows_bytes=rows_bytes)
    assert "row 11 (line 12), column 'b': 'oops' is not a number" in text
    assert "column 1 (counted from 0)" in error(text_file(tmp_path, body + "1,oops,1\n"), rows_bytes=rows_bytes)
    assert "row 11 (line 12), column 'a': an empty cell" in error(
        text_file(tmp_path, "a,b,kind\n" + body + ",2,1\n"), rows_bytes=rows_bytes
    )


@pytest.mark.parametrize("rows_bytes", [20, 1 << 25])
@pytest.mark.parametrize(
    ("value", "said"), [("nan", "NaN"), ("inf", "infinity"), ("-Infinity", "infinity"), ("1e999", "infinity")]
)
def test_csv__nan_and_infinity_are_named_by_row_and_column(tmp_path, value, said, rows_bytes):
    path = text_file(tmp_path, "a,b,kind\n" + "1,2,0\n" * 9 + f"1,{value},1\n1,1,1\n")
    assert f"row 10, column 'b': {said}" in error(path, rows_bytes=rows_bytes)


@pytest.mark.parametrize(("row", "cells"), [("1,2", 2), ("1,2,3,4", 4)])
def test_csv__ragged_rows_are_named(tmp_path, row, cells):
    text = error(text_file(tmp_path, "a,b,kind\n1,2,0\n" + row + "\n"))
    assert f"line 3: {cells} cells, but line 1 has 3" in text


def test_csv__no_label(tmp_path):
    path = text_file(tmp_path, csv_text())
    assert "no label column 'kindd'" in error(path, label="kindd")
    assert "did you mean 'kind'" in error(path, label="kindd")
    assert "no label column 7: the file has 5 columns" in error(path, label=7)
    assert "label column" in error(text_file(tmp_path, "1\n2\n", "one.csv"))
    assert "line 3: the label" in error(text_file(tmp_path, "a,kind\n1,x\n2,\n", "empty_label.csv"))
    assert "'kind' is a name" in error(path, label="kind", header=False)


@pytest.mark.parametrize("content", [b"", b"\n \n", b"a,b,kind\n"])
def test_csv__an_empty_file(tmp_path, content):
    assert "no rows" in error(text_file(tmp_path, content))


def test_csv__not_text(tmp_path):
    assert "UTF-8" in error(text_file(tmp_path, b"\xff\xfe\x00\x01\n1,2\n"))
    assert "UTF-8" in error(text_file(tmp_path, b"1,2,a\n" * 200 + b"1,2,\xff\xfe\n"))


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


# ---- npz ----
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
