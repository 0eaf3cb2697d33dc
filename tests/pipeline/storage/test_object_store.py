"""Runs, caches and data on s3://, against a server in this process."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from flows.cli import main
from pipeline import load_model, run
from pipeline.rows import dataset as datasets
from pipeline.running import publish
from pipeline.storage import s3 as s3_store
from pipeline.storage.bucket import Bucket
from pipeline.storage.leases import has_ended
from pipeline.storage.mirror import staging
from pipeline.storage.runs import open_store
from svmcore.errors import InputError

SECRET = "never-in-a-file"


@pytest.fixture
def url(s3, request, machine, monkeypatch):
    """A store of the test's own, on a machine that has seen nothing; drawing the report would be most of the time."""
    machine()
    monkeypatch.setattr(publish, "write_report", lambda folder: (folder / "report.html").write_text("drawn"))
    return f"{s3}/{request.node.name}".replace("[", "-").replace("]", "")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Each call is another machine: an empty staging folder."""
    numbers = iter(range(100))

    def moved():
        folder = tmp_path / f"machine{next(numbers)}"
        monkeypatch.setenv("MARGINFLOW_CACHE", str(folder))
        return folder

    return moved


@pytest.fixture(scope="module")
def remote_run(s3, rows_config, tmp_path_factory):
    """Metrics of a run of `rows_config`, published on the bucket."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINFLOW_CACHE", str(tmp_path_factory.mktemp("machine")))
        return run(rows_config, store=f"{s3}/shared/runs")


def objects(url):
    bucket = Bucket(url)
    return {key: bucket.get(key) for key in bucket.keys()}  # noqa: SIM118 -- a bucket is no mapping


# ---- runs
def test_run__is_the_run_of_a_folder_byte_for_byte(s3, remote_run, rows_run):
    assert remote_run["run"].startswith(f"{s3}/shared/runs/rows/")
    here = Path(rows_run["run"])
    names = {file.relative_to(here).as_posix() for file in here.rglob("*") if file.is_file()}
    there = objects(remote_run["run"])
    assert set(there) == names
    assert there["model.zarr/manifest.json"] == (here / "model.zarr" / "manifest.json").read_bytes()
    assert json.loads(there["metrics.json"]) == remote_run


def test_runs__are_listed_by_url(s3, remote_run, capsys):
    assert main(["runs", "--store", f"{s3}/shared/runs", "--json"]) == 0
    assert [found["run"] for found in json.loads(capsys.readouterr().out)["runs"]] == [remote_run["run"]]


def test_model__predicts_from_its_url(remote_run, rows_run, rows_csv, capsys):
    answers = []
    for model in (remote_run["run"], remote_run["model"], rows_run["model"]):
        assert main(["predict", model, str(rows_csv), "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert [answer["decision"] for answer in answers] == [answers[0]["decision"]] * 3
    assert answers[0]["model"] == remote_run["model"] == load_model(remote_run["run"]).path


def test_verify__recomputes_from_a_url_and_names_a_changed_part(s3, remote_run, capsys):
    assert main(["verify", remote_run["run"]]) == 0
    whole = objects(remote_run["run"])
    copy = Bucket(f"{s3}/changed/rows/run")
    for key, data in whole.items():
        copy.put(key, data[::-1] if key == "model.zarr/bias/c/0" else data)
    assert main(["verify", copy.url]) == 1
    assert "bias/c/0" in capsys.readouterr().err
    assert main(["predict", copy.url, "sklearn:iris"]) == 2
    assert f"{copy.url}/model.zarr: part bias/c/0 was changed" in capsys.readouterr().err


def test_report__is_written_again_at_its_url(remote_run, capsys):
    bucket = Bucket(remote_run["run"])
    page = bucket.get("report.html")
    bucket.put("report.html", b"")
    assert main(["report", remote_run["run"]]) == 0
    assert capsys.readouterr().out == f"{remote_run['run']}/report.html\n"
    assert bucket.get("report.html") == page


def test_batch__has_the_results_of_a_folder(url, rows_config, tmp_path):
    batch = rows_config | {"sweep": {"grid": {"C": [1, 10]}, "folds": 2}}
    local, remote = run(batch, store=tmp_path / "runs"), run(batch, store=url)
    assert remote["problems"] == local["problems"]
    assert Bucket(remote["run"]).get("results.csv") == (Path(local["run"]) / "results.csv").read_bytes()


def test_secrets__reach_no_object_and_no_file(s3, remote_run, url, rows_config, machine):
    folder = machine()
    run(rows_config, store=url)
    files = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    assert files
    assert not [data for data in [*files, *objects(s3).values()] if SECRET.encode() in data]


# ---- half-written runs
def draft(tmp_path, text="{}"):
    folder = tmp_path / "draft"
    (folder / "model.zarr").mkdir(parents=True, exist_ok=True)
    (folder / "model.zarr" / "part").write_text("x")
    (folder / "metrics.json").write_text(text)
    return folder


def test_publish__a_run_is_listed_only_when_its_last_object_is_there(url, tmp_path, monkeypatch):
    store = open_store(url)
    seen = []
    upload = Bucket.upload

    def watched(self, *args):
        whole = upload(self, *args)
        seen.append([*store.run_keys()])
        return whole

    monkeypatch.setattr(Bucket, "upload", watched)
    assert store.publish(draft(tmp_path), "name/run")
    assert seen == [[]]
    assert [*store.run_keys()] == ["name/run"]
    assert set(objects(url)) == {"name/run/model.zarr/part", "name/run/metrics.json"}


def test_publish__that_fails_midway_leaves_nothing(url, tmp_path, monkeypatch):
    def fails(self, key, data):
        if key.endswith("part"):
            raise OSError("for this test")
        return create(self, key, data)

    create = Bucket.create
    monkeypatch.setattr(Bucket, "create", fails)
    with pytest.raises(OSError, match="for this test"):
        open_store(url).publish(draft(tmp_path), "name/run")
    assert objects(url) == {}


def test_publish__of_two_at_once_one_gets_the_name(url, tmp_path):
    folder, won = draft(tmp_path), []
    threads = [
        threading.Thread(target=lambda: won.append(open_store(url).publish(folder, "name/run"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False, False, False, True]
    assert open_store(url).free_key("name/run") == "name/run-2"


PUBLISH = """
import sys
from pathlib import Path
from pipeline.storage.bucket import Bucket
from pipeline.storage.s3 import ObjectStore

upload = Bucket.upload

def slowly(self, *args):
    whole = upload(self, *args)
    print("uploaded", flush=True)
    sys.stdin.readline()
    return whole

Bucket.upload = slowly
print(ObjectStore(sys.argv[1], float(sys.argv[3])).publish(Path(sys.argv[2]), "name/run"), flush=True)
"""


@contextlib.contextmanager
def publishing(url, folder, seconds=600, elsewhere=()):
    """A process that has put all but the last object of name/run, and waits."""
    argv = [*elsewhere, sys.executable, "-c", PUBLISH, url, str(folder), str(seconds)]
    with subprocess.Popen(argv, stdin=-1, stdout=-1, text=True) as process:
        try:
            assert process.stdout.readline() == "uploaded\n"
            yield process
        finally:
            process.kill()


def test_publish__a_killed_one_loses_its_name_at_once_and_a_living_one_does_not(url, tmp_path):
    store, folder = open_store(url), draft(tmp_path)
    with publishing(url, folder) as process:
        assert not store.publish(folder, "name/run")
        assert store.free_key("name/run") == "name/run-2"
        process.kill()
        process.wait()
        assert store.publish(draft(tmp_path, '{"own": 1}'), "name/run")
    assert [run["own"] for run in store.runs()] == [1]
    assert {key for key in objects(url) if key.startswith("name/")} == {
        "name/run/model.zarr/part",
        "name/run/metrics.json",
    }


@pytest.mark.full
def test_publish__by_a_host_that_slept_through_its_lease_shows_nothing(url, tmp_path):
    """Stopped in mid upload, swept by another host, woken: it must not list a run whose objects are gone."""
    elsewhere = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0 or subprocess.run([*elsewhere, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a PID namespace of its own needs root")
    store, folder = open_store(url), draft(tmp_path)
    with publishing(url, folder, 2.0, elsewhere) as process:
        (child,) = psutil.Process(process.pid).children()
        time.sleep(3.0)
        assert not store.publish(folder, "name/run")  # it beats
        child.suspend()
        time.sleep(4.0)
        store._sweep("name")
        assert not [key for key in objects(url) if key.startswith("name/")]
        child.resume()
        assert process.communicate("\n")[0] == "False\n"
    assert [*store.run_keys()] == []


def test_publish__what_an_owner_that_slept_still_uploads_is_refused(url, tmp_path, monkeypatch):
    """It slept between its claim and its upload; meanwhile another host swept it, and published under its name."""
    ours, theirs = draft(tmp_path, '{"own": "late"}'), tmp_path / "theirs"
    shutil.copytree(ours, theirs)
    (theirs / "model.zarr" / "part").write_text("theirs")
    (theirs / "metrics.json").write_text('{"own": "first"}')
    upload = Bucket.upload

    def asleep(self, *args):
        monkeypatch.setattr(Bucket, "upload", upload)
        monkeypatch.setattr(s3_store, "has_ended", lambda owner, age: True)
        assert open_store(url).publish(theirs, "name/run")
        return upload(self, *args)

    monkeypatch.setattr(Bucket, "upload", asleep)
    assert not open_store(url).publish(ours, "name/run")
    assert {key: data for key, data in objects(url).items() if key.startswith("name/")} == {
        "name/run/model.zarr/part": b"theirs",
        "name/run/metrics.json": b'{"own": "first"}',
    }


def test_publish__a_claim_of_an_older_version_goes_after_a_day(url, tmp_path):
    bucket = Bucket(url)
    bucket.put("name/run/.claim", b"2026-01-01T00:00:00+00:00")
    assert not open_store(url).publish(draft(tmp_path), "name/run")
    assert has_ended("2026-01-01T00:00:00+00:00", 25 * 3600)


# ---- going on
def test_another_machine__goes_on_from_what_was_finished(url, rows_config, machine, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(publish, "write_report", lambda folder: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(rows_config, store=url)
    assert [*open_store(url).run_keys()] == []
    machine()
    monkeypatch.setattr(datasets, "build", lambda *args: pytest.fail("the source was read again"))
    assert run(rows_config, store=url)["problems"] == {"total": 3, "reused": 3}


def test_another_machine__gets_what_an_interrupted_push_left_out(url, rows_config, machine):
    run(rows_config, store=url)
    bucket = Bucket(url)
    bucket.delete([key for key in bucket.keys(".cache/problems") if key.endswith(".json")][:1])
    run(rows_config, store=url)
    machine()
    assert run(rows_config, store=url)["problems"] == {"total": 3, "reused": 3}


def test_answers__reach_the_bucket_several_in_one_object(url, rows_config, machine):
    """2,000 of them were 4,000 requests one after the other."""
    grid = {"C": np.geomspace(0.1, 10, 20).tolist()}
    batch = rows_config | {"sweep": {"grid": grid, "refit": False}}
    total = run(batch, store=url)["problems"]["total"]
    assert total == 60
    assert len(Bucket(url).keys(".cache/problems")) < total
    machine()
    assert run(batch, store=url)["problems"] == {"total": total, "reused": total}


@pytest.mark.parametrize("kind", ["data", "problems"])
def test_another_machine__makes_damaged_parts_again(url, rows_config, machine, kind):
    first = run(rows_config, store=url)
    bucket = Bucket(url)
    for key in bucket.keys(f".cache/{kind}"):
        if not key.endswith(".json"):
            bucket.put(key, bucket.get(key)[::-1])
    machine()
    again = run(rows_config, store=url)
    assert again["problems"] == {"total": 3, "reused": 3 if kind == "data" else 0}
    assert [entry["dual"] for entry in again["per_class"]] == [entry["dual"] for entry in first["per_class"]]
    machine()
    assert run(rows_config, store=url)["problems"]["reused"] == 3


def test_staging__is_one_folder_for_each_store_and_none_for_an_error(url, machine):
    folder = machine()
    assert staging(url).parent == folder
    assert staging(url) != staging(url + "x")
    with pytest.raises(InputError):
        run({"data": {"source": "sklearn:iris"}, "class_weight": {"dog": 2}, "cluster": {"kind": "inline"}}, store=url)
    assert not list(folder.glob("*/.drafts/*"))


# ---- refusals
@pytest.mark.parametrize("place", ["gs://lab/runs", "s3://", "s3://no-such-bucket/runs"])
def test_store__that_cannot_be_is_refused_in_one_sentence(s3, place):
    with pytest.raises(InputError) as caught:
        open_store(place)
    assert place in str(caught.value)
    assert "\n" not in str(caught.value)


def test_store__that_does_not_answer_is_refused_soon(s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    started = time.monotonic()
    with pytest.raises(InputError, match="AWS_ENDPOINT_URL"):
        open_store("s3://lab/runs")
    assert time.monotonic() - started < 15


def test_model__that_is_not_there_is_refused(s3, capsys):
    for argv in (["verify", f"{s3}/nothing"], ["report", f"{s3}/nothing"]):
        assert main(argv) == 2
        assert f"{s3}/nothing" in capsys.readouterr().err


# ---- data
@pytest.mark.parametrize("form", ["csv", "zarr"])
def test_source__on_the_bucket_is_the_dataset_of_a_file(url, rows_csv, tmp_path, form):
    local = rows_csv if form == "csv" else _zarr(tmp_path / "rows.zarr")
    files = [local] if form == "csv" else [file for file in local.rglob("*") if file.is_file()]
    Bucket(url).upload(local.parent, "in", files)
    configs = [
        {"data": {"source": source}, "cluster": {"kind": "inline"}} for source in (str(local), f"{url}/in/{local.name}")
    ]
    found = [run(config, store=tmp_path / "runs") for config in configs]
    assert [one["problems"]["reused"] for one in found] == [0, found[0]["problems"]["total"]]


def _zarr(path):
    import zarr

    rng = np.random.default_rng(0)
    group = zarr.create_group(str(path))
    group.create_array("X", data=rng.normal(size=(40, 3)))
    group.create_array("y", data=np.arange(40) % 2)
    return path
