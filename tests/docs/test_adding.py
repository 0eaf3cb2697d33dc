"""The pages on plugins: the file that they show is all that a new kernel, solver or machine needs."""

import re

import pytest

from .blocks import ROOT, code_blocks, run

PLUGIN = """
import svmcore.{package}
from svmcore.runtime.plugins import import_siblings

svmcore.{package}.__path__.append({folder!r})
import_siblings("svmcore.{package}", [{folder!r}])
"""


@pytest.mark.parametrize(
    ("page", "package", "suite", "name"),
    [
        ("adding_a_kernel.md", "kernels", "test_kernel_contract.py", "laplacian"),
        ("adding_a_solver.md", "solvers", "test_solver_contract.py", "greedy-ascent and not digits"),
        ("adding_a_machine.md", "tasks", None, None),
    ],
)
def test_adding__one_file_is_enough_and_passes_the_contract_suite(page, package, suite, name, tmp_path):
    file, *usage = code_blocks(page)
    target = re.match(rf"# svmcore/{package}/(\w+\.py)\n", file)
    assert target, "the first block names the file that it is"
    (tmp_path / package).mkdir()
    (tmp_path / package / target[1]).write_text(file)
    (tmp_path / "dropped_in.py").write_text(PLUGIN.format(package=package, folder=str(tmp_path / package)))
    used = run(["-c", "import dropped_in\n" + "\n".join(usage)], tmp_path)
    assert used.returncode == 0, used.stderr
    if suite is None:  # machines are compared with other people's on the page itself
        return
    suite_path = str(ROOT / "tests" / "svmcore" / suite)
    tested = run(["-m", "pytest", "-q", "-p", "dropped_in", "-p", "no:cacheprovider", suite_path, "-k", name], tmp_path)
    assert tested.returncode == 0, tested.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", tested.stdout)[1]) >= 8


@pytest.mark.parametrize("page", ["adding_a_kernel.md", "adding_a_solver.md", "adding_a_machine.md"])
def test_adding__the_file_is_clean(page, tmp_path):
    file = tmp_path / "added.py"
    file.write_text(code_blocks(page)[0])
    checked = run(["-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), str(file)], tmp_path)
    assert checked.returncode == 0, checked.stdout
