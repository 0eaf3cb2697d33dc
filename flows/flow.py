"""The Prefect flow: the stages of a run (`pipeline.running`) as tasks, and nothing else.

Import it only after the config and its files were checked: prefect takes a second. Everything runs the same without it
(`--no-prefect`).
"""

import contextvars
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.events.worker import EventsWorker
from prefect.exceptions import CancelledRun, TerminationSignal
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Cancelled

from flows.server import end_with_service
from pipeline.compute.progress import Progress
from pipeline.compute.workers import ClusterLost
from pipeline.config.load import load_experiment
from pipeline.config.redact import check_parameters, redacted_override
from pipeline.running.clock import Clock
from pipeline.running.run import execute
from svmcore.errors import SVMError

__all__ = ["marginflow", "run_flow"]

RETRIES = 2
DRAIN_SECONDS = 5.0
_progress: contextvars.ContextVar[Progress | None] = contextvars.ContextVar("progress", default=None)
_stopped: contextvars.ContextVar[BaseException | None] = contextvars.ContextVar("stopped", default=None)
_given: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("given", default=())
_clock: contextvars.ContextVar[Clock | None] = contextvars.ContextVar("clock", default=None)


def _worth_another_try(task: Any, task_run: Any, state: Any) -> bool:
    """Whether the machinery failed, and not the input or the code."""
    try:
        state.result()
    except (ClusterLost, OSError) as error:
        return not isinstance(error, SVMError)
    except BaseException:
        return False
    return False


def _as_task(name: str, stage: Callable[..., Any], *args: Any) -> Any:
    """Run a stage as a Prefect task. Arguments stay out of its sight: the session holds open workers."""

    @task(
        name=name,
        retries=RETRIES,
        retry_delay_seconds=1,
        retry_condition_fn=_worth_another_try,
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    def run_stage() -> Any:
        return stage(*args)

    return run_stage()


@flow(name="marginflow", persist_result=False, validate_parameters=False)
def marginflow(config: Any, overrides: Any = (), store: str | None = None) -> Any:
    """Train what a config declares and publish it; returns the metrics."""
    return _train(config, overrides, store)


def _train(config: Any, overrides: Any, store: str | None) -> Any:
    """Body of the flow; apart from it, because a scheduler pickles a flow with all that it names."""
    served = _clock.get() is None
    if served:
        _hush()
        end_with_service()
    try:
        if served:
            check_parameters(config, tuple(overrides))
        exp = load_experiment(config, _given.get() or tuple(overrides))
        record = execute(exp, store, _progress.get(), step=_as_task, clock=_clock.get())
    except (KeyboardInterrupt, SystemExit, TerminationSignal) as error:  # Prefect would take it for a crash
        _stopped.set(error)
        return Cancelled(message="stopped by a signal; what is finished is kept, the next run goes on from there")
    except Exception as error:
        if served:  # nobody else tells it in one line
            sys.stderr.write(f"marginflow: {config}: {type(error).__name__}: {' '.join(str(error).split())}\n")
        raise
    _leave_artifacts(record)
    return record


CERTIFICATE = ("label", "status", "n_support", "n_iter", "primal", "dual", "relative_gap", "kkt_gap")
SCORES = ("mean_score", "std_score", "n_support", "status", "kkt_gap")


def _leave_artifacts(record: dict[str, Any]) -> None:
    """Leaderboard and certificates as tables and a link to the report, in Prefect's user interface."""
    run = record["run"]
    points = [point["params"] | {key: point[key] for key in SCORES} for point in record.get("points", [])]
    _table("leaderboard", f"Leaderboard of {run}, best first", points)
    _table(
        "certificates", f"Certificates of {run}", [{key: e[key] for key in CERTIFICATE} for e in record["per_class"]]
    )
    report = f"{run}/report.html" if "://" in run else Path(run, "report.html").as_uri()
    create_link_artifact(link=report, key="report", link_text="report.html")


def _table(key: str, description: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        table = [{name: str(value) for name, value in row.items()} for row in rows]
        create_table_artifact(table=table, key=key, description=description)


def run_flow(
    config: Any,
    overrides: Any = (),
    store: str | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    alone: bool = False,
) -> dict[str, Any]:
    """Run the flow in this process; errors come out as they are, and are not printed on the way.

    `alone` says that the server serves this run only: nobody listens for heartbeats, and to end theirs costs a second.
    """
    _hush()
    _progress.set(progress)
    _clock.set(clock)
    _given.set(tuple(overrides))  # Prefect keeps the parameters of a flow
    try:
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None} if alone else {}):
            return marginflow(config, [redacted_override(text) for text in overrides], store)
    except CancelledRun:
        raise _stopped.get() or SystemExit(143) from None
    finally:
        for worker in (EventsWorker, APILogWorker):  # while the server is there to take what is left
            worker.drain_all(timeout=DRAIN_SECONDS)


class _NoFailures(logging.Filter):
    """Failures go to the server's log; on the terminal the command line tells them, in one line.

    What the end of a run still has to send is nobody's business: it is waited for.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return not (record.exc_info or "Finished in state" in message or message.startswith("Still processing items"))


def _hush() -> None:
    if os.environ.get("MARGINFLOW_DEBUG"):
        return
    for name in [None, "prefect", *(n for n in logging.root.manager.loggerDict if n.startswith("prefect"))]:
        for handler in logging.getLogger(name).handlers:
            if "Console" in type(handler).__name__ or type(handler) is logging.StreamHandler:
                handler.addFilter(_NoFailures())
