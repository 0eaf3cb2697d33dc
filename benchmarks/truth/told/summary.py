"""What a run comes to: one record that the page, the plot and the claims are drawn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.truth.judging.verdicts import VERDICTS, peer_solved, solved, tellable
from benchmarks.truth.problems.design import KERNELS, LOSSES, SCALINGS, design

Record = dict[str, Any]
SMALL_ROWS = 500
LONG_SECONDS = 0.05
FACTORS = tuple(np.logspace(0, 3, 61).round(4).tolist())


def parts_of(record: Record) -> dict[str, str]:
    """The factors of a problem, read from its name."""
    table, scaling, kernel, loss, cost, _ = record["case"].split("/")
    return {"table": table, "scaling": scaling, "kernel": kernel.split("-")[0], "loss": loss, "C": cost[2:]}


def summary(records: Sequence[Record]) -> Record:
    """Counts of verdicts, shares solved, ratios of time and the performance profile."""
    return {
        "problems": len(records),
        "of": len(design()),
        "verdicts": _verdicts(records),
        "solved": _solved(records),
        "groups": _groups(records),
        "ratios": _ratios(records),
        "profile": profile(records),
        "precision": Counter(r["truth"]["precision"] for r in records if r["truth"]),
        "peer_status": Counter(r["peer"]["status"] for r in records),
        "worst": _worst(records),
        "core_share": _core_share(records),
    }


def _verdicts(records: Iterable[Record]) -> dict[str, int]:
    counts = Counter(name for record in records for name in record["verdicts"])
    return {name: counts[name] for name in VERDICTS}


def _solved(records: Sequence[Record]) -> dict[str, dict[str, int]]:
    """(all, solved by us): of the problems that LIBSVM solves, of the others that float64 can tell, of the rest."""
    groups: dict[str, list[Record]] = {"libsvm solves": [], "libsvm does not": [], "float64 cannot tell": []}
    for record in records:
        name = "libsvm does not" if tellable(record) else "float64 cannot tell"
        groups["libsvm solves" if peer_solved(record) else name].append(record)
    return {name: {"problems": len(group), "solved": sum(map(solved, group))} for name, group in groups.items()}


def _groups(records: Sequence[Record]) -> list[Record]:
    """Per kernel, scaling and loss: problems, solved by us and by LIBSVM, and every verdict."""
    rows = []
    for factor, levels in (("kernel", KERNELS), ("scaling", SCALINGS), ("loss", LOSSES)):
        for level in levels:
            group = [record for record in records if parts_of(record)[factor] == level]
            counts = {"problems": len(group), "solved": sum(map(solved, group)), "peer": sum(map(peer_solved, group))}
            rows.append({"factor": factor, "level": level, **counts, **_verdicts(group)})
    return rows


def _ratios(records: Sequence[Record]) -> list[Record]:
    """Our time over LIBSVM's, where both solve: hinge is LIBSVM's own program, squared hinge a matrix for it."""
    both = [record for record in records if solved(record) and peer_solved(record)]
    rows = []
    for loss in LOSSES:
        for name, holds in _SIZES.items():
            group = [r for r in both if parts_of(r)["loss"] == loss and holds(r)]
            for kernels, chosen in _KERNELS_TIMED.items():
                times = [r for r in group if parts_of(r)["kernel"] in chosen]
                rows.append({"loss": loss, "rows": name, "kernels": kernels, **_quantiles(times)})
    return [row for row in rows if row["problems"]]


_KERNELS_TIMED = {
    "all": KERNELS,
    "linear, rbf, poly": ("linear", "rbf", "poly"),
    "rbf, poly, sigmoid": ("rbf", "poly", "sigmoid"),
}
_SIZES: dict[str, Callable[[Record], bool]] = {
    f"below {SMALL_ROWS}": lambda record: record["n"] < SMALL_ROWS,
    f"{SMALL_ROWS} and more": lambda record: record["n"] >= SMALL_ROWS,
}


def _quantiles(records: Sequence[Record]) -> Record:
    ratios = [record["ours"]["cpu_seconds"] / record["peer"]["cpu_seconds"] for record in records]
    median, high = np.quantile(ratios, [0.5, 0.95]) if ratios else (None, None)
    seconds = float(np.median([record["ours"]["cpu_seconds"] for record in records])) if ratios else None
    return {"problems": len(ratios), "median": median, "q95": high, "seconds": seconds}


def profile(records: Sequence[Record]) -> Record:
    """Share of the problems that a solver solves within a factor of the best one's time, among those solved at all.

    References
    ----------
    Dolan, Moré (2002), Benchmarking optimization software with performance profiles, Math. Program. 91.
    """
    times = np.array(
        [
            (
                record["ours"]["cpu_seconds"] if solved(record) else np.inf,
                record["peer"]["cpu_seconds"] if peer_solved(record) else np.inf,
            )
            for record in records
        ]
    ).reshape(-1, 2)
    times = times[np.isfinite(times).any(axis=1)]
    over = times / times.min(axis=1, keepdims=True) if len(times) else times
    shares = [(over <= factor * (1 + 1e-12)).mean(axis=0) if len(over) else (0.0, 0.0) for factor in FACTORS]
    ours, theirs = zip(*shares, strict=True)
    return {
        "problems": len(times),
        "factors": list(FACTORS),
        "ours": [float(v) for v in ours],
        "libsvm": [float(v) for v in theirs],
    }


def _core_share(records: Sequence[Record]) -> float | None:
    """Share of a core that our fits had, median: below 1 the machine was busy with something else."""
    long = [r["ours"] for r in records if r["ours"]["seconds"] > LONG_SECONDS]
    return float(np.median([one["cpu_seconds"] / one["seconds"] for one in long])) if long else None


def _worst(records: Sequence[Record], keep: int = 10) -> list[Record]:
    """The certificates furthest from the truth, of the answers that say they converged."""
    said = [r for r in records if r["truth"] and r["ours"]["status"] == "converged"]
    said.sort(key=lambda r: r["ours"]["claims"]["kkt_gap"] - r["truth"]["kkt_gap"])
    return [
        {"case": r["case"], "n": r["n"], "says": r["ours"]["claims"]["kkt_gap"], "is": r["truth"]["kkt_gap"]}
        for r in said[:keep]
    ]
