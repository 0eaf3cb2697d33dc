"""Tables for a person at a terminal, and plain text for everybody else."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from flows.commands.drawn import plan_table, runs_table

RUN = {
    "key": "digits/20261122T020000Z-0000abcd",
    "run": "/srv/runs/digits/20261122T020000Z-0000abcd",
    "date": "2026-11-22T02:00:00+00:00",
    "status": "converged",
    "score": 0.98765,
    "relative_gap": 1e-4,
    "seconds": {"total": 12.34},
}
RUNS = [
    RUN | {"params": {"kernel": "rbf", "C": 10}, "gate": {"passed": True}},
    RUN | {"params": {"kernel": "rbf", "C": "[red]"}, "gate": {"passed": False}},
]


def drawn(table, width=120):
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return [line.split() for line in console.file.getvalue().splitlines() if line.strip()]


def test_runs__have_a_row_each_and_the_caption_has_what_they_share():
    lines = drawn(runs_table({"runs": RUNS}))
    assert ["2026-11-22", "02:00", "0.9877", "converged", "passed", "1.0e-04", "12.3", RUN["key"]] in lines
    assert ["C", "10"] in lines
    assert ["C", "[red]"] in lines  # a text, no markup
    assert lines[-1] == ["in", "all:", "kernel", "rbf"]


def test_runs__keep_every_digit_on_a_narrow_terminal():
    text = "".join("".join(line) for line in drawn(runs_table({"runs": RUNS}), width=80))
    assert "0.9877" in text
    assert "FAILED" in text


def test_plan__has_its_seconds_in_rows():
    lines = drawn(plan_table({"n_train": 1437, "kernel_bytes": 2**20, "seconds": {"solve": 0.15, "total": 2.0}}))
    assert ["n", "train", "1,437"] in lines
    assert ["kernel", "bytes", "1", "MiB"] in lines
    assert ["seconds:", "total", "2", "s"] in lines


@pytest.mark.parametrize("terminal", [True, False])
def test_runs__are_plain_where_nobody_looks(rows_run, terminal):
    """A real terminal, and a pipe."""
    ours, theirs = pty.openpty()
    env = os.environ | {"COLUMNS": "200", "TERM": "xterm"}
    argv = [sys.executable, "-m", "flows.cli", "runs", "--store", str(Path(rows_run["run"]).parents[1])]
    done = subprocess.run(argv, env=env, stdout=theirs if terminal else subprocess.PIPE, check=True)
    os.close(theirs)
    out = os.read(ours, 100_000).decode() if terminal else done.stdout.decode()
    os.close(ours)
    assert ("\x1b[" in out) == terminal
    assert ("─" in out) == terminal
    assert f"{rows_run['accuracy']:.4f}" in out
    assert (rows_run["run"] in out.split()) == (not terminal)
