"""Readers of LIBSVM and CSV: equal whatever the block size, and every bad line named."""

import bz2
import gzip
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from pipeline.rows.sources.libsvm_parser import LineError, parse_block
from pipeline.rows.sources.open import open_source

from .written_rows import SMALL, X, Y, csv_text, error, libsvm_text, read, text_file


# ---- LIBSVM ----
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
