"""The server of forks, and what stands in for it where there are no forks: codes run at the same time in both."""

import contextlib

import pytest

from .forks import Forks, forks_with

MEETS = """
import sys, time
from pathlib import Path

Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.001)
print(sys.argv[1])
"""


@pytest.mark.parametrize(
    "server",
    [lambda: forks_with("import json"), lambda: contextlib.nullcontext(Forks(None))],
    ids=["forks", "processes"],
)
def test_run__codes_wait_for_each_other_and_tell_how_they_end(server, tmp_path):
    with server() as forks:
        assert forks.run(tmp_path, MEETS, MEETS, argvs=[["a", "b"], ["b", "a"]]) == [(0, "a\n"), (0, "b\n")]
        [(code, output)] = forks.run(tmp_path, "raise SystemExit(3)")
        assert (code, output) == (3, "")
        [(code, output)] = forks.run(tmp_path, "1 / 0")
        assert code == 1
        assert "ZeroDivisionError" in output
