"""Datasets in the cache: found again without reading, and damage never read as zeros but named and made again."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pipeline.rows.ingest
from pipeline.config.load import load_experiment
from pipeline.rows.dataset import ingest, open_dataset
from svmcore.errors import InputError

from .ingested_rows import LABELS, ROWS, N, make, rng


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
