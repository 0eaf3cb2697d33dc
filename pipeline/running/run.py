"""One experiment from its config to a published run: ingest -> kernel -> solve -> score -> publish, or a batch."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.compute.progress import Progress
from pipeline.config.load import load_experiment
from pipeline.config.schema import Experiment
from pipeline.running.batch import train_batch
from pipeline.running.clock import Clock
from pipeline.running.plan import forecast_run
from pipeline.running.publish import publish
from pipeline.running.session import Session, check_inputs, open_session
from pipeline.running.stages import Step, ingest, kernel, score, solve
from pipeline.running.steps import Steps, silently
from pipeline.storage.base import Store
from pipeline.storage.cache import evict

__all__ = ["execute", "run", "train"]


def train(session: Session, step: Step) -> dict[str, Any]:
    """All stages in order; `step(name, stage, *args)` runs each."""
    if session.exp.sweep is not None:
        return train_batch(session, step)
    data = step("ingest", ingest, session)
    session.forecast = forecast_run(session, data)
    plan = step("kernel", kernel, session, data)
    solved = step("solve", solve, session, data, plan)
    scored = step("score", score, session, data, plan, solved)
    return step("publish", publish, session, data, plan, solved, scored)


def execute(
    exp: Experiment,
    store: Store,
    progress: Progress | None = None,
    tell: Callable[..., None] = silently,
    clock: Clock | None = None,
) -> dict[str, Any]:
    """Run an experiment whose inputs were checked (`check_inputs` gives the store), and publish it.

    On an error nothing of it is listed, and no empty folder stays behind. `tell` hears of every stage; see `Steps`.
    """
    try:
        with open_session(exp, store, progress, clock) as session:
            record = train(session, Steps(tell))
        evict(store.cache, exp.cache.disk)
        return record
    finally:
        store.tidy()


def run(
    config: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Sequence[str] = (),
    store: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train what a config (a path or a mapping) declares and publish it; returns the metrics, as `run --json` prints.

    Parameters
    ----------
    overrides
        Texts `KEY=VALUE` that win over the file, e.g. `("C=10", "kernel.gamma=0.1")`.
    store
        Folder of the runs; default the config's.
    progress
        Called as `progress(stage, done, total, **info)`.
    """
    exp = load_experiment(config, overrides)
    return execute(exp, check_inputs(exp, store), progress)
