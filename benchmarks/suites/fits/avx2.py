"""Single fits where all solvers are held to AVX2, as older servers and most laptops have it.

Our compiled code and both BLAS are told so by their environment. MKL inside scikit-learn-intelex listens on Intel's
processors alone, and oneDAL's own code is not to be told: the peer may be faster here than on such a machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import cases
from benchmarks.contest import machine
from benchmarks.contest.measure import Terms, contest
from benchmarks.page import tables
from benchmarks.page.claims import Cases, of, ratio
from benchmarks.results import Record
from benchmarks.suites.fits.contests import FAST

LIMITS = {"NUMBA_CPU_NAME": "haswell", "OPENBLAS_CORETYPE": "Haswell", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
PEER = FAST[1].peer


def run(data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> dict[str, list[Record]]:
    """Each short single fit."""
    chosen = {name: case for name, case in cases.SINGLE.items() if not only or name in only}
    terms = Terms(repeats=repeats)
    with _environment(LIMITS):  # processes that are started in it have it
        return {
            name: contest(case, cases.table_of(case, data, rows), FAST, terms, machine.measure_rates)
            for name, case in chosen.items()
        }


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


HEADER = ("case", "marginflow, AVX2", f"{PEER}, AVX2", "ours faster by", "marginflow, all", "faster by, all")


def row(records: Sequence[Record], whole: Sequence[Record]) -> tuple[str, ...]:
    """A case's cells under HEADER; `whole` are its records with all that the processor has."""
    cells = []
    for some in (records, whole):
        ours, theirs, faster = of(some, "marginflow"), of(some, PEER), ratio(some, PEER)
        seconds = [tables.seconds(each["median_seconds"] if each else None) for each in (ours, theirs)]
        cells += [*seconds, "–" if faster is None else f"{faster:.1f}×"]
    return (records[0]["title"], *cells[:3], cells[3], cells[5])


def table(found: Cases, single: Cases) -> list[tuple[str, ...]]:
    """All rows under HEADER."""
    return [row(records, single.get(name, [])) for name, records in found.items()]


def show(name: str, records: list[Record]) -> None:
    """Print one case to the terminal."""
    tables.show(records)
