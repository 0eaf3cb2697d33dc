"""The tutorial works as it is printed."""

import os
import subprocess
import sys

from .blocks import BLOCK, ROOT


def test_tutorial__its_commands_work_in_their_order(tmp_path):
    """From an empty folder; `text` and `console` need a Prefect server: see tests/full/test_nightly.py."""
    page = (ROOT / "docs" / "tutorial.md").read_text()
    blocks = [(language, text) for language, text in BLOCK.findall(page) if language in ("python", "bash")]
    assert len(blocks) >= 10
    env = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path / "home")}
    (tmp_path / "home").mkdir()
    (tmp_path / "marginflow").write_text(f'#!/bin/sh\nexec {sys.executable} -m flows.cli "$@"\n')
    (tmp_path / "marginflow").chmod(0o755)
    env["PATH"] = os.pathsep.join([str(tmp_path), env["PATH"]])
    for language, block in blocks:
        command = [sys.executable, "-c", block] if language == "python" else ["sh", "-ec", block]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, block + done.stderr
