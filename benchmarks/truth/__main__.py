"""Command line: run the problems for some minutes, sum the run up for the report; exit 1 for any false certificate."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import results
from benchmarks.truth import run
from benchmarks.truth.judging.verdicts import FALSE_CONVERGED, FALSE_GAP
from benchmarks.truth.problems.design import selected
from benchmarks.truth.told import page
from benchmarks.truth.told.summary import summary

LINES = results.DEFAULT / "truth.tmp"  # megabytes of lines, of this machine; the summary alone is kept in results/


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="0 sums up the last run and runs nothing")
    parser.add_argument("--only", type=_names, default=(), help="tables, scalings, kernels, losses, C, weighted, equal")
    parser.add_argument("--jobs", type=int, default=1, help="problems at once, each on one thread")
    parser.add_argument("--resume", action="store_true", help="go on with the last run")
    parser.add_argument("--reuse-peer", action="store_true", help="take LIBSVM's answers from earlier runs")
    parser.add_argument("--libsvm-only", action="store_true", help="prepare those answers, without our fits")
    parser.add_argument("--baseline", action="store_true", help="keep the summary as what later runs are compared with")
    parser.add_argument("--lines", type=Path, default=LINES, help="folder of the JSON lines")
    parser.add_argument("--results", type=Path, default=results.DEFAULT, help="folder of the summaries")
    return parser


def _names(text: str) -> tuple[str, ...]:
    """Comma- or space-separated names."""
    return tuple(text.replace(",", " ").split())


def _run_name(arguments: argparse.Namespace) -> str:
    last = run.last_run(arguments.lines) if arguments.resume or arguments.minutes == 0 else None
    return last or time.strftime("%Y-%m-%dT%H:%M:%S")


def main(argv: Sequence[str] | None = None) -> int:
    """Run, show and keep the summary; a run of chosen problems is shown only."""
    arguments = _parser().parse_args(argv)
    name = _run_name(arguments)
    reuse, libsvm = arguments.reuse_peer, arguments.libsvm_only
    request = run.Request(arguments.lines, name, arguments.minutes, arguments.jobs, reuse, libsvm)
    run.run(selected(arguments.only), request)
    if libsvm:
        return 0
    found = summary(run.lines(arguments.lines, name)) | {"jobs": arguments.jobs}
    print(page.text(found))
    if not arguments.only:
        case = "baseline" if arguments.baseline else "truth"
        results.Results(arguments.results, "truth", name).append(case, [found])
    return int(bool(found["verdicts"][FALSE_GAP] or found["verdicts"][FALSE_CONVERGED]))


if __name__ == "__main__":
    sys.exit(main())
