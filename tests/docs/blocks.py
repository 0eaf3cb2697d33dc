"""What pages show: their blocks of code, and how they are run."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(python|bash|console|text)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def code_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE | re.DOTALL)


def run(arguments, folder, cwd=ROOT):
    path = os.pathsep.join([str(folder), str(ROOT)])
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
