"""Files with some bytes changed, through the functions that the commands call: an error of the input, or none.

MARGINFLOW_MUTATIONS sets how many of each kind (default 1,500: two minutes for all); 40,000 of each are 300,000 in all.
The command line takes a fiftieth of that in each of its 14 ways. SEED picks others.
"""

import bz2
import gzip
import json
import os
import random
import resource
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyarrow import parquet

from flows.cli import main
from pipeline.config.load import load_experiment
from pipeline.config.sections import Data
from pipeline.model.parts import write_model_manifest
from pipeline.model.stored import load_model
from pipeline.report.page import read_run
from pipeline.rows.sources.open import open_source
from svmcore.errors import SVMError

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]
COUNT = int(os.environ.get("MARGINFLOW_MUTATIONS", "1500"))
SEED = os.environ.get("SEED", "1")
ROOM = 2 << 30
TOKENS = [b"\0", b"\xff", b"-1", b"nan", b"1e999", b'"', b"\n", b"\r", b",", b":", b"&a ", b"*a", b"9" * 25, b"{", b"["]
TOKENS += [b"!!int x", b"\xef\xbb\xbf", b"<<: ", b"${X}", b"null", b"true"]

generator = np.random.default_rng(0)
X, Y = generator.normal(size=(30, 4)).round(2), np.arange(30) % 3
CSV = "a,b,c,d,kind\n" + "\n".join(",".join(map(str, row)) + f",{'uvw'[k]}" for row, k in zip(X, Y, strict=True))
LIBSVM = "\n".join(f"{k} " + " ".join(f"{j}:{v}" for j, v in enumerate(row, 1)) for row, k in zip(X, Y, strict=True))


def mutated(data, chance):
    """`data` with 1 to 16 changes: bits, bytes, cuts, and words that mean something to a parser."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 4, 16])):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at:at] = chance.choice(TOKENS)
        elif kind == 2:
            del changed[at : at + chance.choice([1, 3, 50])]
        elif kind == 3:
            changed[at : at + 4] = chance.randbytes(4)
        elif chance.random() < 0.2:
            del changed[at:]
    return bytes(changed)


def survives(read, what):
    """Run `read`: an error of the input in one line or none, within 10 s and 2 GB."""
    started = time.monotonic()
    told = ""
    try:
        read()
    except SVMError as error:
        told = str(error)
    except Exception as error:
        raise AssertionError(f"{what!r}: {type(error).__name__}: {error}") from error
    assert "\n" not in told, what
    assert time.monotonic() - started < 10, what
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < ROOM, what


def rows_of(path):
    return lambda: [block.X.shape[0] for block in open_source(str(path), Data(source=str(path))).blocks()]


def contents(folder):
    np.savez(folder / "x.npz", X=X, y=Y)
    np.savez_compressed(folder / "y.npz", X=X, y=Y.astype(str))
    parquet.write_table(pa.table({f"x{j}": X[:, j] for j in range(4)} | {"y": Y}), folder / "x.parquet")
    config = {"data": {"source": "x.csv"}, "sweep": {"grid": {"C": [1, 10]}}, "class_weight": {"a": 2}}
    return {
        "x.csv": CSV.encode(),
        "x.csv.gz": gzip.compress(CSV.encode()),
        "x.libsvm": LIBSVM.encode(),
        "x.libsvm.bz2": bz2.compress(LIBSVM.encode()),
        "x.npz": (folder / "x.npz").read_bytes(),
        "y.npz": (folder / "y.npz").read_bytes(),
        "x.parquet": (folder / "x.parquet").read_bytes(),
        "x.yaml": json.dumps(config, indent=1).encode(),
    }


@pytest.mark.parametrize(
    "name", ["x.csv", "x.csv.gz", "x.libsvm", "x.libsvm.bz2", "x.npz", "y.npz", "x.parquet", "x.yaml"]
)
def test_files(name, tmp_path):
    whole, path, chance = contents(tmp_path)[name], tmp_path / name, random.Random(f"{SEED}-{name}")
    for _ in range(COUNT):
        data = mutated(whole, chance)
        path.write_bytes(data)
        survives((lambda: load_experiment(path)) if name.endswith("yaml") else rows_of(path), data)


def changed_files(folder, chance):
    """Change one file of a folder at a time, and change it back."""
    originals = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    for _ in range(COUNT):
        path = chance.choice(list(originals))
        data = mutated(originals[path], chance)
        path.write_bytes(data)
        yield path, data
        path.write_bytes(originals[path])


def test_zarr(tmp_path):
    group = zarr.create_group(str(tmp_path / "x.zarr"))
    group.create_array("X", data=X)
    group.create_array("y", data=Y)
    for path, data in changed_files(tmp_path / "x.zarr", random.Random(f"{SEED}-zarr")):
        survives(rows_of(tmp_path / "x.zarr"), (path.name, data))


@pytest.mark.parametrize("hashed", [False, True], ids=["as it is", "hashed again"])
def test_models(rows_run, tmp_path, hashed):
    """Whoever changes a model can hash it again."""
    folder = Path(shutil.copytree(rows_run["model"], tmp_path / "model.zarr"))
    rows = [[0.0, 1.0]]
    for path, data in changed_files(folder, random.Random(f"{SEED}-model")):
        if hashed and path.name not in ("manifest.json", "owner"):
            write_model_manifest(folder)
        survives(lambda: load_model(folder).predict(rows), (path.relative_to(folder), data))
        write_model_manifest(folder)


def test_run_folders(rows_run, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.yaml", "metrics.json", "evaluation.json"):
        shutil.copy(Path(rows_run["run"], name), folder / name)
    for path, data in changed_files(folder, random.Random(f"{SEED}-run")):
        survives(lambda: read_run(folder), (path.name, data))


# ---- through the command line
@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of the rows of this file, all of it in one folder."""
    folder = tmp_path_factory.mktemp("trained")
    contents(folder)
    (folder / "x.csv").write_bytes(CSV.encode())
    config = {"name": "x", "data": {"source": str(folder / "x.csv"), "test": 0.2}, "cluster": {"kind": "inline"}}
    (folder / "x.yaml").write_text(json.dumps(config, indent=1))
    assert main(["run", str(folder / "x.yaml"), "--no-prefect", "--store", str(folder / "runs")]) == 0
    return folder


def files_of(folder, *patterns):
    return [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]


NUMBERS = ("x.libsvm", "x.npz", "x.parquet")
WAYS = {
    "run": ["run", "x.yaml", "--no-prefect", "--store", "new"],
    "plan": ["plan", "x.yaml", "--store", "new"],
    "config": ["config", "x.yaml"],
    "predict": ["predict", "RUN", "x.csv"],
    "verify": ["verify", "RUN"],
    "report": ["report", "RUN"],
    "export": ["export", "RUN", "out.onnx"],
    "predict with": ["predict", "RUN", "x.csv"],
    "compare": ["compare", "RUN", "RUN"],
    "compare page": ["compare", "RUN", "RUN", "--output", "both.html"],
    "runs": ["runs", "--store", "runs"],
} | {
    f"run {name}": ["run", "x.yaml", "--no-prefect", "--store", "new", "--set", f"data.source={name}"]
    for name in NUMBERS
}
CHANGED = {"run": ["x.yaml", "x.csv"], "plan": ["x.yaml", "x.csv"], "config": ["x.yaml"], "predict": ["x.csv"]}
CHANGED |= {f"run {name}": [name] for name in NUMBERS}
RUN = ["runs/x/*/*", "runs/x/*/model.zarr/**/*"]


@pytest.mark.parametrize("way", WAYS)
def test_command_line(way, trained, tmp_path, monkeypatch, capfd):
    """Exit 0, 1, 2 or 3; a fault of ours would be a traceback, which MARGINFLOW_DEBUG asks for."""
    monkeypatch.setenv("MARGINFLOW_DEBUG", "1")
    folder, chance = Path(shutil.copytree(trained, tmp_path / "trained")), random.Random(f"{SEED}-{way}")
    monkeypatch.chdir(folder)
    (folder / "x.libsvm").write_text(LIBSVM)
    (run,) = (folder / "runs" / "x").iterdir()
    files = files_of(folder, *CHANGED.get(way, RUN))
    argv = [str(run) if word == "RUN" else word for word in WAYS[way]]
    for _ in range(max(1, COUNT // 50)):
        path = chance.choice(files)
        whole = path.read_bytes()
        data = mutated(whole, chance)
        path.write_bytes(data)
        started = time.process_time()
        code = main(argv)
        err = capfd.readouterr().err
        assert code in (0, 1, 2, 3), (path.name, data)
        assert "Traceback" not in err, (path.name, data, err)
        assert time.process_time() - started < 10, (path.name, data)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < ROOM, (path.name, data)
        path.write_bytes(whole)
