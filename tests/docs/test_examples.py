"""The Python of every page runs."""

import json
import os
import subprocess
import sys

import pytest

from .blocks import ROOT, code_blocks, run

PAGES = [
    os.path.relpath(path, ROOT / "docs")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "```python" in path.read_text() and not path.name.startswith(("adding_", "tutorial"))
]
# Runs each page in a fork of itself, with what most pages import imported: that takes a process three seconds.
FORKS = """
import json, os, sys
import sklearn.datasets, sklearn.model_selection, svmcore.estimator

for line in sys.stdin:
    code, folder, output = json.loads(line)
    if not (child := os.fork()):
        os.chdir(folder)
        told = os.open(output, os.O_WRONLY | os.O_CREAT)
        os.dup2(told, 1)
        os.dup2(told, 2)
        exec(compile(code, "page", "exec"), {"__name__": "__main__"})
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def forks():
    """A process that runs Python, given as a line of JSON, and answers with its exit code.

    None but on Linux: elsewhere there are no forks, or libraries do not stand them.
    """
    if sys.platform != "linux":
        yield None
        return
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["", str(ROOT)])}
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


@pytest.mark.parametrize("page", PAGES)
def test_page__its_python_runs(page, forks, tmp_path):
    """As it stands, in an empty folder: the blocks of a page follow each other."""
    code, output = "\n".join(code_blocks(page)), tmp_path.with_suffix(".output")
    if forks is None:
        ran = run(["-c", code], tmp_path, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        return
    print(json.dumps([code, str(tmp_path), str(output)]), file=forks.stdin, flush=True)
    assert forks.stdout.readline() == "0\n", output.read_text()
