"""Aliases on a folder and on S3: moved in one step, with a log; a model is found by its alias everywhere."""

import json
import shutil
import threading
from pathlib import Path

import pytest

from flows.cli import main
from pipeline import load_model
from pipeline.registry.aliases import aliases, current, promote, resolved, run_at
from pipeline.storage.runs import open_store
from svmcore.errors import InputError

RUNS = ("rows/20260101T000000Z-aaaaaaaa", "rows/20260102T000000Z-bbbbbbbb")


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path, rows_run, monkeypatch):
    """A store with two runs of equal models."""
    monkeypatch.setenv("MARGINFLOW_CACHE", str(tmp_path / "cache"))
    url = str(tmp_path / "runs") if request.param == "folder" else f"{request.getfixturevalue('s3')}/{tmp_path.name}"
    opened = open_store(url)
    for key in RUNS:
        with opened.draft() as draft:
            shutil.copytree(rows_run["run"], draft, dirs_exist_ok=True)
            assert opened.publish(draft, key)
    return opened


def test_promote__names_a_run_and_logs_who_when_and_why(store):
    assert current(store, "rows", "champion") is None
    first = promote(store, RUNS[0], why="the first")
    second = promote(store, RUNS[1])
    back = promote(store, RUNS[0], why="worse on Mondays")
    assert [move.before for move in (first, second, back)] == [None, *RUNS]
    assert current(store, "rows", "champion") == back
    assert aliases(store) == {"rows@champion": [first, second, back]}
    assert "@" in back.who
    assert back.at.endswith("+00:00")


def test_promote__of_many_at_once_each_is_in_the_log(store):
    threads = [threading.Thread(target=promote, args=(store, RUNS[k % 2], "champion", str(k))) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = aliases(store)["rows@champion"]
    assert sorted(move.why for move in log) == [str(k) for k in range(8)]
    assert [move.before for move in log] == [None, *(move.run for move in log[:-1])]


def test_promote__what_cannot_be_named_is_refused(store):
    with pytest.raises(InputError, match="no run rows/absent"):
        promote(store, "rows/absent")
    with pytest.raises(InputError, match="letters, digits"):
        promote(store, RUNS[0], "../x")
    metrics = json.loads(store.get_bytes(f"{RUNS[0]}/metrics.json")) | {"model": None}
    store.put_bytes(f"{RUNS[0]}/metrics.json", json.dumps(metrics).encode())
    with pytest.raises(InputError, match=r"has no model.*sweep\.refit"):
        promote(store, RUNS[0])


def test_alias__names_a_model_everywhere(store, rows_csv, tmp_path, capsys):
    place = f"{store.url}/rows@champion"
    assert main(["promote", store.address(RUNS[1]), "--why", "for this test"]) == 0
    assert f"rows@champion: {RUNS[1]}" in capsys.readouterr().out
    assert resolved(place) == store.address(RUNS[1])
    assert run_at(place)[1] == RUNS[1]
    assert load_model(place).path == f"{store.address(RUNS[1])}/model.zarr"
    outputs = tmp_path / "labels.csv", tmp_path / "model.onnx"
    for argv in (
        ["predict", place, str(rows_csv), "--output", str(outputs[0])],
        ["verify", place, "--source", str(rows_csv)],
        ["export", place, str(outputs[1])],
        ["report", place],
    ):
        assert main(argv) == 0, argv
    assert f"{store.address(RUNS[1])}/report.html" in capsys.readouterr().out
    assert all(path.stat().st_size for path in outputs)
    assert main(["promote", place, "--as", "canary"]) == 0
    capsys.readouterr()
    assert main(["aliases", "--store", store.url, "--json"]) == 0
    found = {entry["alias"]: entry["run"] for entry in json.loads(capsys.readouterr().out)["aliases"]}
    assert found == {"rows@canary": RUNS[1], "rows@champion": RUNS[1]}


def test_alias__that_is_not_there_is_refused_with_those_that_are(store):
    with pytest.raises(InputError, match=r"no alias rows@champion .*it has no aliases"):
        load_model(f"{store.url}/rows@champion")
    promote(store, RUNS[0])
    with pytest.raises(InputError, match="there are rows@champion - did you mean 'rows@champion'"):
        load_model(f"{store.url}/rows@champio")


def test_alias__a_changed_entry_is_told_and_leads_nowhere_else(store):
    promote(store, RUNS[0])
    key = ".aliases/rows/champion/00000001.json"
    for text in ("{}", "no json", json.dumps(json.loads(store.get_bytes(key)) | {"run": "../../etc"})):
        store.put_bytes(key, text.encode())
        with pytest.raises(InputError, match=r"00000001\.json"):
            load_model(f"{store.url}/rows@champion")


def test_alias__a_path_with_an_at_sign_is_a_path(rows_run, tmp_path):
    copy = Path(shutil.copytree(rows_run["run"], tmp_path / "me@home"))
    assert load_model(copy).path == str(copy / "model.zarr")


def test_runs__aliases_are_no_runs(store):
    promote(store, RUNS[0])
    assert sorted(run["key"] for run in store.runs()) == sorted(RUNS)


def test_remove__a_run_is_listed_no_more(store):
    store.remove(RUNS[0])
    assert [run["key"] for run in store.runs()] == [RUNS[1]]
    assert store.keys(RUNS[0]) == []
