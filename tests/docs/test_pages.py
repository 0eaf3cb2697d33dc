"""What pages show of commands, configs and links is so, and those that are generated are up to date."""

import ast
import itertools
import re
import runpy
import shlex
import textwrap

import pytest
import typer
from PIL import Image

from flows.cli import app
from pipeline.config import yaml12
from pipeline.config.load import load_experiment
from svmcore import InputError, Solver

from .blocks import ROOT, run


def printed(kinds):
    """(page, block) of the blocks of some languages on all pages."""
    fence = re.compile(rf"^```(?:{kinds})\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [(page.name, block) for page in pages if page.name != "cli.md" for block in fence.findall(page.read_text())]


def test_pages__their_commands_have_the_arguments_and_options_that_they_show():
    """Every line that begins with `marginflow`, up to what a shell would do next."""
    program = typer.main.get_command(app)
    lines = [
        (page, line) for page, block in printed("bash|console") for line in block.replace("\\\n", " ").splitlines()
    ]
    lines = [(page, line.removeprefix("$ ")) for page, line in lines]
    lines = [(page, line.partition("||")[0]) for page, line in lines if line.startswith("marginflow ")]
    assert len(lines) >= 40
    for page, line in lines:
        words = shlex.split(line.partition(" <")[0], comments=True)[1:]
        assert words[0] in program.commands, f"{page}: {line}"
        try:
            program.commands[words[0]].make_context(words[0], words[1:], resilient_parsing=False)
        except Exception as error:
            pytest.fail(f"{page}: {line}: {error}")


def test_pages__their_configs_are_configs():
    """What a page shows of a config is valid in a whole one."""
    blocks = [(page, block) for page, block in printed("yaml") if "{{" not in block and "language-server" not in block]
    assert len(blocks) > 10
    for page, block in blocks:
        shown = yaml12.parse(block)
        needs = {"data": {"source": "sklearn:iris", "test": 0.2}} | (
            {"store": "s3://lab/runs"} if "s3:" in block else {}
        )
        try:
            load_experiment(needs | shown)
        except InputError as error:
            pytest.fail(f"{page}: {error}\n{block}")


def test_commands__page_is_what_the_program_says_of_itself(tmp_path):
    told = run(["-m", "typer", "flows.cli", "utils", "docs", "--name", "marginflow"], tmp_path, cwd=tmp_path)
    assert (ROOT / "docs" / "reference" / "cli.md").read_text().strip() == told.stdout.strip(), (
        "write it again: python -m typer flows.cli utils docs --name marginflow > docs/reference/cli.md"
    )


def test_site__has_every_page():
    nav = (ROOT / "mkdocs.yml").read_text()
    missing = [
        page for page in sorted((ROOT / "docs").rglob("*.md")) if str(page.relative_to(ROOT / "docs")) not in nav
    ]
    assert missing == []


def test_keys__page_is_what_the_schema_says():
    module = runpy.run_path(str(ROOT / "docs" / "generate_keys.py"), run_name="generate_keys")
    assert module["PAGE"].read_text() == module["page"](), "write it again: python docs/generate_keys.py"


def test_words__are_spelt_as_they_should_be(tmp_path):
    places = re.search(r"^WORDS +:= (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[1].split()
    found = run(["-m", "codespell_lib", "--toml", "pyproject.toml", *places], tmp_path)
    assert found.returncode == 0, found.stdout


def undocumented(tree, above):
    """Public classes, functions and methods below a node that have no docstring."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield from [] if ast.get_docstring(node) else [f"{above}.{node.name}"]
            yield from undocumented(node, f"{above}.{node.name}") if isinstance(node, ast.ClassDef) else []


def test_docstrings__every_public_name_has_one():
    files = [file for package in ("svmcore", "pipeline", "flows") for file in (ROOT / package).rglob("*.py")]
    assert len(files) > 200
    trees = {file: ast.parse(file.read_text()) for file in files}
    assert [str(file) for file, tree in trees.items() if not ast.get_docstring(tree)] == []
    assert [name for file, tree in trees.items() for name in undocumented(tree, file.stem)] == []


def test_gallery__has_every_page_at_both_widths_in_both_schemes_and_is_small():
    shown = re.findall(r"\]\((images/[^)]+)\)", (ROOT / "docs" / "gallery.md").read_text())
    names = itertools.product(("report", "batch", "comparison", "index"), ("wide", "narrow"), ("light", "dark"))
    assert sorted(shown) == sorted(f"images/{'-'.join(name)}.webp" for name in names)
    for picture in shown:
        with Image.open(ROOT / "docs" / picture) as image:
            assert image.width == (1200 if "-wide-" in picture else 400)
    assert sum((ROOT / "docs" / picture).stat().st_size for picture in shown) < 1.5e6


def test_readme__its_configs_load():
    blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        load_experiment(yaml12.parse(block))


def test_choosing_a_solver__page_is_what_the_solvers_give():
    module = runpy.run_path(str(ROOT / "docs" / "generate_choosing.py"), run_name="generate_choosing")
    clean = module["without_seconds"]
    assert clean(module["PAGE"].read_text()) == clean(module["page"](module["run_all"]()))


def test_choosing_a_solver__knows_every_solver():
    module = runpy.run_path(str(ROOT / "docs" / "generate_choosing.py"), run_name="generate_choosing")
    shipped = {name for name in Solver.names() if Solver.named(name).__module__.startswith("svmcore.solvers.")}
    assert set(module["PURPOSE"]) == shipped


def test_pages__link_to_files_that_exist():
    for page in (ROOT / "docs").rglob("*.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), textwrap.shorten(f"{page.name} links to {link}", 200)
