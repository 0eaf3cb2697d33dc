"""A folder that somebody else made: what its files name is not asked for, and what was changed in it is told."""

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
import zarr

from flows.cli import main
from pipeline import run
from pipeline.model.parts import OWNER, is_own_model, write_model_manifest
from pipeline.model.stored import load_model
from pipeline.model.verify import verify
from pipeline.report.page import rewrite_report
from pipeline.storage.runs import seal_run
from svmcore.errors import InputError

SECRET = "hunter2-5f1d"


@pytest.fixture
def listener(monkeypatch):
    """A host that the model names; it keeps the first bytes of whoever calls."""
    monkeypatch.setenv("MY_SECRET", SECRET)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(8)
        server.settimeout(0.0)
        yield server


def called(server):
    """Whether anybody has called."""
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def planted(rows_run, folder, **data):
    """A copy of a run whose model names other sources, with manifests that fit."""
    copy = Path(shutil.copytree(rows_run["run"], folder / "theirs"))
    group = zarr.open_group(str(copy / "model.zarr"), mode="r+")
    config = group.attrs["config"]
    config["data"] |= data
    group.attrs["config"] = config
    write_model_manifest(copy / "model.zarr")
    text = (copy / "config.yaml").read_text().splitlines()
    replaced = [next((f"  {k}: {v}" for k, v in data.items() if line.startswith(f"  {k}:")), line) for line in text]
    (copy / "config.yaml").write_text("\n".join(replaced))
    seal_run(copy)
    return copy


@pytest.mark.parametrize("key", ["source", "test"])
def test_verify__asks_no_host_that_a_strangers_model_names(rows_run, rows_csv, tmp_path, listener, key, capsys):
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/${{MY_SECRET}}.csv"
    theirs = planted(rows_run, tmp_path, **{key: url})
    assert main(["verify", str(theirs), *(["--source", str(rows_csv)] if key == "test" else [])]) == 2
    told = capsys.readouterr().err
    assert "--trust" in told
    assert f"data.{key}" in told
    assert SECRET not in told
    assert not called(listener)


@pytest.mark.parametrize("named", ["/proc/self/environ", "${MY_SECRET}", "s3://bucket/${MY_SECRET}.csv"])
def test_verify__reads_no_file_and_no_variable_that_a_strangers_model_names(rows_run, tmp_path, monkeypatch, named):
    monkeypatch.setenv("MY_SECRET", SECRET)
    with pytest.raises(InputError, match="did not write it") as caught:
        verify(planted(rows_run, tmp_path, source=named))
    assert SECRET not in str(caught.value)


def test_predict_report_and_plan__ask_no_host_that_a_strangers_run_names(
    rows_run, rows_csv, tmp_path, listener, capsys
):
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/${{MY_SECRET}}.csv"
    theirs = planted(rows_run, tmp_path, source=url, test=url)
    assert main(["predict", str(theirs), str(rows_csv), "--json"]) == 0
    assert main(["report", str(theirs)]) == 0
    assert SECRET not in (theirs / "report.html").read_text()
    capsys.readouterr()
    assert main(["plan", str(theirs / "config.yaml")]) == 2
    told = capsys.readouterr().err
    assert "--trust" in told
    assert SECRET not in told
    assert not called(listener)


def test_verify__a_strangers_model_with_the_rows_given(rows_run, rows_csv, tmp_path):
    theirs = planted(rows_run, tmp_path, source="http://nowhere.invalid/x.csv")
    report = verify(theirs, source=str(rows_csv))
    assert report["differences"] == []


def test_verify__ones_own_run_needs_no_option_also_as_a_copy(rows_run, tmp_path, capsys):
    assert main(["verify", rows_run["run"]]) == 0
    moved = shutil.copytree(rows_run["run"], tmp_path / "elsewhere")
    assert main(["verify", str(moved)]) == 0
    assert is_own_model(Path(moved, "model.zarr"))


def test_verify__bundled_rows_need_no_trust(tmp_path):
    found = run({"data": {"source": "sklearn:iris"}, "cluster": {"kind": "inline"}}, store=str(tmp_path))
    Path(found["model"], OWNER).unlink()
    assert verify(found["run"])["agrees"]


def test_own__another_accounts_key_does_not_know_the_model(rows_run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert not is_own_model(Path(rows_run["model"]))
    with pytest.raises(InputError, match="did not write it"):
        verify(rows_run["run"])
    assert verify(rows_run["run"], trust=True)["agrees"]
    key = tmp_path / "marginflow" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700


def test_own__a_mark_is_of_one_model(rows_run, tmp_path):
    theirs = planted(rows_run, tmp_path, source="/etc/passwd")  # with the mark of the model that it was
    assert (theirs / "model.zarr" / OWNER).exists()
    assert not is_own_model(theirs / "model.zarr")


def test_report__does_not_follow_a_link_out_of_the_folder(rows_run, tmp_path):
    theirs = Path(shutil.copytree(rows_run["run"], tmp_path / "theirs"))
    target = tmp_path / "precious"
    target.write_text("mine")
    (theirs / "report.html").unlink()
    (theirs / "report.html").symlink_to(target)
    rewrite_report(theirs)
    assert target.read_text() == "mine"


def test_model__its_manifest_covers_itself(rows_run, tmp_path):
    """Also what is not the list of parts: the format decides how the rest is read."""
    copy = Path(shutil.copytree(rows_run["model"], tmp_path / "model.zarr"))
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"note": "added"}))
    with pytest.raises(InputError, match=r"manifest\.json was changed"):
        load_model(copy)


def test_private_folder__of_another_user_is_refused(tmp_path, monkeypatch):
    """Only root can give a folder away; anybody can be somebody else for a moment."""
    from pipeline.storage.private import private_folder

    private_folder(tmp_path / "mine")
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(InputError, match="no folder of this user"):
        private_folder(tmp_path / "mine")


def test_private_folder__a_link_is_refused_and_a_wide_mode_is_narrowed(tmp_path):
    from pipeline.storage.private import private_folder

    (tmp_path / "wide").mkdir(mode=0o777)
    assert private_folder(tmp_path / "wide").stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(tmp_path / "wide")
    with pytest.raises(InputError, match="no folder of this user"):
        private_folder(tmp_path / "link")


@pytest.mark.parametrize("name", ["coef", "bias", "support_vectors"])
def test_load__an_array_that_promises_more_than_there_is(rows_run, tmp_path, name):
    copy = Path(shutil.copytree(rows_run["model"], tmp_path / "model.zarr"))
    meta = copy / name / "zarr.json"
    facts = json.loads(meta.read_text())
    facts["shape"] = [10**12, *facts["shape"][1:]]
    meta.write_text(json.dumps(facts))
    write_model_manifest(copy)
    with pytest.raises(InputError, match="times as many"):
        load_model(copy)
