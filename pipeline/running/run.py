"""One experiment from its config to a published run: a batch is laid out, forecast, solved, scored and published."""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.compute.progress import Progress
from pipeline.config.load import load_experiment
from pipeline.config.schema import Experiment
from pipeline.config.sections import Cluster
from pipeline.report.index import write_index
from pipeline.running.batch import Batch, Counts, lay_out, solve
from pipeline.running.clock import Clock
from pipeline.running.plan import foretold
from pipeline.running.publish import publish
from pipeline.running.score import score, solve_and_prove
from pipeline.running.session import NO_DASK, Dask, Session, check_inputs, open_session
from pipeline.running.steps import Steps, silently
from pipeline.running.sweep import choice_of_C, rank, refit
from pipeline.storage.base import Store
from pipeline.storage.cache import evict
from pipeline.storage.leases import again_if_lost

__all__ = ["cluster_of", "execute", "run", "train"]


def cluster_of(client: Any) -> Cluster:
    """The section of a config that says where a client's workers are, with whatever safety its user chose."""
    return Cluster(kind="address", address=client.scheduler.address, insecure=True)


def train(session: Session, step: Steps) -> dict[str, Any]:
    """All steps in order; a run without a sweep is a batch of one point."""
    batch = step("ingest", lay_out, session)
    session.forecast = foretold(session, batch)
    if session.exp.sweep is not None:
        return _train_sweep(session, step, batch)
    batch, counts = step("solve", solve_and_prove, session, batch)
    trained = step("score", score, session, batch)
    session.release()
    return step("publish", publish, session, batch, counts, trained)


def _train_sweep(session: Session, step: Steps, batch: Batch) -> dict[str, Any]:
    """All points, their leaderboard, and the best on all rows."""
    counts = step("solve", solve, session, batch)
    entries = step("score", rank, session, batch)
    chosen = choice_of_C(session, batch, entries)
    trained, more = None, Counts()
    if session.exp.refit is not None:
        trained, more = step("refit", refit, session, batch, entries[0])
    session.release()
    return step("publish", publish, session, batch, counts + more, trained, entries, chosen)


def execute(
    exp: Experiment,
    store: Store,
    progress: Progress | None = None,
    tell: Callable[..., None] = silently,
    clock: Clock | None = None,
    strict: bool = False,
    dask: Dask = NO_DASK,
) -> dict[str, Any]:
    """Run an experiment whose inputs were checked (`check_inputs` gives the store), and publish it.

    On an error nothing of it is listed, and no empty folder stays behind. `tell` hears of every stage; see `Steps`.
    Where the gate of the config says no, or `strict` is set and an answer has not converged, the run is published with
    `gate` saying why, and not promoted.
    """

    def once() -> dict[str, Any]:
        with open_session(exp, store, progress, clock, strict, dask, tell) as session:
            return train(session, Steps(tell))

    try:
        record = again_if_lost(once)
        with contextlib.suppress(OSError):  # the run is there; the next one writes the page again
            write_index(store)
        evict(store.cache, exp.cache.disk)
        return record
    finally:
        store.tidy()


def run(
    config: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Sequence[str] = (),
    store: str | None = None,
    progress: Progress | None = None,
    strict: bool = False,
    client: Any = None,
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
    strict
        Whether a run that has not converged is marked, and not promoted.
    client
        A `distributed.Client` whose workers compute, in place of those of the config's `cluster`; it stays open.
    """
    exp = load_experiment(config, overrides)
    if client is not None:
        exp = exp.model_copy(update={"cluster": cluster_of(client)})
    return execute(exp, check_inputs(exp, store), progress, strict=strict, dask=Dask(client))
