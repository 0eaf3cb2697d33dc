"""A store on a disk of a few megabytes: a full one ends the run with one line, and space lets it go on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import run
from pipeline.storage.files import StoreFull, told_when_full


@pytest.fixture
def disk(tmp_path):
    """Mount a file system of the given size; `remount` gives it another."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mounted(size, *how):
        options = ",".join([*how, f"size={size}"])
        argv = ["mount", "-t", "tmpfs", "-o", options, *(["none"] if not how else []), str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        return folder

    if os.geteuid() != 0:
        pytest.skip("to mount a small file system needs root")
    yield mounted
    # Lazy, for this process still maps the K that its run opened.
    subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


CONFIG = {"name": "digits", "data": {"source": "sklearn:digits", "test": 0.2, "scale": 16}, "C": 10}
CONFIG |= {"cluster": {"kind": "inline"}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Manifest of the model of a run that nothing stopped."""
    return manifest(run(CONFIG, store=tmp_path_factory.mktemp("whole")))


def manifest(found):
    return (Path(found["model"]) / "manifest.json").read_bytes()


@pytest.mark.parametrize(
    ("kilobytes", "at_most"), [(100, 0), (8450, 9), (8700, 10)], ids=["ingest", "solve", "publish"]
)
def test_full_disk__ends_the_run_with_one_line_and_goes_on_when_there_is_space(
    disk, whole, tmp_path, kilobytes, at_most
):
    """K of digits has 8,070 kB, so each size is used up by another stage."""
    folder = disk(f"{kilobytes}k")
    (tmp_path / "digits.yaml").write_text(json.dumps(CONFIG))
    argv = [sys.executable, "-m", "flows.cli", "run", str(tmp_path / "digits.yaml"), "--no-prefect"]
    done = subprocess.run([*argv, "--store", str(folder / "runs")], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    line = done.stderr.splitlines()[-1]
    assert str(folder) in line
    assert "free some and run the same command again" in line
    assert "Traceback" not in done.stderr
    assert not [p for p in (folder / "runs").glob("*") if not p.name.startswith(".")]
    disk("100m", "remount")
    found = run(CONFIG, store=folder / "runs")
    assert found["problems"]["reused"] <= at_most
    assert manifest(found) == whole


def test_told_when_full__leaves_other_errors_alone(tmp_path):
    with pytest.raises(FileNotFoundError), told_when_full(tmp_path):
        (tmp_path / "absent").read_bytes()
    with pytest.raises(StoreFull, match="115008 requested"), told_when_full(tmp_path):
        raise OSError("115008 requested and 12800 written")
