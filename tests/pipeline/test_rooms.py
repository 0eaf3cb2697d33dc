"""Rooms stay small, and what belongs to one of them stays there."""

from pathlib import Path

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
