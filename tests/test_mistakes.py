"""The page of common mistakes: each command on it is run, and must say what the page says."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from flows.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "mistakes.md").read_text()
ROWS = re.findall(r"^\| `(marginflow [^`]*|marginflow)` \| ``(.*)`` \|$", PAGE, flags=re.MULTILINE)
HOME = "/home/ada"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the page makes, and the model."""
    found = tmp_path_factory.mktemp("mistakes")
    with contextlib.chdir(found):
        exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], {})
        assert main(["run", "customers.yaml", "--no-prefect"]) == 0
        yield found


def test_page__has_forty_and_says_how_many():
    assert len(ROWS) >= 40
    assert len(ROWS) == PAGE.count("\n| `") == int(re.search(r"Here are (\d+)", PAGE)[1])
    assert len({command for command, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("command", "message"), ROWS, ids=[command[11:] for command, _ in ROWS])
def test_mistake__is_answered_in_one_line(folder, command, message):
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        assert main(shlex.split(command)[1:]) == 2
    assert told.getvalue().replace(str(folder), HOME) == f"marginflow: {message}\n"
