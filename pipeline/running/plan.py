"""What a run will take, told or refused before it: reads the rows into the store's cache, where the run finds them."""

from typing import Any

from pipeline.compute.progress import Progress, silent
from pipeline.compute.workers import InlineWorkers
from pipeline.config.schema import Experiment
from pipeline.layout.forecast import forecast
from pipeline.running.batch import Batch, lay_out
from pipeline.running.clock import Clock
from pipeline.running.provenance import products
from pipeline.running.session import Session, check_inputs

__all__ = ["foretold", "plan_of"]


def plan_of(
    exp: Experiment,
    store: str | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    workers: int | None = None,
) -> dict[str, Any]:
    """Bytes and seconds of a run; reads the source into the store's cache, where the run finds it.

    `clock` began with the process that plans: a run will need as long to get so far. `workers` plans for so many, each
    as fast as a core of this machine.
    """
    opened = check_inputs(exp, store)
    try:
        with opened.draft() as folder:
            session = Session(exp, opened, folder, InlineWorkers(), clock or Clock(), progress or silent)
            lay_out(session)
            reading = session.clock.seconds()["ingest"]
            return foretold(session, lay_out(session), reading, workers)
    finally:
        opened.tidy()


def foretold(session: Session, batch: Batch, reading: float = 0.0, workers: int | None = None) -> dict[str, Any]:
    """The forecast of a batch; start and ingest as the clock has measured them, less `reading` of a source."""
    found = forecast(session.exp, session.root, batch.parts, workers)
    spent, seconds = session.clock.seconds(), found["seconds"]
    stages = {"start": seconds["start"] + spent["start"], "ingest": spent["ingest"] - reading}
    stages |= {name: value for name, value in seconds.items() if name not in ("start", "total")}
    return found | {
        "products": products(),
        "seconds": {name: round(value, 3) for name, value in (stages | {"total": sum(stages.values())}).items()},
    }
