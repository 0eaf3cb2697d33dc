"""The Python of every page runs."""

import os

import pytest

from .blocks import ROOT, code_blocks, run

PAGES = [
    os.path.relpath(path, ROOT / "docs")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "```python" in path.read_text() and not path.name.startswith(("adding_", "tutorial"))
]


@pytest.mark.parametrize("page", PAGES)
def test_page__its_python_runs(page, tmp_path):
    """As it stands, in an empty folder: the blocks of a page follow each other."""
    ran = run(["-c", "\n".join(code_blocks(page))], tmp_path, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
