"""What a run will take, told or refused before it: reads the rows into the store's cache, where the run finds them."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.compute.progress import Progress, silent
from pipeline.compute.workers import InlineWorkers
from pipeline.config.schema import Experiment
from pipeline.layout.forecast import fitting, forecast
from pipeline.layout.parts import Ingested, Part, parts_of
from pipeline.layout.sweep import data_groups, expand
from pipeline.running.clock import Clock
from pipeline.running.session import Session, check_inputs
from pipeline.running.stages import ingest

__all__ = ["check_fits", "forecast_run", "plan_of"]


def plan_of(exp: Experiment, store: str | None = None, progress: Progress | None = None) -> dict[str, Any]:
    """Bytes and seconds of a run; reads the source into the store's cache, where the run finds it."""
    with _laid_out(exp, store, progress, Clock()) as (session, parts):
        return forecast(session.exp, session.root, parts)


def check_fits(exp: Experiment, store: str | None, progress: Progress | None, clock: Clock) -> None:
    """Refuse a run that cannot fit as soon as its rows are read; raises as `forecast` does."""
    with _laid_out(exp, store, progress, clock) as (session, parts):
        fitting(session.exp, session.root, parts)


@contextlib.contextmanager
def _laid_out(
    exp: Experiment, store: str | None, progress: Progress | None, clock: Clock
) -> Iterator[tuple[Session, list[Part]]]:
    """The kernels and problems of a run that may follow; its rows are in the store's cache from here on."""
    opened = check_inputs(exp, store)
    try:
        session = Session(exp, opened, Path(os.devnull), InlineWorkers(), clock, progress or silent)
        parts: list[Part] = []
        for alike in data_groups(expand(exp)):
            own = dataclasses.replace(session, exp=alike[0].exp)
            parts += parts_of(exp, session.root, ingest(own), alike)
        yield session, parts
    finally:
        opened.tidy()


def forecast_run(session: Session, data: Ingested) -> dict[str, Any]:
    """Plan of a run without a sweep; see `forecast`."""
    parts = parts_of(session.exp, session.root, data, expand(session.exp))
    return forecast(session.exp, session.root, parts)
