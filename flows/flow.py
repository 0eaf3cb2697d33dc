"""The Prefect flow of a deployment: a run as `marginflow run` does it, and what its end means to Prefect.

Only what a schedule or a worker starts comes through here. The stages are told to Prefect from the side
(`flows.witness`); its engine sets the state of the flow run, and sees nothing else.
"""

import logging
import os
import sys
from typing import Any

from prefect import flow
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled, Failed

from flows.server import end_with_service
from flows.stops import on_dropped
from flows.tracking import check_tracker, log_run
from flows.witness import Witness, described, refusal
from pipeline.compute.progress import silent
from pipeline.config.load import load_experiment
from pipeline.config.redact import check_parameters
from pipeline.running.run import execute
from pipeline.running.session import check_inputs

__all__ = ["marginflow"]


@flow(name="marginflow", persist_result=False, validate_parameters=False)
def marginflow(
    config: str | dict[str, Any],
    overrides: list[str] | None = None,
    store: str | None = None,
    log_to: str | None = None,
) -> Any:
    """Train what a config declares and publish it; returns the metrics, or a failed state where its gate says no.

    Parameters
    ----------
    config
        Path of a YAML file, or what it would declare.
    overrides
        Texts KEY=VALUE that win over it.
    store
        Folder or s3:// URL of the runs; default the config's.
    log_to
        "mlflow", to log the run there too.
    """
    return _train(config, overrides or (), store, log_to)


def _train(config: Any, overrides: Any, store: str | None, log_to: str | None = None) -> Any:
    """Body of the flow; apart from it, because a scheduler pickles a flow with all that it names."""
    _hush()
    end_with_service()
    try:
        with Witness({}, flow_run=flow_run.id) as witness:
            check_parameters(config, tuple(overrides))
            exp = load_experiment(config, tuple(overrides))
            check_tracker(log_to)
            record = execute(exp, check_inputs(exp, store), witness.watching(silent), witness.tell)
            witness.published(record)
            if log_to:
                log_run(record)
    except (KeyboardInterrupt, SystemExit, TerminationSignal) as error:  # Prefect would take it for a crash
        return Cancelled(message=f"{described(error)[1]}, the next run goes on from there")
    except Exception as error:  # nobody else tells it in one line
        sys.stderr.write(f"marginflow: {config}: {described(error)[1]}\n")
        raise
    return Failed(message=refusal(record)) if refusal(record) else record


class _NoFailures(logging.Filter):
    """Failures go to the server's log; on the terminal they are told in one line.

    What the end of a run still has to send is nobody's business: it is waited for.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return not (record.exc_info or "Finished in state" in message or message.startswith("Still processing items"))


def _hush() -> None:
    if os.environ.get("MARGINFLOW_DEBUG"):
        return
    sys.unraisablehook = on_dropped
    for name in [None, "prefect", *(n for n in logging.root.manager.loggerDict if n.startswith("prefect"))]:
        for handler in logging.getLogger(name).handlers:
            if "Console" in type(handler).__name__ or type(handler) is logging.StreamHandler:
                handler.addFilter(_NoFailures())
