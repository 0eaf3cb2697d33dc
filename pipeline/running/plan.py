"""What a run will take, told or refused before it: reads the rows into the store's cache, where the run finds them."""

from typing import Any

from pipeline.compute.progress import Progress, silent
from pipeline.compute.workers import InlineWorkers
from pipeline.config.schema import Experiment
from pipeline.layout.forecast import forecast
from pipeline.running.batch import lay_out
from pipeline.running.clock import Clock
from pipeline.running.session import Session, check_inputs

__all__ = ["plan_of"]


def plan_of(exp: Experiment, store: str | None = None, progress: Progress | None = None) -> dict[str, Any]:
    """Bytes and seconds of a run; reads the source into the store's cache, where the run finds it."""
    opened = check_inputs(exp, store)
    try:
        with opened.draft() as folder:
            session = Session(exp, opened, folder, InlineWorkers(), Clock(), progress or silent)
            batch = lay_out(session)
            return forecast(session.exp, session.root, batch.parts)
    finally:
        opened.tidy()
