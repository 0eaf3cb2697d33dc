import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from pipeline.model.parts import OWNER
from pipeline.model.stored import load_model, save_model
from pipeline.rows.scaling import Scaling
from pipeline.storage.runs import LocalStore, open_store
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.model import Model


def a_model(classes=("no", "yes"), rows=((0.0, 1.0), (2.0, 0.0), (1.5, 1.0))):
    rows = rows if sparse.issparse(rows) else np.array(rows)
    k = 1 if len(classes) == 2 else len(classes)
    coef = np.linspace(-1.0, 1.0, 3 * k).reshape(k, 3)
    kernel = Kernel.create({"name": "rbf", "gamma": 0.7})
    return Model(kernel, rows, coef, np.full(k, 0.25), np.array(classes, dtype=object), "ovr")


SCALING = Scaling("standard", np.array([1.0, -2.0]), np.array([0.5, 4.0]))
METADATA = {"config": {"C": 1.0}, "per_class": []}


@pytest.fixture
def saved(tmp_path):
    save_model(tmp_path / "model.zarr", a_model(), SCALING, [4, 7, 9], METADATA)
    return tmp_path / "model.zarr"


@pytest.mark.parametrize("classes", [("no", "yes"), (False, True), (-1, 1), (0.5, 1.5), (1, 2, 3)])
def test_model__comes_back_with_label_types_and_decision_values(tmp_path, classes):
    model = a_model(classes)
    save_model(tmp_path / "model.zarr", model, SCALING, [0, 1, 2], METADATA)
    back = load_model(tmp_path / "model.zarr")
    X = np.random.default_rng(0).normal(size=(20, 2))
    assert np.array_equal(back.decision_function(X), model.decision_function(SCALING.apply(X)))
    assert back.classes == list(classes)
    assert {type(label) for label in back.predict(X).tolist()} <= {type(label) for label in classes}
    assert back.metadata["config"] == {"C": 1.0}


def test_model__sparse_support_vectors_stay_sparse(tmp_path):
    rows = sparse.csr_matrix(np.array([[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]]))
    none = Scaling("none", np.zeros(2), np.ones(2))
    save_model(tmp_path / "model.zarr", a_model(rows=rows), none, [0, 1, 2], METADATA)
    back = load_model(tmp_path / "model.zarr")
    assert sparse.issparse(back.model.support_vectors)
    assert np.array_equal(back.model.support_vectors.toarray(), rows.toarray())


def test_model__equal_models_are_equal_bytes(tmp_path):
    manifests = [save_model(tmp_path / name, a_model(), SCALING, [0, 1, 2], METADATA) for name in ("a.zarr", "b.zarr")]
    assert manifests[0] == manifests[1]


def test_load__one_flipped_bit_in_any_part_names_the_part(saved):
    parts = [file for file in saved.rglob("*") if file.is_file() and file.name != OWNER]  # a mark, and no part
    assert len(parts) > 8
    for part in parts:
        whole = part.read_bytes()
        part.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        with pytest.raises(InputError, match=part.relative_to(saved).as_posix()):
            load_model(saved)
        part.write_bytes(whole)
    load_model(saved)


def test_load__missing_and_added_parts_are_named(saved):
    (saved / "coef" / "c" / "0" / "1").write_bytes(b"stray")
    with pytest.raises(InputError, match="coef/c/0/1 is not in the manifest"):
        load_model(saved)
    (saved / "coef" / "c" / "0" / "1").unlink()
    (saved / "bias" / "c" / "0").unlink()
    with pytest.raises(InputError, match="bias/c/0 is missing"):
        load_model(saved)


def test_load__manifest_that_hides_a_change_is_noticed(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    manifest["parts"].popitem()
    (saved / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"manifest\.json was changed"):
        load_model(saved)


def test_load__newer_format_names_both_versions(saved):
    manifest = json.loads((saved / "manifest.json").read_text()) | {"format": 7}
    (saved / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"format 7.*up to format 4"):
        load_model(saved)


@pytest.mark.parametrize("name", ["nothing-here", "."])
def test_load__a_folder_without_a_model_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="no model at"):
        load_model(tmp_path / name)


def test_load__the_runs_folder_will_do(saved):
    assert load_model(saved.parent).path == str(saved)


def a_draft(store, **metrics):
    with store.draft() as folder:
        (folder / "metrics.json").write_text(json.dumps(metrics))
        assert store.publish(folder, store.free_key("name/run"))


def test_store__lists_runs_best_first_and_numbers_equal_names(tmp_path):
    store = open_store(tmp_path / "runs")
    for accuracy in (0.8, None, 0.9):
        a_draft(store, accuracy=accuracy)
    listed = [(run["key"], run["accuracy"]) for run in store.runs()]
    assert listed == [("name/run-3", 0.9), ("name/run", 0.8), ("name/run-2", None)]


def test_store__a_taken_name_is_never_replaced(tmp_path):
    store = open_store(tmp_path)
    a_draft(store, accuracy=1.0)
    with store.draft() as folder:
        (folder / "metrics.json").write_text("{}")
        assert not store.publish(folder, "name/run")
    assert json.loads(store.get_bytes("name/run/metrics.json")) == {"accuracy": 1.0}


def test_store__an_unfinished_run_is_not_listed_and_goes(tmp_path):
    store = open_store(tmp_path / "runs")
    with store.draft() as folder:
        (folder / "metrics.json").write_text("{}")
        assert store.runs() == []
    store.tidy()
    assert not (tmp_path / "runs").exists()


def test_store__under_a_plain_file_is_refused_and_creates_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file is a file, not a folder"):
        open_store(tmp_path / "file" / "runs")
    assert os.listdir(tmp_path) == ["file"]
    open_store(tmp_path / "new" / "runs")
    assert os.listdir(tmp_path) == ["file"]


def test_store__bytes_are_whole_or_absent(tmp_path):
    store = LocalStore(tmp_path)
    store.put_bytes("a/b.json", b"one")
    store.put_bytes("a/b.json", b"two")
    assert store.get_bytes("a/b.json") == b"two"
    assert os.listdir(tmp_path / "a") == ["b.json"]
    with pytest.raises(FileNotFoundError):
        store.get_bytes("a/c.json")


def test_run__its_model_survives_a_move(rows_run, tmp_path):
    shutil.copytree(rows_run["model"], tmp_path / "elsewhere")
    assert load_model(tmp_path / "elsewhere").classes == ["ant", "bee", "cat"]
    assert Path(rows_run["run"]).is_absolute()
