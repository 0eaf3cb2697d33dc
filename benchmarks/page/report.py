"""docs/performance.md, written from the JSON lines alone: the claims first, then a table for each case."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.page import claims, figures, tables
from benchmarks.page.claims import Cases
from benchmarks.results import Record
from benchmarks.suites.estimators import linear, low_rank
from benchmarks.suites.fits import avx2, cores
from benchmarks.suites.runs import batch, end_to_end, plans, scale
from benchmarks.truth.told import page

SUITES = (
    "truth",
    "single",
    "avx2",
    "cores",
    "multiclass",
    "memory_budget",
    "scaling",
    "doubling",
    "merged_rows",
    "batch",
    "linear",
    "low_rank",
    "scale",
    "end_to_end",
    "plans",
)

INTRODUCTION = """# Performance

Written by `make bench-report` from `benchmarks/results/*.jsonl`; do not edit by hand.

```sh
make bench DATA=PATH                    # everything below but the batch, about an hour
make bench DATA=PATH CASES=a9a,letter   # some cases;  RESUME=1 goes on with an interrupted run
make bench-batch DATA=PATH              # the cross-validated batch
make bench-linear                       # linear machines of millions of rows; needs no DATA
make bench-avx2 DATA=PATH               # single fits as on a processor without AVX-512
make bench-cores DATA=PATH              # phases of single fits, on 16 and 64 cores by emulation
make bench-low-rank DATA=PATH           # machines of low rank
make bench-scale DATA=PATH              # rows in shards
make bench-end-to-end DATA=PATH         # a whole run against fit and predict
make bench-plans DATA=PATH              # what each plan foretells, and takes
make bench-truth MINUTES=60             # thousands of small problems, every certificate judged; needs no DATA
```

`PATH` holds the data sets under the names that `benchmarks/cases.py` reads. The peers live in an environment of
their own (`.env-bench`, versions in `benchmarks/constraints.txt`).
"""

RULES = """## How it is measured

- Same table, C, gamma and tol = 1e-3 (on m − M, LIBSVM's own stop) for all; every solver gets the same cache, and
  the data in the precision it works in and the form, dense or compressed rows, in which a trial on 4,000 rows found
  it fastest. LIBSVM's node arrays are built before its clock starts. All see the same float32 values.
- A solver runs in a process of its own with all cores (scikit-learn uses one). Its first fit is shown as *first
  call*: libraries are imported before it, and a fit of a few rows of each class has loaded what is compiled; the memory
  is cold. Then the solvers take turns; a time is the median, the number of measurements in brackets: three, or up to
  nine that add up to 6 s. A first call over 10 s counts as one, and a slow peer is repeated only within a time budget.
- Before each later fit half as much memory again as the solver's first one took is touched and given back, so that no
  solver pays for the machine's first touch. (Until November 2026 all that its cache could take was touched, up to 7 GB.
  That made a fit of ours that takes 48 MB 6 to 10 % slower.)
- *Dual objective* and *m − M* come from each answer's coefficients, evaluated in float64 by
  `benchmarks/contest/judge.py` for all solvers alike; several classes: the sum of the objectives and the worst gap.
  A faster answer with a worse objective is not faster: where ours is below a peer's by more than 1e-6 relative,
  our tol is halved until it is not, and that time counts.
- *Peak MB* is the first fit's peak resident memory above that before it.
- *Floor*: the least time for the kernel entries that the plan needs (columns of the support vectors, or half of a
  resident Gram matrix, over distinct rows): a product of two rows, one exponential and four bytes of memory each, at
  rates measured before every round of a case's fits, in the middle of these, as a virtual machine's clock moves within
  minutes (until November 2026 once at the start of a run). A product is 2p flop at the machine's float32 GEMM rate.
  Where rows are integers times a step (a9a, w8a, connect-4, MNIST) marginflow multiplies bytes or bits, and the floor
  takes their rate on the table's own rows. The aims above are of the floor of float32 products in all cases, of which
  such rows may come below one.
"""

TITLES = {
    "truth": "## Is it true?",
    "single": "## Single fits",
    "avx2": "## Single fits with AVX2 alone",
    "cores": "## Phases of a single fit, and more cores",
    "multiclass": "## All classes",
    "memory_budget": "## Within a memory budget",
    "scaling": "## Doubling n",
    "doubling": "## Doubling n of generated rows",
    "merged_rows": "## Many copies of few rows",
    "batch": "## Cross-validated batch",
    "linear": "## Linear machines of many rows",
    "low_rank": "## Low rank",
    "scale": "## Rows in shards",
    "end_to_end": "## A whole run",
    "plans": "## What a plan foretells",
}
BESIDE = {  # modules with HEADER and row
    "cores": cores,
    "linear": linear,
    "low_rank": low_rank,
    "scale": scale,
    "end_to_end": end_to_end,
    "plans": plans,
}

NOTES = {
    "avx2": "The same fits where all are held to AVX2, as older servers and most laptops have it: marginflow and "
    "NumPy's BLAS by their environment, MKL in scikit-learn-intelex where it listens (Intel's processors). oneDAL's "
    "own code is not to be told, so the peer may be faster here than on such a machine.",
    "cores": "Seconds of marginflow's fit by what it does. More cores than the machine has are emulated: one thread "
    "does what others could share, and its time is divided by as many threads as there would be ranges for. Nothing "
    "waits for memory there, so a real machine is slower; what stays in one piece shows.",
    "multiclass": "marginflow trains one-vs-rest on one shared kernel. The peers: a loop over the classes, and their "
    "own one-vs-one, which is another (smaller) program.",
    "merged_rows": "Identical rows are one variable with a larger bound: the same program, exactly. Each peer gets "
    "ten minutes for one fit.",
    "linear": "Generated rows, a penalised bias, so that the program is LIBLINEAR's. It promises no gap: its time is "
    "that of the first `max_iter` of 3, 10, 30, ... whose primal value is within 1e-4 of ours.",
    "low_rank": "Nystroem's approximation with landmarks drawn at random, proofs included: the KKT gap is of the "
    "machine on the factor, the other one bounds how far it is from the exact machine's optimum.",
    "scale": "Exact training with the rows on two local workers, against the estimator in one process.",
    "end_to_end": "All classes from the files to the scores, against the estimator's fit and predict on rows in "
    "memory, in one process. The run also checks, sorts and stores its rows, and scores the training rows.",
    "plans": "Seconds that `marginflow plan` says before the run, and that the run takes, for each way to hold K "
    "that its memory allows. One measurement each.",
    "batch": "10 classes × 5 folds × 5 values of C = 250 fits. marginflow: kernel and solve seconds of "
    "`pipeline.run`. Peers: `GridSearchCV(OneVsRestClassifier(SVC()))` on the same folds, `refit=False`, scoring "
    "included; scikit-learn runs one fold, scaled to five, on one core (`n_jobs=2` would at best halve its time).",
}


def _claims(suites: Mapping[str, Cases]) -> str:
    found = claims.all_of(suites)
    words = {True: "yes", False: "**no**", None: "not measured"}
    rows = [(claim.what, claim.aim, claim.measured, words[claim.holds]) for claim in found]
    return "## Aims and what was measured\n\n" + page.table(("", "aim", "measured", "holds"), rows)


def _machine(records: Sequence[Record]) -> str:
    if not records:
        return ""
    one = records[-1]
    return (
        f"Machine of the last run ({one['run'][:10]}): {one['cpu']}, {one['cores']} cores, "
        f"{one['memory_bytes'] / 2**30:.0f} GiB; Python {one['python']}, NumPy {one['numpy']}. Measured there: "
        f"{one['gemm_flops'] / 1e9:.0f} GFLOP/s float32 GEMM, "
        f"{one['exp_per_second'] / 1e9:.1f} billion exponentials/s, "
        f"{one['write_bytes_per_second'] / 1e9:.0f} GB/s written to memory"
        + (f"; rows are multiplied by {one['products']}" if "products" in one else "")
        + ". Trust ratios, which come from one run, more than seconds.\n"
    )


def _case(records: Sequence[Record]) -> str:
    rows = [tables.row(record, records) for record in records]
    notes = [f"\n{note}\n" for record in records for note in tables.notes(record)]
    return f"### {tables.heading(records)}\n\n" + page.table(tables.HEADER, rows) + "".join(notes)


def _exponents(cases: Cases) -> str:
    found = claims.exponents(cases)
    sizes = sorted({n for solver_sizes, _, _ in found.values() for n in solver_sizes})
    rows = []
    for solver, (at, seconds, exponent) in found.items():
        by_size = dict(zip(at, seconds, strict=True))
        rows.append([solver, *(tables.seconds(by_size.get(n)) for n in sizes), f"{exponent:.2f}"])
    return page.table(["seconds at n =", *(f"{n:,}" for n in sizes), "exponent"], rows)


def _batch(records: Sequence[Record]) -> str:
    searches = [record for record in records if "scores" in record]
    text = page.table(batch.HEADER, [batch.row(record, searches) for record in searches])
    for record in searches:
        if "stages" in record:
            stages = ", ".join(f"{name} {tables.seconds(value)}" for name, value in record["stages"].items())
            text += f"\nmarginflow's seconds by stage: {stages}; first run {tables.seconds(record['cold_seconds'])}.\n"
    for record in records:
        if "ratio" in record:
            text += (
                f"\nKernel stage: one gamma {tables.seconds(record['one_gamma'])} s, three gammas "
                f"{tables.seconds(record['three_gammas'])} s, {record['ratio']:.2f} times as long.\n"
            )
    return text


def _beside(module: Any, records: Sequence[Record]) -> str:
    title = f"### {records[0]['case']}\n\n"
    if "ratio" in records[0]:
        one, two, ratio = (records[0][key] for key in ("one", "two", "ratio"))
        return f"{title}{tables.seconds(one)} s on one worker, {tables.seconds(two)} s on two: {ratio:.2f}×.\n"
    text = title + page.table(module.HEADER, [module.row(record, records) for record in records])
    return f"{text}\n{module.note(records)}\n" if hasattr(module, "note") else text


def _images(names: Sequence[str], drawn: Mapping[str, Path], docs: Path) -> str:
    captions = {
        "single": "Seconds of a single fit",
        "floors": "Where our time goes, and the distance to the floor",
        "multiclass": "Seconds for all classes",
        "scaling": "Time against n",
        "doubling": "Time against n, generated rows",
        "batch": "Seconds of the batch",
        "truth": "Share of the problems against time over the best solver's",
    }
    return "".join(f"![{captions[name]}]({os.path.relpath(drawn[name], docs)})\n\n" for name in names if name in drawn)


def _section(suite: str, cases: Cases, single: Cases, drawn: Mapping[str, Path], docs: Path) -> str:
    parts = [TITLES[suite] + "\n"]
    if suite in NOTES:
        parts.append(NOTES[suite] + "\n")
    if suite == "truth":
        return "\n".join([*parts, page.section(cases), _images([suite], drawn, docs)])
    parts.append(_images([suite, "floors"] if suite == "single" else [suite], drawn, docs).rstrip() + "\n")
    if suite == "avx2":
        return "\n".join([*parts, page.table(avx2.HEADER, avx2.table(cases, single))])
    if suite in BESIDE:
        return "\n".join(parts[:2] + [_beside(BESIDE[suite], records) for records in cases.values()])
    if suite in ("scaling", "doubling"):
        parts.append(_exponents(cases))
    each = _batch if suite == "batch" else _case
    return "\n".join([part for part in parts if part.strip()] + [each(records) for records in cases.values()])


def write(folder: Path, docs: Path) -> Path:
    """Write docs/performance.md and docs/images/performance-*.svg from the records in `folder`."""
    suites = {name: results.latest(folder, name) for name in SUITES}
    drawn = figures.draw(suites, docs / "images")
    about = suites["single"], drawn, docs
    sections = [_section(name, suites[name], *about) for name in SUITES if suites[name]]
    machine = _machine(results.read(folder / "machine.jsonl"))
    path = docs / "performance.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [INTRODUCTION, machine, _claims(suites), *sections, RULES]
    path.write_text("\n".join(part for part in parts if part), encoding="utf-8")
    return path
