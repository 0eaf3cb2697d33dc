"""scikit-learn's own tests of its kernel machines, run with ours in their place; see run_sklearn_tests.py."""

import runpy
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "run_sklearn_tests.py"


def test_scikit_learns_own_tests__pass():
    done = subprocess.run([sys.executable, SCRIPT, "-q", "--tb=short"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout.splitlines()[-1]
    assert int(done.stdout.splitlines()[-1].split(" passed")[0].split()[-1]) > 200


def test_few_tests_about_ours__are_left_out():
    assert len(runpy.run_path(str(SCRIPT))["ABOUT_OURS"]) <= 6
