"""The steps of the Dockerfile, one by one, in an environment where nothing is installed; there is no daemon here.

Folders of the image are below one of this test, and what follows USER is run without root's rights.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.full
ROOT = Path(__file__).parents[2]
STEPS = re.findall(r"^([A-Z]+) (.*)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
UID = 1000


class Image:
    """What a builder keeps between steps: a file system, an environment, a folder and a user."""

    def __init__(self, root):
        self.root, self.folder, self.uid = root, root, None
        keys = [key for key in os.environ if key.startswith(("PIP_", "HTTP", "SSL", "UV_"))]
        self.env = {key: os.environ[key] for key in keys}
        self.env |= {"PATH": f"{root / 'env' / 'bin'}:/usr/bin:/bin", "HOME": str(root / "root")}

    def inside(self, text):
        return re.sub(r"(?<![\w.])/(?=home|work|source|tmp)", f"{self.root}/", text)

    def run(self, line):
        rights = {"user": self.uid, "group": self.uid, "extra_groups": []} if self.uid and os.geteuid() == 0 else {}
        shown = {"shell": isinstance(line, str), "capture_output": True, "text": True}
        done = subprocess.run(line, cwd=self.folder, env=self.env, check=False, **shown, **rights)
        assert done.returncode == 0, f"{line}: {done.stderr[-2000:]}"
        return done.stdout

    def step_env(self, line):
        self.env |= dict(self.inside(text).split("=", 1) for text in shlex.split(line))

    def step_workdir(self, line):
        self.folder = Path(self.inside(line))
        self.folder.mkdir(parents=True, exist_ok=True)

    def step_copy(self, line):
        assert line == ". ."
        left = (ROOT / ".dockerignore").read_text().split()
        ignore = shutil.ignore_patterns(*(name.removeprefix("**/") for name in left))
        shutil.copytree(ROOT, self.folder, ignore=ignore, dirs_exist_ok=True)

    def step_user(self, line):
        self.uid, self.env["HOME"] = UID, str(self.root / "home" / line)

    def step_run(self, line):
        if user := re.fullmatch(rf"useradd --create-home --uid {UID} (\w+)", line):
            home = self.root / "home" / user[1]
            for folder in (home, self.root / "tmp"):
                folder.mkdir(parents=True)
                os.chown(folder, *([UID, UID] if os.geteuid() == 0 else [-1, -1]))
        else:
            self.run(line)


@pytest.fixture
def image():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        venv.create(root / "env", with_pip=True)
        built = Image(root)
        for name, line in STEPS:
            if name not in ("FROM", "CMD"):
                getattr(built, f"step_{name.lower()}")(line)
        yield built


def test_steps__are_known_and_leave_root_before_anything_is_run():
    names = [name for name, _ in STEPS]
    assert set(names) == {"FROM", "RUN", "ENV", "WORKDIR", "COPY", "USER", "CMD"}
    after = STEPS[names.index("USER") :]
    assert after[0] == ("USER", "marginflow")
    assert ("RUN", "marginflow warm") in after


def test_steps__give_a_program_that_starts_warm_and_needs_no_root(image):
    said = image.run(json.loads(dict(STEPS)["CMD"]))
    assert said.lstrip().startswith("Usage: marginflow")
    compiled = {file: file.stat().st_mtime_ns for file in (image.root / "home/marginflow/.numba").rglob("*.nbi")}
    assert compiled
    image.folder = Path(image.env["HOME"])  # a folder of the user's, as one that is mounted
    config = {"data": {"source": "sklearn:iris", "test": 0.3}, "cluster": {"kind": "inline"}}
    (image.folder / "iris.yaml").write_text(json.dumps(config))
    record = json.loads(image.run(["marginflow", "run", "iris.yaml", "--no-prefect", "--json"]))
    assert record["accuracy"] > 0.9
    assert {file: file.stat().st_mtime_ns for file in compiled} == compiled  # nothing was compiled again
    assert json.loads(image.run(["marginflow", "plan", "iris.yaml", "--json"]))["n_merged"] > 0
    assert image.run(["dask", "--version"])
