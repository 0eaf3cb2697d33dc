"""What crosses the cable between a driver and its shards, as the network interface counts it.

Dask and the store go over that interface of a network namespace, and nothing else does.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.cases import generated

from .test_bucket_only import dask_of, hosts, two_hosts  # noqa: F401

pytestmark = pytest.mark.full

FEW, MANY = 50_000, 200_000
FULL = 4096  # variables of the largest working set
SMALL = {"name": "smo", "working_set": 1024, "newcomers": 128}  # fewer than the support vectors at either size
COUNTING = """
import json, sys
from pathlib import Path
from pipeline import run
from pipeline.kernel import shards
from pipeline.running import batch
from svmcore.shards.state import ShardedState

marks = []

def mark(name, members=0):
    device, = (one for one in Path("/sys/class/net").iterdir() if one.name != "lo")
    passed = sum(int((device / "statistics" / f"{way}_bytes").read_text()) for way in ("rx", "tx"))
    marks.append([name, members, passed])

def opened(*given):
    source = shards.open_shards(*given)
    mark("opened")
    return source

class Marked(ShardedState):
    def __init__(self, *given):
        super().__init__(*given)
        mark("begun")

    def apply(self, idx, beta):
        super().apply(idx, beta)
        mark("round", len(idx))

batch.open_shards, shards.ShardedSource.state = opened, lambda source, *given: Marked(source.group, *given)
metrics = run(json.loads(Path(sys.argv[1]).read_text()))
mark("proved")
print(json.dumps({"marks": marks, "status": metrics["status"], "plan": metrics["plan"]["plan"]}))
"""


def counted(hosts, address, rows, **more):  # noqa: F811
    """Bytes of a fit of so many rows: [what, members of the working set, bytes since what was before].

    The first is the class's beginning: that the shards read their rows is not in it.
    """
    here, _, env, mine = hosts
    X, y = generated(rows)
    np.savez(mine / "rows.npz", X=X, y=y)
    config = {"name": "traffic", "data": {"source": str(mine / "rows.npz")}, "store": "s3://lab/runs", "C": 10}
    config |= {"kernel": {"name": "rbf", "gamma": 0.1}, **more}
    config |= {"cluster": {"kind": "address", "address": address, "insecure": True}}
    (mine / "rows.json").write_text(json.dumps(config))
    env = {**env, "XDG_CACHE_HOME": str(mine / "cache"), "TMPDIR": str(mine)}
    argv = [*here, sys.executable, "-c", COUNTING, str(mine / "rows.json")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["status"], found["plan"]) == ("converged", "shards")
    passed = [total for *_, total in found["marks"]]
    assert found["marks"][0][0] == "opened"
    return [(name, q, after - before) for (name, q, after), before in zip(found["marks"][1:], passed, strict=False)]


def of_rounds(parts):
    """(members, bytes) of each round, and the bytes of the beginning and the proof."""
    rounds = [(q, size) for name, q, size in parts if name == "round"]
    return rounds, sum(size for name, _, size in parts if name != "round")


def both(hosts, folder, **more):  # noqa: F811
    """`of_rounds` of few rows and of many."""
    with dask_of(hosts, folder) as (address, _):
        few, many = (of_rounds(counted(hosts, address, rows, **more)) for rows in (FEW, MANY))
    for rounds, ends in (few, many):
        sizes = [size for _, size in rounds]
        sys.stdout.write(f"{len(sizes)} rounds, {np.mean(sizes):,.0f} each, at most {max(sizes):,}; else {ends:,}\n")
    return few, many


def test_round__costs_the_same_bytes_however_many_rows(hosts, tmp_path):  # noqa: F811
    """Compared round by round while the working sets grow alike: more support vectors take more full rounds."""
    (few, few_ends), (many, many_ends) = both(hosts, tmp_path)
    growing = [(one, other) for (q, one), (r, other) in zip(few, many, strict=False) if q == r < FULL]
    mean, mean_of_many = np.mean(growing, axis=0)
    sys.stdout.write(f"{len(growing)} rounds that grow: {mean:,.0f} and {mean_of_many:,.0f} bytes each\n")
    assert len(growing) >= 8
    assert mean_of_many == pytest.approx(mean, rel=0.10)
    newcomers, changes, candidates = 256 * 2 * 3 * 40, 2 * FULL * 16 + 4 * FULL * 8, 2 * 1024 * 16
    assert max(size for _, size in many) < 1.5 * (newcomers + changes + candidates) + 50_000
    assert (many_ends - few_ends) / (MANY - FEW) < 20  # bytes a row: a class begins, is proved and its shards end


def test_round__of_a_whole_solve_costs_the_same_bytes_however_many_rows(hosts, tmp_path):  # noqa: F811
    """The set is full from the eighth round to the last at both sizes: all rounds are of one kind.

    Nothing is left out but the shards' reading: the second figure has the beginning, the proof and the end in it.
    """
    solves = both(hosts, tmp_path, solver=SMALL)
    each = [np.mean([size for _, size in rounds]) for rounds, _ in solves]
    all_in = [mean + ends / len(rounds) for mean, (rounds, ends) in zip(each, solves, strict=True)]
    sys.stdout.write("with the beginning and the proof: {:,.0f} and {:,.0f} bytes a round\n".format(*all_in))
    assert all(np.mean([q == SMALL["working_set"] for q, _ in rounds]) > 0.95 for rounds, _ in solves)
    assert each[1] == pytest.approx(each[0], rel=0.10)
    assert all_in[1] == pytest.approx(all_in[0], rel=0.10)
