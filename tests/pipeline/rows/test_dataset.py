"""Datasets: the right rows, labels, splits and folds from every source, merged right, and bad data named."""

import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import pipeline.rows.ingest
from pipeline.config.load import load_experiment
from pipeline.kinds.labels import LabelCodes
from pipeline.rows.dataset import ingest
from pipeline.rows.row_files import RowFiles
from pipeline.rows.split import stratified_sample
from svmcore.errors import InputError
from svmcore.points.identical import merge_rows

from .ingested_rows import COPIES, LABELS, ROWS, N, P, dense, error, make, rng, save


def test_source__that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    """Or rows would be kept, and found again, under the sha256 of others."""
    stage = pipeline.rows.ingest._stage_sources

    def overwritten(*args):
        save(tmp_path, ROWS + 1.0, LABELS, "rows.npz")
        return stage(*args)

    monkeypatch.setattr(pipeline.rows.ingest, "_stage_sources", overwritten)
    assert "rows.npz: changed while it was read" in error(tmp_path)


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.libsvm", "rows.libsvm.bz2"])
def test_source__that_is_another_only_while_it_is_read_is_refused(name, tmp_path, monkeypatch):
    """Before and after, its sha256 is what it was: what counts are the bytes that became rows."""
    stage = pipeline.rows.ingest._stage_sources

    def meanwhile(*args):
        path = tmp_path / name
        before = path.read_bytes()
        save(tmp_path, ROWS + 1.0, LABELS, name)
        staged = stage(*args)
        path.write_bytes(before)
        return staged

    monkeypatch.setattr(pipeline.rows.ingest, "_stage_sources", meanwhile)
    assert f"{name}: changed while it was read" in error(tmp_path, name=name)


def test_source__is_hashed_once_more_as_its_rows_are_read(tmp_path, monkeypatch):
    """Text is read in order: the second sha256 costs no pass over the file."""
    opened, whole = [], pipeline.rows.sources.blocks.sha256_of
    monkeypatch.setattr("pipeline.rows.sources.blocks.sha256_of", lambda url: opened.append(url) or whole(url))
    make(tmp_path, name="rows.libsvm")
    assert len(opened) == 1
    monkeypatch.undo()
    assert make(tmp_path, X=ROWS + 1.0).n_merged == N


# ---- rows ----
@pytest.mark.parametrize("name", ["rows.npz", "rows.svm"])
def test_merged_rows_stand_for_the_originals(tmp_path, name):
    X, y = ROWS[COPIES], LABELS[COPIES]
    d = make(tmp_path, X=X, y=y, name=name)
    assert (d.n_train, d.n_merged, d.n_test, d.n_features) == (N + 60, N, 0, P)
    assert d.sparse == (name == "rows.svm")
    assert d.classes == [0, 1, 2]
    inverse = d.inverse()
    assert np.array_equal(dense(d.X())[inverse], X.astype(d.dtype))
    assert np.array_equal(d.targets()[inverse], y)
    assert np.array_equal(d.counts(), np.bincount(inverse))
    assert sorted(np.bincount(d.counts()).tolist()) == [0, 20, 20, 260]
    assert list(d.test_blocks()) == []
    assert d.folds() is None


@pytest.mark.parametrize("name", ["rows.npz", "rows.svm"])
def test_the_order_is_that_of_merge_rows_however_many_buckets(tmp_path, monkeypatch, name):
    X, y = ROWS[COPIES], LABELS[COPIES]
    one = make(tmp_path, X=X, y=y, name=name)
    expected = merge_rows(X.astype(one.dtype), y)
    assert np.array_equal(dense(one.X()), X[expected.first].astype(one.dtype))
    monkeypatch.setattr(pipeline.rows.ingest, "BUCKET_BYTES", 500)
    monkeypatch.setattr(pipeline.rows.ingest, "BLOCK_BYTES", 900)
    shutil.rmtree(tmp_path / "cache")
    many = make(tmp_path, X=X, y=y, name=name)
    assert np.array_equal(dense(many.X()), dense(one.X()))
    assert np.array_equal(many.inverse(), one.inverse())
    assert many.rows_fingerprint == one.rows_fingerprint


def test_rows_and_test_rows_in_parts(tmp_path):
    d = make(tmp_path, test=0.3)
    assert np.array_equal(d.X(10, 25), d.X()[10:25])
    whole = np.concatenate([X for X, _ in d.test_blocks()])
    parts = [(X, codes) for X, codes in d.test_blocks(rows=7)]
    assert len(parts) == -(-d.n_test // 7)
    assert np.array_equal(np.concatenate([X for X, _ in parts]), whole)
    assert sum(len(codes) for _, codes in parts) == d.n_test


# ---- labels ----
@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.array(["no", "yes"]), ["no", "yes"]),
        (np.array([-1, 1]), [-1, 1]),
        (np.array([-1.0, 1.0]), [-1, 1]),
        (np.array([0.5, 1.5]), [0.5, 1.5]),
        (np.array([False, True]), [False, True]),
        (np.array(["10", "9"]), ["10", "9"]),
    ],
)
def test_labels_come_back_as_they_were(tmp_path, labels, classes):
    d = make(tmp_path, y=labels[LABELS % 2])
    assert d.classes == classes
    assert [type(label) for label in d.classes] == [type(label) for label in classes]
    assert np.array_equal(np.asarray(d.classes)[d.targets()[d.inverse()]], labels[LABELS % 2])


@pytest.mark.parametrize(
    ("written", "classes"),
    [
        (["+1", "-1", "1.0"], [-1, 1]),
        (["1.5", "2"], [1.5, 2.0]),
        (["007", "1"], ["007", "1"]),
        (["a", "1"], ["1", "a"]),
        (["True", "False"], ["False", "True"]),
        (["1e3", "10"], [10, 1000]),
    ],
)
def test_labels_of_a_text_file(written, classes):
    labels = LabelCodes(text=True)
    labels.append(np.array(written, dtype=object))
    assert labels.resolve()[0] == classes


def test_a_regression_target_is_refused(tmp_path):
    assert "300 different real numbers" in error(tmp_path, y=np.linspace(0.05, 1, N))


def test_test_labels_are_read_as_the_training_labels_are():
    def codes(text, raw, classes):
        labels = LabelCodes(text)
        labels.append(np.asarray(raw, dtype=object if isinstance(raw[0], str) else None))
        return labels.resolve_as(classes, "t").tolist()

    assert codes(True, ["1.0", "0"], [0, 1]) == [1, 0]
    assert codes(True, ["1", "2"], ["1", "2", "x"]) == [0, 1]
    assert codes(False, [2.0, 1.0], [1, 2]) == [1, 0]
    assert codes(False, [1, 0], ["0", "1"]) == [1, 0]
    with pytest.raises(InputError, match=r"'3' is not in the training data; labels there: 1, 2"):
        codes(True, ["1", "3"], [1, 2])
    with pytest.raises(InputError, match="not in the training data"):
        codes(False, [1], [False, True])


# ---- splits ----
def test_the_fraction_is_scikit_learns_split(tmp_path):
    d = make(tmp_path, test=0.3, seed=7)
    kept, held_out = train_test_split(np.arange(N), test_size=0.3, stratify=LABELS, random_state=7)
    assert np.array_equal(d.X()[d.inverse()], ROWS[np.sort(kept)].astype(np.float32))
    ((X, codes),) = d.test_blocks()
    assert np.array_equal(X, ROWS[np.sort(held_out)].astype(np.float32))
    assert np.array_equal(codes, LABELS[np.sort(held_out)])


def test_rows_are_a_stratified_sample_before_the_split(tmp_path):
    d = make(tmp_path, "data.rows=100", test=0.2)
    assert (d.n_train, d.n_test) == (80, 20)
    other = make(tmp_path, "data.rows=100", "seed=1", test=0.2)
    assert other.fingerprint != d.fingerprint
    everything = make(tmp_path, "data.rows=100000")
    assert everything.n_train == N


@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.data())
@settings(max_examples=50)
def test_a_stratified_sample_is_proportional_within_one_row(sizes, data):
    codes = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    n = data.draw(st.integers(len(sizes), len(codes)))
    chosen = stratified_sample(codes, n, 0, "x")
    assert len(set(chosen.tolist())) == n
    found = np.bincount(codes[chosen], minlength=len(sizes))
    exact = np.array(sizes) * n / len(codes)
    assert (found >= 1).all()
    assert (np.abs(found - exact) < len(sizes)).all()
    if (exact >= 1).all():
        assert (np.abs(found - exact) < 1).all()
    assert np.array_equal(chosen, stratified_sample(codes, n, 0, "x"))


def test_a_second_source(tmp_path):
    test = (rng.normal(size=(30, P)), rng.integers(0, 2, 30))
    d = make(tmp_path, "data.scale=standard", test=test)
    X = np.concatenate([X for X, _ in d.test_blocks()])
    varies = np.arange(P) < 5
    expected = StandardScaler().fit(ROWS).transform(test[0])
    assert np.allclose(X[:, varies], expected[:, varies], rtol=1e-6, atol=1e-6)
    assert d.n_test == 30


@pytest.mark.parametrize(("p_train", "p_test"), [(6, 4), (4, 6)])
def test_the_narrower_of_two_libsvm_sources_is_padded(tmp_path, p_train, p_test):
    X, Z = np.abs(ROWS[:, :p_train]) + 1, np.abs(ROWS[:50, :p_test]) + 1
    d = make(tmp_path, X=X, name="rows.svm", test=(Z, LABELS[:50]))
    assert d.n_features == 6
    assert d.index_base == 1
    ((T, _),) = d.test_blocks()
    assert T.shape == (50, 6)
    assert np.array_equal(T.toarray(), np.pad(Z, ((0, 0), (0, 6 - p_test))).astype(np.float32))
    assert np.array_equal(d.X().toarray()[d.inverse()], np.pad(X, ((0, 0), (0, 6 - p_train))).astype(np.float32))


def test_zero_based_libsvm_keeps_its_first_column(tmp_path):
    dump_svmlight_file(ROWS, LABELS, str(tmp_path / "z.svm"), zero_based=True)
    d = ingest(
        load_experiment({"data": {"source": str(tmp_path / "z.svm"), "test": str(tmp_path / "z.svm")}}), tmp_path
    )
    assert (d.n_features, d.index_base) == (P, 0)
    assert np.array_equal(d.X().toarray()[d.inverse()], ROWS.astype(np.float32))
    ((T, _),) = d.test_blocks()
    assert np.array_equal(T.toarray(), ROWS.astype(np.float32))


# ---- bad data ----
def test_what_cannot_be_split_or_learnt_is_named(tmp_path):
    lonely = np.where(np.arange(N) == 17, 9, LABELS)
    assert "a single class, 3" in error(tmp_path, y=np.full(N, 3))
    assert "the class 9 has one row" in error(tmp_path, y=lonely, test=0.2)
    assert "fewer than the 3 classes" in error(tmp_path, test=0.003)
    assert "fewer than the 3 classes" in error(tmp_path, "data.rows=2")
    assert "the label 5 is not in the training data" in error(tmp_path, test=(ROWS[:9], np.full(9, 5)))
    assert "7 features, but 6 are expected" in error(tmp_path, test=(np.ones((9, 7)), LABELS[:9]))
    assert "data.scale standard would fill in the zeros" in error(tmp_path, "data.scale=standard", name="rows.svm")
    assert "too large to square" in error(tmp_path, X=ROWS * 1e200)
    assert "only CSV and Parquet" in error(tmp_path, "sweep.folds={column: f}")


def test_the_points_of_a_sweep_keep_the_fold_column_out_of_the_rows(tmp_path):
    lines = [
        f"{a!r},{b!r},{label % 2},{label}" for (a, b), label in zip(ROWS[:, :2].tolist(), LABELS.tolist(), strict=True)
    ]
    (tmp_path / "f.csv").write_text("a,b,fold,y\n" + "\n".join(lines))
    config = {
        "data": {"source": str(tmp_path / "f.csv")},
        "sweep": {"folds": {"column": "fold"}, "grid": {"C": [1, 2]}},
    }
    exp = load_experiment(config)
    whole = ingest(exp, tmp_path)
    assert [ingest(point, tmp_path).path for _, point in exp.points()] == [whole.path] * 2
    assert whole.n_features == 2


def test_a_store_that_cannot_be_written(tmp_path):
    (tmp_path / "cache").write_text("a plain file")
    exp = load_experiment({"data": {"source": "sklearn:iris"}})
    with pytest.raises(InputError, match="cannot be written"):
        ingest(exp, tmp_path / "cache")


def test_bad_rows_leave_nothing_behind(tmp_path):
    bad = ROWS.copy()
    bad[200, 3] = np.nan
    assert "row 201, column 3" in error(tmp_path, X=bad)


# ---- folds ----
def test_a_fold_column_is_kept_per_original_row(tmp_path):
    folds = np.array(["b", "a", "c"])[rng.integers(0, 3, N + 60)]
    X, y = ROWS[COPIES], LABELS[COPIES]
    lines = [
        ",".join([*map(repr, row), fold, str(label)]) for row, fold, label in zip(X.tolist(), folds, y, strict=True)
    ]
    (tmp_path / "f.csv").write_text("a,b,c,d,e,f,fold,y\n" + "\n".join(lines))
    config = {"data": {"source": str(tmp_path / "f.csv")}, "sweep": {"folds": {"column": "fold"}}}
    d = ingest(load_experiment(config), tmp_path / "cache")
    assert (d.n_features, d.n_merged, d.folds_of) == (P, N, ["a", "b", "c"])
    assert np.array_equal(np.array(d.folds_of)[d.folds()], folds)
    with pytest.raises(InputError, match=r"no fold column 'fald'.*did you mean 'fold'"):
        ingest(load_experiment(config, ["sweep.folds={column: fald}"]), tmp_path / "cache")


# ---- a bundled set, end to end ----
def test_digits(tmp_path):
    from pathlib import Path

    exp = load_experiment(Path(__file__).parents[3] / "config" / "digits.yaml")
    stages = []
    d = ingest(exp, tmp_path, lambda stage, done, total, **info: stages.append((stage, done, total)))
    X, y = load_digits(return_X_y=True)
    kept, _ = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=0)
    assert (d.n_train, d.n_test, d.n_features) == (1437, 360, 64)
    assert d.variance == pytest.approx((X[kept] / 16).var(), rel=1e-12)
    assert stages[-1] == ("ingest", 1797, 1797)


@pytest.mark.parametrize("kind", ["u1", "i2", ">f4", "f2", "?"])
def test_rows__are_staged_in_the_type_that_they_came_in_and_are_those_of_float64(kind, tmp_path, monkeypatch):
    X = np.random.default_rng(5).integers(0, 2 if kind == "?" else 100, (N, 7)).astype(kind)
    sizes, append = [], RowFiles.append
    monkeypatch.setattr(RowFiles, "append", lambda self, X: (append(self, X), sizes.append(self.kept.itemsize))[0])
    (tmp_path / "narrow").mkdir()
    (tmp_path / "wide").mkdir()
    found = make(tmp_path / "narrow", X=X)
    assert sizes[0] == np.dtype(kind).itemsize
    same = make(tmp_path / "wide", X=X.astype(float))
    np.testing.assert_array_equal(found.X(0, found.n_merged), same.X(0, same.n_merged))
