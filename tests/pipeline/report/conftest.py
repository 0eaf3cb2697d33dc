"""Folders of runs and the pages written from them, made once."""

import json
import shutil

import pytest

from pipeline.report.page import write_report

from . import report_runs


class Runs(dict):
    """Folders by name, each made when it is first asked for."""

    def __init__(self, root):
        self.root = root

    def __missing__(self, name):
        self[name] = getattr(report_runs, f"{name}_run")(self.root / name / "20260102T030405-0123abcd")
        return self[name]


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="session")
def pages(runs):
    return {name: write_report(runs[name]).read_text() for name in report_runs.NAMES}


@pytest.fixture
def edited(runs, tmp_path):
    """Copy a run, let `change(metrics, evaluation)` alter it, return the page."""

    def make(name, change):
        folder = shutil.copytree(runs[name], tmp_path / name)
        metrics, evaluation = (json.loads((folder / f).read_text()) for f in ("metrics.json", "evaluation.json"))
        change(metrics, evaluation)
        (folder / "metrics.json").write_text(json.dumps(metrics))
        (folder / "evaluation.json").write_text(json.dumps(evaluation))
        return write_report(folder).read_text()

    return make
