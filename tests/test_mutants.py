"""`make mutants` can plant its faults: it takes hours, so nobody would see for long that the source has moved on."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.mutants.__main__ import pytest_options

ROOT = Path(__file__).parents[1]


def listed(name):
    return tomllib.loads((ROOT / "tests" / "mutants" / name).read_text())


@pytest.mark.parametrize(
    "fault", listed("planted.toml")["planted"], ids=lambda fault: f"{fault['module']}: {fault['what']}"
)
def test_planted__fault_has_its_one_place_and_a_module_whose_tests_should_notice(fault):
    assert (ROOT / fault["path"]).read_text().count(fault["was"]) == 1
    assert fault["module"] in listed("modules.toml")


@pytest.mark.parametrize(
    "entry", listed("explained.toml")["explained"], ids=lambda entry: f"{entry['path']}: {entry['why']}"
)
def test_explained__faults_are_of_lines_that_are_there(entry):
    text = " ".join((ROOT / entry["path"]).read_text().split())  # a line of a fault is as it is printed
    assert [was for _, was, _ in entry["faults"] if " ".join(was.split()) not in text] == []


@pytest.mark.parametrize("name", listed("modules.toml"))
def test_modules__and_their_tests_are_there(name):
    module = listed("modules.toml")[name]
    for test in (module["path"], *(given for given in module["tests"] if ".py" in given)):  # others are options
        path, _, function = test.partition("::")
        assert function.partition("[")[0] in (ROOT / path).read_text()


IN_PYTHON = {name: module for name, module in listed("modules.toml").items() if not module.get("jit", True)}


@pytest.mark.parametrize("name", IN_PYTHON)
def test_modules__that_python_runs_pass_their_tests_without_a_fault(name):
    """Else every fault would seem to be noticed."""
    command = [sys.executable, "-m", "pytest", *pytest_options(IN_PYTHON[name])]
    python = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    told = subprocess.run(command, cwd=ROOT, env=python, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout[-2000:]
