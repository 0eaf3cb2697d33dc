"""Rooms stay small, and what belongs to one of them stays there."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "pipeline"
FILES = sorted(ROOT.rglob("*.py"))


def test_rooms__have_at_most_12_files_of_350_lines():
    folders = {file.parent for file in FILES}
    assert {folder.name: n for folder in folders if (n := len(list(folder.glob("*.py")))) > 12} == {}
    assert {file.name: n for file in FILES if (n := len(file.read_text().splitlines())) > 350} == {}


def test_storage__alone_mirrors_and_writes_manifests():
    outside = {file: file.read_text() for file in FILES if file.parent.name != "storage"}
    for words in ("mirror.push", "mirror.sync", ".rename(", "os.replace", 'hexdigest() == record.get("sha256")'):
        assert [file.name for file, text in outside.items() if words in text] == []


ONCE = {
    "solver.solve(qp, beta": "svmcore/train/chains/loop.py",  # the solve loop
    "def choose_plan(": "svmcore/train/posing/plan.py",
    "Model(kernel, vectors(": "svmcore/model/trained.py",  # answers to a model
    '"peak_memory_bytes": peak_memory_bytes()': "pipeline/running/publish.py",  # the record of a run
    "old.replace(new)": "pipeline/storage/files.py",  # the one rename that publishes
    "os.fsync(": "pipeline/storage/files.py",
    '"self":': "pipeline/storage/manifest.py",  # the form of a manifest
}


@pytest.mark.parametrize("words", ONCE)
def test_what_there_was_twice__is_in_one_place(words):
    packages = [file for name in ("svmcore", "pipeline", "flows") for file in (ROOT.parent / name).rglob("*.py")]
    found = [str(file.relative_to(ROOT.parent)) for file in packages if words in file.read_text()]
    assert found == [ONCE[words]]
