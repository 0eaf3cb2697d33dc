"""Write docs/choosing_a_solver.md and its plots: `python docs/generate_choosing.py [--check]`.

Every solver runs on one problem, scikit-learn's digits 3 against 8 under a linear kernel, with each loss and bias that
the page shows and the solver admits. `--check` runs them again and compares all that does not depend on the machine.
"""

import argparse
import dataclasses
import re
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from svmcore import Bias, ComputedColumns, Hinge, Linear, Monitor, Points, Progress, SignedQP, Solution, Solver
from svmcore import classification as program_of
from svmcore.errors import Unsupported
from svmcore.solution import Status
from svmcore.solvers.base import ConvergenceWarning
from svmcore.tasks.losses import Loss, SquaredHinge

ROOT = Path(__file__).resolve().parent.parent
PAGE, IMAGES = ROOT / "docs" / "choosing_a_solver.md", ROOT / "docs" / "images"

PROGRAMS: tuple[tuple[str, Loss, Bias], ...] = (
    ("hinge, free bias", Hinge(), Bias.FREE),
    ("hinge, penalised bias", Hinge(), Bias.PENALISED),
    ("squared hinge, penalised bias", SquaredHinge(), Bias.PENALISED),
)

PURPOSE = {
    "auto": "everything: `interior-point` and `dual-ascent` for a linear kernel, else `smo`",
    "smo": "every kernel but a linear one of few features: the fast one, for any size and source of columns",
    "interior-point": "linear kernels of up to a few hundred features, also at a large C or with unscaled features",
    "smo-mvp": "reading; small problems to a tight tol, where it needs no working sets",
    "smo-platt": "reading Platt's sweeps; close to `smo-mvp` in speed",
    "smo-simplified": "teaching: ends where random pairs stop helping, which need not be the optimum",
    "dual-ascent": "the book's program (bias inside the norm), one line of algebra a step; many rows of a linear "
    "kernel of many features, or of an approximation, where it takes a free bias too",
    "primal-newton": "the squared hinge to rounding error in a few steps, up to about 10,000 rows",
    "perceptron": "seeing what a margin adds: any hyperplane without mistakes will do",
    "gd": "the simplest linear SVM, with a bound of the error at every step",
    "sgd": "the same with one row a step: about 1 % of the optimum in some hundred epochs",
}

HEAD = """# Choosing a solver

<!-- written by docs/generate_choosing.py: change that, not this -->

Leave it at `auto`, the default, unless you want to see another algorithm at work. `auto` takes one of three solvers:

- **`interior-point`** for a linear kernel of at most 256 features. It makes some dozens of passes over the rows, even
  where C is large or the features are not scaled. Up to 4,096 rows it lets `smo` try first, because most small
  problems end sooner than one pass. With more rows and the squared hinge it lets `primal-newton` try first, which needs
  some five passes. From 50,000 rows on it solves a sample, then the rows that lie near the margin by it, and judges
  all rows: those that were left out wrongly come in.
- **`dual-ascent`** for a linear kernel of more features and more than 4,096 rows. Where rows are dense and it is slow,
  as where classes overlap and C is large, `auto` goes on with `interior-point` after as much work as that takes. Fewer
  rows are given to `smo` first.
- **`smo`** for everything else. Where its steps become too small, it finishes its working set with an interior point
  by itself.

A wrong pairing of solver and problem is refused before any work, and the message names the solvers that would do. No
choice changes what is promised: every answer is proved in the same way ([certificates](certificates.md)).

All solvers below ran on the same rows: digits 3 against 8, 357 x 64, linear kernel, C = 1, tol 1e-3. There are three
programs, and each solver declares which of them it takes.
"""

TAIL = """
## What the columns say

- **primal, dual**: bounds of the optimum, recomputed from the coefficients by code that no solver wrote. All that
  promise tol agree.
- **status**: `converged` means that the KKT gap over all rows, proved in float64, is at most tol. `stalled` says that
  the solver's own rule has nothing left to do though the gap is above tol: the perceptron has no mistakes left,
  simplified SMO no lucky pairs. A solver that promises tol stalls only where float64 cannot tell more: scale the data.
  `max_iter` ends `gd` and `sgd`: their objective is close long before the last KKT condition holds.
- **steps**: pairs for the SMO family, epochs for `dual-ascent`, `sgd` and `perceptron`, passes for `interior-point`,
  Newton steps, gradient steps.
- **relative gap** is missing for the perceptron: it solves another problem, so nothing about the optimum follows from
  it.
- `gd` and `sgd` keep as coefficients the running average of what violated the margin. It stays within the bounds, so it
  has a dual value, and it settles on the margin set as w converges; the plain choice C [margin < 1] would leave a gap
  of several per cent.
- `primal-newton` has coefficients of size 2 C max(0, 1 - margin), which is exact at the optimum.

Seconds are those of one run on a laptop-sized machine, compilation excluded; for large problems see `benchmarks/`.
"""


class EveryStep(Monitor):
    """A monitor that keeps all progress, as often as the solver shows it."""

    def paced(self, n_iter: int, kkt_gap: float) -> Status | None:
        """Keep a point at least every thousandth of what went before."""
        if not self.history or self.seconds > 1.02 * self.history[-1].seconds + 2e-5:
            self.history.append(Progress(self.seconds, n_iter, kkt_gap))
        return None

    stops = paced


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One solver on one program."""

    program: str
    solver: str
    seconds: float
    solution: Solution


def digits() -> tuple[Any, Any]:
    """Rows (357, 64) in [0, 1] and labels of the digits 3 (-1) and 8 (+1)."""
    from sklearn.datasets import load_digits

    data = load_digits()
    kept = np.isin(data.target, (3, 8))
    return data.data[kept] / 16.0, np.where(data.target[kept] == 8, 1.0, -1.0)


def run_all() -> list[Run]:
    """Every solver on every program it admits."""
    X, y = digits()
    columns = ComputedColumns(Linear(), Points.prepare(X, None, np.float64), np.float64)
    runs = []
    for program, loss, bias in PROGRAMS:
        for name in PURPOSE:
            solver = Solver.create(name)
            try:
                solver.admits(loss, bias, Linear())
            except Unsupported:
                continue
            runs.append(_run(program, solver, program_of(columns, y, 1.0, loss, bias)))
    return runs


def _run(program: str, solver: Solver, qp: SignedQP) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solver.solve(qp, monitor=Monitor(time_limit=3.0))  # compiles all that it will use
        started = time.perf_counter()
        solution = solver.solve(qp, monitor=EveryStep())
    return Run(program, str(solver.name), time.perf_counter() - started, solution)


def page(runs: Sequence[Run]) -> str:
    """Text of docs/choosing_a_solver.md."""
    return HEAD + _purposes() + "".join(_table(program, runs) for program, _, _ in PROGRAMS) + TAIL


def _purposes() -> str:
    lines = []
    for name in PURPOSE:
        takes = Solver.named(name).solves
        losses, biases = ", ".join(loss.name for loss in takes.losses), ", ".join(takes.biases)
        kernels = "linear" if takes.linear_only else "psd" if takes.psd_only else "any"
        promise = "yes" if takes.certifies else "no"
        lines.append(f"| `{name}` | {PURPOSE[name]} | {losses} | {biases} | {kernels} | {promise} |")
    head = ["| solver | what it is for | loss | bias | kernel | promises tol |", "|---|---|---|---|---|---|"]
    return "\n".join(["", *head, *lines, ""])


def _table(program: str, runs: Sequence[Run]) -> str:
    rows = [_row(run) for run in runs if run.program == program]
    head = [
        "| solver | status | steps | seconds | primal | dual | relative gap | KKT gap |",
        "|---|---|---|---|---|---|---|---|",
    ]
    image = f"images/choosing_{_slug(program)}.png"
    return "\n".join(
        ["", f"## {program.capitalize()}", "", *head, *rows, "", f"![KKT gap over time, {program}]({image})", ""]
    )


def _row(run: Run) -> str:
    c = run.solution.certificate
    gap = "" if c.relative_gap is None else f"{max(c.relative_gap, 0.0):.0e}"
    values = [f"{c.primal:.4f}", f"{c.dual:.4f}", gap, f"{c.kkt_gap:.0e}"]
    return (
        f"| `{run.solver}` | {run.solution.status} | {run.solution.n_iter} | {run.seconds:.3f} | {' | '.join(values)} |"
    )


def _slug(program: str) -> str:
    return re.sub(r"[^a-z]+", "-", program)


def without_seconds(text: str) -> str:
    """The page without what depends on the machine: of a run, the solver, its status and a proved optimum stay."""
    lines = []
    for line in text.splitlines():
        cells = line.split(" | ")
        if len(cells) == 8 and re.fullmatch(r"\d+\.\d{3}", cells[3]):
            optimum = f"{float(cells[5]):.2f}" if cells[1] == "converged" else ""
            line = " | ".join([*cells[:2], optimum])
        lines.append(line)
    return "\n".join(lines)


def draw(program: str, runs: Sequence[Run], path: Path) -> None:
    """KKT gap over time of the runs of one program, as a small PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), dpi=80, layout="constrained")
    ax = figure.add_subplot(xlabel="seconds", ylabel="KKT gap", xscale="log", yscale="log")
    for k, run in enumerate(run for run in runs if run.program == program):
        points = [(max(p.seconds, 1e-5), p.kkt_gap) for p in run.solution.history if p.kkt_gap > 0]
        x, y = zip(*points, strict=True)
        ax.plot(
            x, np.maximum(y, 1e-7), "os^Dv<>ph"[k % 9] + "-", markevery=[len(x) - 1], linewidth=1.2, label=run.solver
        )
    ax.axhline(1e-3, color="#888888", linewidth=0.8, linestyle="dotted")
    ax.legend(fontsize=8, frameon=False)
    figure.savefig(path, metadata={"Software": None})


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or compare it with fresh runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page would change")
    options = parser.parse_args(arguments)
    runs = run_all()
    if options.check:
        same = without_seconds(PAGE.read_text()) == without_seconds(page(runs))
        sys.stderr.write("" if same else "docs/choosing_a_solver.md differs: run python docs/generate_choosing.py\n")
        return 0 if same else 1
    PAGE.write_text(page(runs))
    for program, _, _ in PROGRAMS:
        draw(program, runs, IMAGES / f"choosing_{_slug(program)}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
