"""The Python of every page runs."""

import os

import pytest

from ..forks import forks_with
from .blocks import ROOT, code_blocks

PAGES = [
    os.path.relpath(path, ROOT / "docs")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "```python" in path.read_text() and not path.name.startswith(("adding_", "tutorial"))
]


@pytest.fixture(scope="module")
def forks():
    """Forks with what most pages import."""
    with forks_with("import sklearn.datasets, sklearn.model_selection, svmcore.estimator") as forks:
        yield forks


@pytest.mark.parametrize("page", PAGES)
def test_page__its_python_runs(page, forks, tmp_path):
    """As it stands, in an empty folder: the blocks of a page follow each other."""
    [(code, output)] = forks.run(tmp_path, "\n".join(code_blocks(page)))
    assert code == 0, output
