"""The suites of `make bench`: which cases, and which solvers on them for how long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import cases
from benchmarks.cases import Case, table_of
from benchmarks.contest.machine import Measure
from benchmarks.contest.measure import Side, Terms, contest
from benchmarks.contest.peers import OURS
from benchmarks.results import Record, Results
from benchmarks.suites.fits import merged_rows

FAST = (Side(OURS), Side("scikit-learn-intelex", limit_seconds=150))
SINGLE = (
    *FAST,
    Side("scikit-learn", budget_seconds=110),
    Side("libsvm", limit_seconds=150, budget_seconds=60),
    Side("thundersvm", limit_seconds=60, budget_seconds=30),
)
LONG = (*FAST, Side("scikit-learn", limit_seconds=900))  # of rows on which it takes many minutes
MULTICLASS = (
    Side(OURS, "ovr"),
    Side("scikit-learn-intelex", "ovr"),
    Side("scikit-learn-intelex", "ovo"),
    Side("scikit-learn", "ovr", budget_seconds=70),
)
LARGE = (Side(OURS, "ovr"), Side("scikit-learn-intelex", "ovo", budget_seconds=130))
SCALING = (*FAST, Side("scikit-learn", limit_seconds=400, budget_seconds=120))
BUDGETS_MB = (512, 16_000)
TENTHS_MB = {  # a tenth of the columns of a case's support vectors
    "a9a": 143,
    "ijcnn1": 47,
    "cod-rna": 129,
    "mnist-parity-20000": 27,
    "connect-4": 116,
    "generated-200000": 630,
}


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    data: Path
    terms: Terms
    only: tuple[str, ...] = ()
    rows: int | None = None

    def wanted(self, sides: Sequence[Side]) -> list[Side]:
        """Return the sides that take part."""
        return [side for side in sides if not self.only or side.peer in self.only]


TENTH = "-tenth"  # ends the name of a case in a tenth of its columns
Work = Callable[[Request, Measure], list[Record]]


def single() -> Mapping[str, Work]:
    """One binary fit, against all, or where it is long against the strongest."""
    short = {case.name: _contest(case, SINGLE) for case in cases.SINGLE.values()}
    return short | {case.name: _contest(case, LONG) for case in cases.LARGE.values()}


def multiclass() -> Mapping[str, Work]:
    """All classes, one-vs-rest, against a loop over the peers and their one-vs-one."""
    return {
        case.name: _contest(case, LARGE if case.name == "mnist-60000" else MULTICLASS)
        for case in cases.MULTICLASS.values()
    }


def memory_budget() -> Mapping[str, Work]:
    """a9a within 512 MB of columns, and all within a tenth of their support vectors', beside as many as they want."""
    peer, wide = Side("scikit-learn-intelex", cache_mb=BUDGETS_MB[0]), Side(OURS, cache_mb=BUDGETS_MB[1])
    found = {"a9a-budget": _contest(cases.SINGLE["a9a"], [Side(OURS, cache_mb=BUDGETS_MB[0]), wide, peer])}
    known = cases.SINGLE | cases.LARGE
    for name, budget in TENTHS_MB.items():
        found[f"{name}{TENTH}"] = _contest(known[name], [Side(OURS, cache_mb=budget), wide])
    return found


def scaling() -> Mapping[str, Work]:
    """Doubling n."""
    return {case.name: _contest(case, SCALING) for case in cases.SCALING.values()}


def doubling() -> Mapping[str, Work]:
    """Doubling n of generated rows, of which few are support vectors, to where K is far beyond memory."""
    return {case.name: _contest(case, FAST) for case in cases.DOUBLING.values()}


def merged() -> Mapping[str, Work]:
    """Try a long table of few distinct rows."""
    return {merged_rows.CASE.name: _merged_rows}


SUITES: Mapping[str, Callable[[], Mapping[str, Work]]] = {
    "single": single,
    "multiclass": multiclass,
    "memory_budget": memory_budget,
    "scaling": scaling,
    "doubling": doubling,
    "merged_rows": merged,
}


def _contest(case: Case, sides: Sequence[Side]) -> Work:
    def work(request: Request, rates: Measure) -> list[Record]:
        table = table_of(case, request.data, request.rows)
        return contest(case, table, request.wanted(sides), request.terms, rates)

    return work


def _merged_rows(request: Request, rates: Measure) -> list[Record]:
    return merged_rows.run(request.only, request.rows, request.terms, rates)


def selected(names: Sequence[str]) -> list[tuple[str, str, Work]]:
    """(suite, case, work) for the names of suites and cases asked for; all of them for none."""
    every = [(suite, case, work) for suite, of in SUITES.items() for case, work in of().items()]
    known = {name for suite, case, _ in every for name in (suite, case)}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"unknown case {unknown[0]!r}; known: {', '.join(sorted(known))}")
    return [item for item in every if not names or item[0] in names or item[1] in names]


def run(
    names: Sequence[str],
    request: Request,
    rates: Measure,
    folder: Path,
    run_name: str,
    show: Callable[[list[Record]], None],
) -> None:
    """Run the selected cases; each is written when it is done, and not run again under the same run name."""
    for suite, case, work in selected(names):
        results = Results(folder, suite, run_name)
        if results.has(case):
            request.terms.say(f"{suite} {case}: done in {run_name}")
            continue
        request.terms.say(f"{suite} {case}")
        if records := work(request, rates):
            results.append(case, [record | {"rows": request.rows} for record in records])
            show(records)
