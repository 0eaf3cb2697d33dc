"""The table of docs/coming_from_sklearn.md: every row is evaluated with both classes."""

import ast
import re
import warnings
from pathlib import Path

import pytest
from sklearn.svm import SVC as Theirs

from svmcore.estimator import SVC

PAGE = Path(__file__).parents[2] / "docs" / "coming_from_sklearn.md"
ROW = re.compile(r"^\| `(?P<expression>.+?)` \| `(?P<theirs>.+?)` \| `(?P<ours>.+?)` \|", re.MULTILINE)
ROWS = [match.groups() for match in ROW.finditer(PAGE.read_text())]


@pytest.fixture(scope="module")
def names():
    """What the page's code defines."""
    names: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(block, names)
    return names


def test_the_table_is_found():
    assert len(ROWS) > 10


@pytest.mark.parametrize(("expression", "theirs", "ours"), ROWS)
def test_row__holds(names, expression, theirs, ours):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert eval(expression, names | {"SVC": Theirs}) == ast.literal_eval(theirs)
        assert eval(expression, names | {"SVC": SVC}) == ast.literal_eval(ours)
