"""The aims of the benchmark, each computed from the records: the aim, what was measured, whether it holds."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.contest.measure import OBJECTIVE_RTOL
from benchmarks.contest.peers import OURS
from benchmarks.page import tables
from benchmarks.results import Record
from benchmarks.suites.fits.cores import waste
from benchmarks.suites.runs import end_to_end as whole_run
from benchmarks.truth.told import page

FEW_SUPPORT = ("ijcnn1", "cod-rna")  # whose floor is so low that pair steps, on one thread, are above three of it
MANY_ROWS = 25_000
IN_MEMORY = ("resident", "columns")  # plans of which `marginflow plan` chooses where K is in memory

Cases = Mapping[str, list[Record]]
Suites = Mapping[str, Cases]


@dataclass(frozen=True)
class Claim:
    """One line of the summary; `holds` is None where it was not measured."""

    what: str
    aim: str
    measured: str
    holds: bool | None


def of(records: Sequence[Record], solver: str, task: str | None = None) -> Record | None:
    """Find the solver's record that has a time."""
    found = (r for r in records if r["solver"] == solver and task in (None, r.get("task")))
    return next((r for r in found if r.get("median_seconds")), None)


def ratio(records: Sequence[Record], solver: str, task: str | None = None) -> float | None:
    """Return how many times longer than ours the solver takes."""
    ours, theirs = of(records, OURS), of(records, solver, task)
    return theirs["median_seconds"] / ours["median_seconds"] if ours and theirs else None


def cold_ratio(records: Sequence[Record], solver: str) -> float | None:
    """Return how many times longer than ours the solver's first fit takes, where its memory was cold."""
    ours, theirs = of(records, OURS), of(records, solver)
    cold = ours and theirs and ours.get("cold_memory") and theirs.get("cold_memory")
    return theirs["cold_seconds"] / ours["cold_seconds"] if ours and theirs and cold else None


def ended_ratio(records: Sequence[Record], solver: str) -> float | None:
    """Return how many times longer than ours a solver took at least that was ended without an answer."""
    ours, theirs = of(records, OURS), next((r for r in records if r["solver"] == solver), None)
    ended = re.fullmatch(r"ended after (\d+) s", theirs["status"]) if theirs else None
    return float(ended[1]) / ours["median_seconds"] if ours and ended else None


def _at_least(what: str, value: float | None, aim: float) -> Claim:
    return Claim(what, f"at least {aim:g}×", tables.number(value, ".1f"), None if value is None else value >= aim)


def _at_most(what: str, value: float | None, aim: float, unit: str = "") -> Claim:
    measured = "–" if value is None else tables.seconds(value) + unit
    return Claim(what, f"at most {aim:g}{unit}", measured, None if value is None else value <= aim)


def single(cases: Cases) -> list[Claim]:
    """Judge the single fits: mean and worst ratios, objective, gap, floor."""
    claims = []
    for solver, aim in (("scikit-learn-intelex", 5.0), ("scikit-learn", 30.0)):
        ratios = [value for records in cases.values() if (value := ratio(records, solver))]
        ended = [value for records in cases.values() if (value := ended_ratio(records, solver))]
        what, mean = f"single fits, geometric mean of {len(ratios)} against {solver}", tables.geometric_mean(ratios)
        claims.append(_at_least(what, mean, aim))
        if ended:
            mean = tables.geometric_mean(ratios + ended)
            claims.append(_at_least(f"the same with {len(ended)} ended without an answer, as its limit", mean, aim))
        claims.append(_at_least(f"single fits, least against {solver}", min(ratios + ended, default=None), 2.0))
    claims += _first_fits(cases, "scikit-learn-intelex") + _peaks(cases)
    ours = [record for records in cases.values() if (record := of(records, OURS))]
    return [*claims, *_quality(ours, "single fits"), *_floors(ours)]


def _first_fits(cases: Cases, solver: str) -> list[Claim]:
    """Judge first fits of fresh processes."""
    ratios = [value for records in cases.values() if (value := cold_ratio(records, solver))]
    mean, least = tables.geometric_mean(ratios), min(ratios, default=None)
    return [
        _at_least(f"first fits, geometric mean of {len(ratios)} against {solver}", mean, 3.0),
        _at_least(f"first fits, least against {solver}", least, 1.5),
    ]


def _quality(ours: Sequence[Record], what: str) -> list[Claim]:
    short = [r["shortfall"] for r in ours if r.get("shortfall") is not None]
    gaps = [r["kkt_gap"] / 1e-3 for r in ours]
    return [
        _at_most(
            f"{what}: our objective below the best peer's, relative, worst case",
            max(short, default=None),
            OBJECTIVE_RTOL,
        ),
        _at_most(f"{what}: our KKT gap in float64 over tol = 1e-3, worst case", max(gaps, default=None), 1.0),
    ]


def _floors(ours: Sequence[Record]) -> list[Claim]:
    def over(record: Record) -> float:
        return record["median_seconds"] / record["floor"]["seconds"]

    def aim(record: Record) -> float:
        return 5.0 if record["case"] in FEW_SUPPORT else 3.0

    judged = [record for record in ours if "floor" in record]
    what = "time over the floor of float32 products"
    return [_at_most(f"{what}, {record['title']}", over(record), aim(record)) for record in judged]


def _peaks(cases: Cases) -> list[Claim]:
    """Judge the memory of first fits: the largest share of the peer's, of the cases that it answers."""
    shares = {}
    for records in cases.values():
        ours, peer = (of(records, solver) for solver in (OURS, "scikit-learn-intelex"))
        if ours and peer and "peak_bytes" in ours and "peak_bytes" in peer:
            shares[ours["title"]] = tables.fit_bytes(ours) / tables.fit_bytes(peer)
    if not shares:
        return []
    worst = max(shares, key=shares.__getitem__)
    what = "first fits, peak memory over scikit-learn-intelex'"
    return [
        _at_most(f"{what}, median of {len(shares)}", statistics.median(shares.values()), 1.0),
        _at_most(f"{what}, worst: {worst}", shares[worst], 1.0),
    ]


def multiclass(cases: Cases) -> list[Claim]:
    """Judge all classes at once."""
    intelex, claims = "scikit-learn-intelex", []
    for case, task, aim in (
        ("mnist-10000", "ovr", 4.0),
        ("mnist-10000", "ovo", 1.0),
        ("letter", "ovr", 12.0),
        ("mnist-60000", "ovo", 5.0),
    ):
        if case in cases:
            how = {"ovr": "a loop over", "ovo": "one-vs-one of"}[task]
            claims.append(
                _at_least(f"{case}, all classes, against {how} {intelex}", ratio(cases[case], intelex, task), aim)
            )
    ours = [record for records in cases.values() if (record := of(records, OURS))]
    claims += _quality(ours, "all classes") if ours else []
    large = of(cases.get("mnist-60000", []), OURS)
    if large:
        claims.append(_at_most("mnist-60000, peak memory", large["peak_bytes"] / 1e9, 16.0, " GB"))
    return claims


def memory_budget(cases: Cases) -> list[Claim]:
    """Judge a9a within 512 MB, and all within a tenth of their support vectors' columns."""
    over, found = {}, []
    for name, records in cases.items():
        ours = sorted((r for r in records if r["solver"] == OURS), key=lambda r: r["cache_mb"])
        if len(ours) < 2 or not all(r["median_seconds"] for r in ours):
            continue
        tight, ratio = ours[0], ours[0]["median_seconds"] / ours[1]["median_seconds"]
        if name.endswith("-tenth"):
            over[tight["title"]] = ratio
            continue
        extra = tables.fit_bytes(tight)
        found.append(_at_most("a9a in 512 MB over its unlimited time", ratio, 4.0))
        above = extra / 1e6 if extra else None
        found.append(_at_most("a9a in 512 MB, peak above before the fit", above, 512 + 300, " MB"))
    for title, ratio in over.items():
        found.append(_at_most(f"a tenth of the support vectors' columns, over unlimited time: {title}", ratio, 3.0))
    return found


def merged_rows(cases: Cases) -> list[Claim]:
    """Judge the long table of copies."""
    ours = [record for records in cases.values() if (record := of(records, OURS))]
    return [
        claim
        for r in ours
        for claim in (
            _at_most(f"{r['title']}: seconds", r["median_seconds"], 60.0, " s"),
            _at_most(f"{r['title']}: KKT gap over tol", r["kkt_gap"] / 1e-3, 1.0),
        )
    ]


def batch(cases: Cases) -> list[Claim]:
    """Judge the cross-validated batch."""
    claims = []
    for records in cases.values():
        searches = [r for r in records if "scores" in r]
        for solver, aim in (("scikit-learn-intelex", 40.0), ("scikit-learn", 200.0)):
            claims.append(_at_least(f"batch of 250 fits, against {solver}", ratio(searches, solver), aim))
        peer = of(searches, "scikit-learn-intelex")
        if peer and "fold_difference" in peer:
            claims.append(_at_most("batch: fold scores differ by", 100 * peer["fold_difference"], 0.3, " %"))
            claims.append(_at_most("batch: mean scores differ by", 100 * peer["mean_difference"], 0.1, " %"))
        ours = of(searches, OURS)
        if ours:
            claims.append(_at_most("batch: worst KKT gap over tol", ours["kkt_gap"] / 1e-3, 1.05))
        stage = [r["ratio"] for r in records if "ratio" in r]
        claims += [_at_most("kernel stage of three gammas over one", value, 1.6) for value in stage]
    return claims


def truth(cases: Cases) -> list[Claim]:
    """Judge the certificates and the shares solved of the newest run; the baseline makes no claim."""
    return [claim for record in cases.get("truth", [])[-1:] for claim in [*_verdicts(record), *_shares(record)]]


def _verdicts(record: Record) -> list[Claim]:
    names = ("false gap", "false converged", "objective outside its bar", "dual below LIBSVM", "stalled unjustly")
    what = f"{record['problems']:,} small problems: "
    return [Claim(what + name, "none", f"{n:,}", n == 0) for name in names for n in [record["verdicts"][name]]]


def _shares(record: Record) -> list[Claim]:
    claims = []
    for name, aim in (("libsvm solves", 1.0), ("libsvm does not", 0.9)):
        count, what = record["solved"][name], page.SOLVED[name]
        share = count["solved"] / count["problems"] if count["problems"] else None
        holds = None if share is None else share >= aim
        claims.append(Claim(f"solved, of the {what}", f"at least {aim:.0%}", tables.number(share, ".2%"), holds))
    curve = record["profile"]
    behind = max(t - o for f, t, o in zip(*(curve[k] for k in ("factors", "libsvm", "ours")), strict=True) if f >= 3)
    claims.append(Claim("profile beyond a factor of 3: below LIBSVM's by", "at most 0", f"{behind:.4f}", behind <= 0))
    return claims


def linear(cases: Cases) -> list[Claim]:
    """Judge linear machines of many rows against LIBLINEAR, and the largest by itself."""
    claims = []
    for name, (ours, *peers) in cases.items():
        dual = 3.0 if name.startswith("dense") else 0.67
        for peer in peers:
            what = f"{name}, against {peer['solver']}" + ("" if peer["reached"] else ", which does not reach our value")
            aim = dual if peer["solver"].endswith("dual") else 1.0
            claims.append(_at_least(what, peer["seconds"] / ours["seconds"], aim))
        if not peers:
            claims.append(_at_most(f"{name}: seconds", ours["seconds"], 300.0, " s"))
            claims.append(_at_most(f"{name}: memory beside the rows", ours["peak_gb"], 2.0, " GB"))
    return claims


def low_rank(cases: Cases) -> list[Claim]:
    """Judge machines of low rank: by the exact one where it was trained, and by the clock."""
    claims = []
    for name, records in cases.items():
        exact, low = records[0], records[-2]
        limit = 5.5 if low is not exact else 300.0
        claims.append(_at_most(f"{name}: seconds", low["median_seconds"], limit, " s"))
        if low is not exact:
            lost = 100 * (exact["accuracy"] - low["accuracy"])
            claims.append(_at_most(f"{name}: accuracy below the exact one by", lost, 0.5, " %"))
    return claims


def doubling(cases: Cases) -> list[Claim]:
    """Judge the ratios where n is large, and how fast the time grows."""
    large = [ratio(records, "scikit-learn-intelex") for records in cases.values() if records[0]["n"] > MANY_ROWS]
    found = exponents(cases)
    both = [found[solver][2] for solver in (OURS, "scikit-learn-intelex") if solver in found]
    over = both[0] - both[1] if len(both) == 2 else None
    least = min((value for value in large if value), default=None)
    return [
        _at_least(
            f"generated rows, least of {len(large)} above {MANY_ROWS:,} against scikit-learn-intelex", least, 2.0
        ),
        _at_most("generated rows, our exponent of n above scikit-learn-intelex' by", over, 0.0),
    ]


def cores(cases: Cases) -> list[Claim]:
    """Judge how many values of K single fits compute."""
    what = "values of K computed, over those of the support vectors' columns"
    return [_at_most(f"{what}: {records[0]['title']}", waste(records), 1.5) for records in cases.values()]


def scale(cases: Cases) -> list[Claim]:
    """Judge rows in shards against one process, and two workers against one."""
    claims = []
    for name, records in cases.items():
        if "ratio" in records[0]:
            claims.append(_at_least("kernel stage on two workers, against one", records[0]["ratio"], 1.7))
            continue
        one, shards = records
        over = shards["median_seconds"] / one["median_seconds"]
        claims.append(_at_most(f"{name}: over the time of one process", over, 1.3))
        claims.append(_at_most(f"{name}: largest process", max(shards["peaks_gb"]), 3.0, " GB"))
        claims.append(_at_most(f"{name}: KKT gap over tol", shards["kkt_gap"] / 1e-3, 1.05))
    return claims


def end_to_end(cases: Cases) -> list[Claim]:
    """Judge whole runs by the estimator, and by how busy they keep the cores."""
    claims = []
    for name, (estimator, whole) in cases.items():
        over, busy = whole_run.seconds(whole) / whole_run.seconds(estimator), 100 * whole["busy"]
        claims.append(_at_most(f"{name}, all stages of a run over fit and predict", over, 1.3))
        claims.append(Claim(f"{name}, cores busy while a run solves", "at least 85 %", f"{busy:.0f} %", busy >= 85.0))
    return claims


def plans(cases: Cases) -> list[Claim]:
    """Judge what plans foretell of K in memory: seconds by stage, and which of two ways is the faster."""
    claims = []
    for name, records in cases.items():
        ways = [record for record in records if record["solver"] in IN_MEMORY]
        off = [record["foretold"][s] / record["taken"][s] for record in ways for s in ("solve", "score")]
        worst = max(max(value, 1.0 / value) for value in off)
        claims.append(_at_most(f"{name}, plan: seconds of solve and score off by a factor of", worst, 2.0))
        if len(ways) > 1:
            said, was = (_fastest(ways, key) for key in ("foretold", "taken"))
            claims.append(Claim(f"{name}, plan: the faster of {' and '.join(IN_MEMORY)}", was, said, said == was))
    return claims


def _fastest(ways: Sequence[Record], key: str) -> str:
    """The plan of the fewest seconds, as foretold or as taken."""
    return str(min(ways, key=lambda record: sum(record[key].values()))["solver"])


JUDGES: Mapping[str, Callable[[Cases], list[Claim]]] = {
    "truth": truth,
    "single": single,
    "cores": cores,
    "multiclass": multiclass,
    "memory_budget": memory_budget,
    "merged_rows": merged_rows,
    "batch": batch,
    "linear": linear,
    "low_rank": low_rank,
    "doubling": doubling,
    "scale": scale,
    "end_to_end": end_to_end,
    "plans": plans,
}


def all_of(suites: Suites) -> list[Claim]:
    """Every claim that has records."""
    return [claim for name, judge in JUDGES.items() if suites.get(name) for claim in judge(suites[name])]


def exponents(cases: Cases) -> dict[str, tuple[list[int], list[float], float]]:
    """Per solver (n, seconds, e): time grows as n^e, the slope of least squares between logarithms."""
    found = {}
    for solver in dict.fromkeys(r["solver"] for records in cases.values() for r in records):
        pairs = sorted((r["n"], r["median_seconds"]) for records in cases.values() if (r := of(records, solver)))
        if len(pairs) > 1:
            sizes, seconds = zip(*pairs, strict=True)
            found[solver] = (list(sizes), list(seconds), slope(sizes, seconds))
    return found


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Exponent e of y = c x^e.

    Examples
    --------
    >>> round(slope([1, 2, 4], [3, 12, 48]), 12)
    2.0
    """
    u, v = [math.log(value) for value in x], [math.log(value) for value in y]
    centre_u, centre_v = math.fsum(u) / len(u), math.fsum(v) / len(v)
    top = math.fsum((a - centre_u) * (b - centre_v) for a, b in zip(u, v, strict=True))
    return top / math.fsum((a - centre_u) ** 2 for a in u)
