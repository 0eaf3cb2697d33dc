"""Command line: `run` the suites, `batch` or a comparison of BESIDE, write the `report`, `list` the cases."""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import results

DOCS = Path(__file__).parent.parent / "docs"
BESIDE = {
    "search": "GridSearchCV",
    "classes": "few rows of many classes",
    "predict": "labels of many rows",
    "probabilities": "what probabilities cost",
    "machines": "SVR, NuSVC, one class",
    "low_rank": "machines of low rank",
    "scale": "shards on two workers against one process",
    "plans": "what each plan foretells and takes",
    "end_to_end": "a whole run against fit and predict",
    "avx2": "single fits held to AVX2",
    "cores": "phases of single fits on 1 and 2 threads, on 16 and 64 emulated",
}  # modules of suites with `run` and `show`
RUNS = dict.fromkeys(("end_to_end", "plans", "scale"), "runs")
ROOMS = dict.fromkeys(BESIDE, "estimators") | {"avx2": "fits", "cores": "fits"} | RUNS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("run", "single fits, classes, memory, scaling"),
        ("batch", "cross-validated batch"),
        *BESIDE.items(),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--data", type=Path, required=True, help="folder of the data files")
        command.add_argument("--only", type=_names, default=(), help="solvers, by name, comma separated")
        command.add_argument("--rows", type=int, help="cut each table to this many rows, for a quick trial")
        command.add_argument("--repeats", type=int, default=3, help="measurements a median is taken of")
        command.add_argument("--results", type=Path, help="folder of the JSON lines")
        if name == "run":
            command.add_argument("--cases", type=_names, default=(), help="suites or cases, comma separated; all")
            command.add_argument("--tol", type=float, default=1e-3, help="m - M that every solver stops at")
            command.add_argument("--resume", action="store_true", help="go on with the last run's unfinished cases")
    linear = commands.add_parser("linear", help="linear machines of many rows against LIBLINEAR")
    linear.add_argument("--only", type=_names, default=(), help="cases, comma separated; all")
    linear.add_argument("--rows", type=int, help="so many rows in place of the case's, for a quick trial")
    linear.add_argument("--results", type=Path, help="folder of the JSON lines")
    report = commands.add_parser("report", help="write docs/performance.md and its figures")
    report.add_argument("--results", type=Path, default=results.DEFAULT)
    report.add_argument("--docs", type=Path, default=DOCS)
    commands.add_parser("list", help="suites and cases")
    return parser


def _names(text: str) -> tuple[str, ...]:
    """Comma- or space-separated names."""
    return tuple(text.replace(",", " ").split())


def _run(arguments: argparse.Namespace) -> None:
    from benchmarks.contest import machine
    from benchmarks.contest.measure import Terms
    from benchmarks.page import tables
    from benchmarks.suites.fits import contests as suites

    suites.selected(arguments.cases)
    resumed = results.last_run(arguments.results) if arguments.resume else None
    name = resumed or time.strftime("%Y-%m-%dT%H:%M:%S")
    described = machine.describe(machine.measure_rates())
    results.Results(arguments.results, "machine", name).append("machine", [described])
    request = suites.Request(arguments.data, Terms(arguments.tol, arguments.repeats), arguments.only, arguments.rows)
    suites.run(arguments.cases, request, machine.measure_rates, arguments.results, name, tables.show)


def _batch(arguments: argparse.Namespace) -> None:
    from benchmarks.suites.runs import batch

    name = time.strftime("%Y-%m-%dT%H:%M:%S")
    request = batch.Request(arguments.data, arguments.only, arguments.rows or batch.ROWS, arguments.repeats)
    records = batch.run(request)
    results.Results(arguments.results, "batch", name).append("mnist-10000-batch", records)
    batch.show(records)


def _beside(arguments: argparse.Namespace) -> None:
    suite = importlib.import_module(f"benchmarks.suites.{ROOMS[arguments.command]}.{arguments.command}")
    name = time.strftime("%Y-%m-%dT%H:%M:%S")
    found = suite.run(arguments.data, arguments.only, arguments.rows, arguments.repeats)
    for case, records in found.items():
        results.Results(arguments.results, arguments.command, name).append(case, records)
        suite.show(case, records)


def _linear(arguments: argparse.Namespace) -> None:
    from benchmarks.suites.estimators import linear

    name = time.strftime("%Y-%m-%dT%H:%M:%S")
    for case, records in linear.run(arguments.only, arguments.rows).items():
        results.Results(arguments.results, "linear", name).append(case, records)


def _report(arguments: argparse.Namespace) -> None:
    from benchmarks.page import report

    print(report.write(arguments.results, arguments.docs))


def _list(_: argparse.Namespace) -> None:
    from benchmarks.suites.fits import contests as suites

    for suite, case, _work in suites.selected(()):
        print(f"{suite:15} {case}")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command asked for."""
    arguments = _parser().parse_args(argv)
    if getattr(arguments, "results", "") is None:
        arguments.results = results.TRIALS if arguments.rows else results.DEFAULT
    beside = dict.fromkeys(BESIDE, _beside)
    named = {"run": _run, "batch": _batch, "linear": _linear, "report": _report, "list": _list, **beside}
    named[arguments.command](arguments)


if __name__ == "__main__":
    main()
