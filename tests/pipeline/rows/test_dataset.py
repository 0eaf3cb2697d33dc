"""Datasets: the right rows, merged and scaled right, found again, and damage never read as zeros."""

import bz2
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

import pipeline.rows.ingest
from pipeline.config.load import load_experiment
from pipeline.kinds.labels import LabelCodes
from pipeline.rows.dataset import Scaling, ingest, open_dataset
from pipeline.rows.scaling import ColumnStats, fit_scaling
from pipeline.rows.split import stratified_sample
from svmcore.errors import InputError
from svmcore.points.identical import merge_rows

rng = np.random.default_rng(1)
N, P = 300, 6
ROWS = np.round(rng.normal(size=(N, P)) * [1, 1, 5, 0.1, 2, 3], 2)
ROWS += [0, 3, 0, 0, -7, 0]
ROWS[:, 5] = 2.5  # a constant column
LABELS = rng.integers(0, 3, N)
COPIES = np.array([*range(N), *range(40), *range(20)])  # rows 0..19 three times, 20..39 twice


def make(folder, *overrides, X=ROWS, y=LABELS, test=None, name="rows.npz", **config):
    """Ingest X, y saved as npz or LIBSVM."""
    data = {"source": save(folder, X, y, name)}
    if test is not None:
        data["test"] = save(folder, *test, name="test_" + name) if isinstance(test, tuple) else test
    return ingest(load_experiment({"data": data} | config, overrides), folder / "cache")


def save(folder, X, y, name):
    path = folder / name
    if name.endswith(".npz"):
        np.savez(path, X=X, y=y)
    elif ".csv" in name:
        np.savetxt(path, np.column_stack([X, y]), delimiter=",")  # packed by its name
    else:
        buffer = io.BytesIO()
        dump_svmlight_file(X, y, buffer, zero_based=False)
        path.write_bytes(bz2.compress(buffer.getvalue()) if name.endswith(".bz2") else buffer.getvalue())
    return str(path)


def error(folder, *overrides, **keys):
    with pytest.raises(InputError) as caught:
        make(folder, *overrides, **keys)
    assert "\n" not in str(caught.value)
    assert list((folder / "cache").rglob("*")) in ([], [folder / "cache" / "data"])  # nothing is left behind
    return str(caught.value)


def dense(X):
    return X.toarray() if sparse.issparse(X) else X


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


# ---- scaling ----
@pytest.mark.parametrize(
    ("kind", "reference"), [("standard", StandardScaler()), ("minmax", MinMaxScaler()), ("maxabs", MaxAbsScaler())]
)
def test_scaling_is_scikit_learns_fitted_on_training_rows(tmp_path, kind, reference):
    d = make(tmp_path, f"data.scale={kind}", test=0.3)
    kept, held_out = (
        np.sort(part) for part in train_test_split(np.arange(N), test_size=0.3, stratify=LABELS, random_state=0)
    )
    reference.fit(ROWS[kept])
    assert np.allclose(d.X()[d.inverse()], reference.transform(ROWS[kept]), rtol=1e-6, atol=1e-6)
    ((X, _),) = d.test_blocks()
    assert np.allclose(X, reference.transform(ROWS[held_out]), rtol=1e-6, atol=1e-6)
    assert np.allclose(d.scaling.apply(ROWS[held_out]), reference.transform(ROWS[held_out]), rtol=1e-13, atol=1e-13)
    assert np.allclose(d.scaling.undo(d.scaling.apply(ROWS)), ROWS, rtol=1e-12)
    assert d.variance == pytest.approx(reference.transform(ROWS[kept]).var(), rel=1e-12)


@pytest.mark.parametrize("kind", ["none", "maxabs", "16"])
def test_sparse_scaling_equals_dense_scaling(tmp_path, kind):
    X = np.where(np.abs(ROWS) > 2, ROWS, 0)
    a = make(tmp_path, f"data.scale={kind}", X=X, test=(X, LABELS))
    b = make(tmp_path, f"data.scale={kind}", X=X, test=(X, LABELS), name="rows.svm")
    assert b.sparse
    assert np.array_equal(a.X(), b.X().toarray())
    assert a.variance == pytest.approx(b.variance, rel=1e-12)
    assert b.variance == pytest.approx(b.scaling.apply(X).var(), rel=1e-12)
    assert np.array_equal(next(a.test_blocks())[0], next(b.test_blocks())[0].toarray())
    S = sparse.csr_array(X)
    assert np.allclose(b.scaling.undo(b.scaling.apply(S)).toarray(), X)
    assert np.array_equal(S.toarray(), X)  # the given rows are not touched


def test_a_constant_column_is_not_divided_by_zero(tmp_path):
    for kind, value in (("standard", 0), ("minmax", 0), ("maxabs", 1)):
        d = make(tmp_path, f"data.scale={kind}")
        assert (d.X()[:, 5] == value).all()


def test_rows_of_another_width_are_refused(tmp_path):
    d = make(tmp_path)
    with pytest.raises(InputError, match="rows with 7 features were given, the training data has 6"):
        d.scaling.apply(np.ones((2, 7)))


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 30), min_size=1, max_size=5))
@settings(max_examples=40)
def test_column_statistics_do_not_depend_on_the_blocks(seed, sizes):
    random = np.random.default_rng(seed)
    X = random.normal(size=(sum(sizes) + 1, 3)) * [1, 1e-3, 1e6] + [1e4, 0, 1e9]
    X[random.random(X.shape) < 0.5] = 0
    for kind in (np.asarray, sparse.csr_array):
        stats = ColumnStats(3)
        for part in np.split(X, np.cumsum(sizes)):
            stats.add(kind(part))
        assert stats.n == len(X)
        assert np.allclose(stats.mean, X.mean(axis=0), rtol=1e-12)
        assert np.allclose(stats.variance, X.var(axis=0), rtol=1e-9, atol=1e-30)
        assert np.array_equal(stats.least, X.min(axis=0))
        assert np.array_equal(stats.largest, X.max(axis=0))


# ---- precision ----
@pytest.mark.parametrize("name", ["rows.npz", "rows.svm"])
@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        (ROWS, np.float32),
        (ROWS + 1e4, np.float64),
        (np.round(ROWS * 10) + 1e4, np.float32),  # whole numbers that float32 holds exactly
        (ROWS * 1e40, np.float64),
        (np.where(np.arange(P) == 5, 0.1 + 1e7, ROWS), np.float32),  # a constant column has nothing to lose
    ],
    ids=["near zero", "shifted", "whole", "beyond float32", "constant"],
)
def test_float64_is_kept_where_float32_would_lose(tmp_path, rows, dtype, name):
    d = make(tmp_path, X=rows, name=name)
    assert d.dtype == dtype
    X = dense(d.X())[d.inverse()]
    assert X.dtype == dtype
    spread = np.maximum(rows.max(axis=0) - rows.min(axis=0), 1e-3)
    assert (np.abs(X - rows)[:, :5] <= 1e-6 * spread[:5]).all()


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


# ---- found again ----
def test_a_dataset_is_found_again_without_reading(tmp_path, monkeypatch):
    first = make(tmp_path, test=0.2)
    monkeypatch.setattr(pipeline.rows.dataset, "build", lambda *a: pytest.fail("read again"))
    again = make(tmp_path, test=0.2)
    assert (again.path, again.fingerprint) == (first.path, first.fingerprint)
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.copy(tmp_path / "rows.npz", tmp_path / "elsewhere" / "other.npz")
    exp = load_experiment({"data": {"source": str(moved), "test": 0.2}, "C": 7, "kernel": "linear"})
    assert ingest(exp, tmp_path / "cache").path == first.path


@pytest.mark.parametrize("override", ["data.scale=standard", "data.test=0.3", "data.rows=99", "seed=1"])
def test_other_data_keys_make_another_dataset(tmp_path, override):
    first = make(tmp_path, test=0.2)
    other = make(tmp_path, override, test=0.2) if not override.startswith("data.test") else make(tmp_path, test=0.3)
    assert other.path != first.path
    assert other.fingerprint != first.fingerprint


def test_the_same_content_has_the_same_fingerprint_in_any_format(tmp_path):
    a = make(tmp_path, test=0.2)
    b = make(tmp_path, test=0.2, X=np.asfortranarray(ROWS), name="fortran.npz")
    assert a.path != b.path
    assert a.fingerprint == b.fingerprint


def test_another_order_of_rows_changes_the_inverse_but_not_the_rows(tmp_path):
    order = rng.permutation(N)
    a, b = make(tmp_path), make(tmp_path, X=ROWS[order], y=LABELS[order], name="shuffled.npz")
    assert a.rows_fingerprint == b.rows_fingerprint
    assert a.fingerprint != b.fingerprint
    assert np.array_equal(a.inverse()[order], b.inverse())


def test_a_killed_process_s_folder_is_swept_and_a_living_one_s_is_not(tmp_path):
    owner = "import sys; from pathlib import Path; from pipeline.storage.sealed import building\n"
    owner += "with building(Path(sys.argv[1]) / sys.argv[2]) as folder:\n    print(folder, flush=True); input()"
    (tmp_path / "cache").mkdir()
    argv = [sys.executable, "-c", owner, str(tmp_path / "cache" / "data")]
    with (
        subprocess.Popen([*argv, "dead"], stdin=-1, stdout=-1, text=True) as dead,
        subprocess.Popen([*argv, "living"], stdin=-1, stdout=-1, text=True) as living,
    ):
        folders = [Path(one.stdout.readline().strip()) for one in (dead, living)]
        dead.kill()
        dead.wait()
        make(tmp_path)
        assert [folder.is_dir() for folder in folders] == [False, True]
        living.kill()


# ---- damage ----
def chunks(d, array):
    found = sorted(path for path in (d.path / array).rglob("*") if path.is_file() and path.name != "zarr.json")
    assert found
    return found


READS = {
    "train/X": lambda d: d.X(),
    "train/codes": lambda d: d.targets(),
    "train/counts": lambda d: d.counts(),
    "train/inverse": lambda d: d.inverse(),
    "test/X": lambda d: list(d.test_blocks()),
    "test/codes": lambda d: list(d.test_blocks()),
    "scaling/factor": lambda d: open_dataset(d.path),
}


def damaged(good):
    """The bytes of a chunk in the ways it can be broken: a bit flipped anywhere, cut short, missing (None)."""
    for at in (0, len(good) // 2, len(good) - 1):
        bad = bytearray(good)
        bad[at] ^= 4
        yield bad, "damaged"
    yield good[:-3], "damaged"
    yield None, "damaged.*missing"


@pytest.mark.parametrize("name", ["rows.npz", "rows.svm"])
@pytest.mark.parametrize("array", READS)
def test_a_flipped_bit_or_a_short_or_missing_chunk_is_an_error_never_zeros(tmp_path, array, name):
    d = make(tmp_path, test=0.2, name=name)
    for path in chunks(d, array):
        good = path.read_bytes()
        for bad, said in damaged(good):
            path.unlink() if bad is None else path.write_bytes(bad)
            with pytest.raises(InputError, match=said):
                READS[array](d)
        path.write_bytes(good)
        READS[array](d)


def test_changed_metadata_and_manifests_are_errors(tmp_path):
    d = make(tmp_path)
    zarr_json = d.path / "train" / "codes" / "zarr.json"
    good = zarr_json.read_text()
    zarr_json.write_text(good.replace('"fill_value": 0', '"fill_value": 1'))
    assert zarr_json.read_text() != good
    with pytest.raises(InputError, match=r"train/codes/zarr\.json was changed"):
        open_dataset(d.path)
    zarr_json.write_text(good)
    manifest = d.path / "manifest.json"
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(facts | {"classes": [0, 1, 3]}))
    with pytest.raises(InputError, match="was changed"):
        open_dataset(d.path)
    manifest.write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        open_dataset(d.path)
    manifest.unlink()
    with pytest.raises(InputError, match=r"manifest\.json is missing"):
        open_dataset(d.path)


@pytest.mark.parametrize("file", ["train/X", "scaling/factor", "zarr.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["flipped", "short", "missing"])
def test_a_damaged_dataset_in_the_cache_is_made_again(tmp_path, file, damage):
    d = make(tmp_path, test=0.2)
    whole = {path: path.read_bytes() for path in d.path.rglob("*") if path.is_file()}
    path = next(path for path in sorted(whole) if path.name == file or path.is_relative_to(d.path / file))
    if damage == "missing":
        path.unlink()
    else:
        good = bytearray(whole[path])
        good[len(good) // 2] ^= 4
        path.write_bytes(good if damage == "flipped" else good[:-3])
    make(tmp_path, test=0.2).verify()
    assert {path: path.read_bytes() for path in d.path.rglob("*") if path.is_file()} == whole
    assert [folder.name for folder in (tmp_path / "cache" / "data").iterdir()] == [d.path.name]


def test_a_damaged_dataset_stays_until_the_new_one_is_whole(tmp_path, monkeypatch):
    d = make(tmp_path)
    path = chunks(d, "train/X")[0]
    path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr(pipeline.rows.ingest, "_merge", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make(tmp_path)
    assert len(d.targets()) == d.n_merged


def test_verify_names_the_file(tmp_path):
    d = make(tmp_path)
    d.verify()
    path = chunks(d, "train/X")[0]
    bad = bytearray(path.read_bytes())
    bad[-1] ^= 1
    path.write_bytes(bad)
    with pytest.raises(InputError, match="train/X/c/0/0 was changed"):
        d.verify()


def test_many_chunks(tmp_path, monkeypatch):
    import pipeline.storage.sealed

    monkeypatch.setattr(pipeline.storage.sealed, "CHUNK_BYTES", 1000)
    d = make(tmp_path, test=0.2)
    assert len(chunks(d, "train/X")) > 3
    assert np.array_equal(d.X()[d.inverse()].sum(axis=0), make(tmp_path, test=0.2).X()[d.inverse()].sum(axis=0))
    chunks(d, "train/X")[2].unlink()
    with pytest.raises(InputError, match="missing"):
        d.X()


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


def test_scaling_none_keeps_values():
    stats = ColumnStats(2)
    stats.add(np.array([[1.0, 2.0], [3.0, 2.0]]))
    scaling = fit_scaling("none", stats, False)
    assert isinstance(scaling, Scaling)
    assert np.array_equal(scaling.apply(np.array([[1, 2]])), [[1.0, 2.0]])
