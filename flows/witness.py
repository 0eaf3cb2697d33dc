"""Prefect as a witness of a run: it is told of every stage from the side, and can neither end nor repeat anything.

A process of its own (`flows.scribe`) talks to Prefect. This side writes lines to its pipe on a thread, and waits a few
seconds for it at the end. So a server that is slow, killed or never there costs one line on stderr.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.server import start_seconds, user_server
from pipeline.compute.progress import Progress
from svmcore.errors import SVMError

__all__ = ["CLOSE_SECONDS", "Witness", "described", "refusal"]

CLOSE_SECONDS = 5.0  # for what Prefect has not been told when the run ends
SLACK_SECONDS = 4.0  # for a request that is under way, and the end of the server
CERTIFICATE = ("label", "status", "n_support", "n_iter", "primal", "dual", "relative_gap", "kkt_gap")
PROGRESS_SECONDS = 2.0
SCORES = ("mean_score", "std_score", "n_support", "status", "kkt_gap")


class Witness:
    """Tells Prefect of one run, from the beginning of the block to its end; whatever fails here, the run goes on.

    Parameters
    ----------
    parameters
        Of the flow run, as Prefect shows them.
    flow_run
        Id of the flow run that a deployment has made, whose state its engine sets; None to make one.
    """

    def __init__(self, parameters: dict[str, Any], flow_run: str | None = None) -> None:
        self.started = self.since = time.monotonic()
        self.heard = self.lost = self.done = False
        self.lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.artifacts: list[dict[str, Any]] = []
        self.refused = ""
        self.page: dict[str, Any] = {}
        self.told_progress = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self.process = _scribe()
        except OSError as error:
            self._lose(str(error))
            return
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._read)]
        for thread in self.threads:
            thread.start()
        self.lines.put({"event": "begin", "parameters": parameters, "flow_run": flow_run})

    def __enter__(self) -> "Witness":
        return self

    def tell(self, name: str, state: str, error: BaseException | None = None) -> None:
        """Tell that a stage is "running", "completed", "retrying" or "ended", the last two with an error."""
        message = "" if error is None else described(error)[1]
        state = described(error)[0] if state == "ended" else state
        if state == "completed":
            message = f"{time.monotonic() - self.since:.2f} s"  # Prefect may hear of it much later
        self.since = time.monotonic()
        self.lines.put({"event": "stage", "name": name, "state": state, "message": message})

    def watching(self, progress: Progress) -> Progress:
        """The same progress, of which Prefect's page has a bar too, a few seconds behind."""

        def told(stage: str, done: int, total: int, **info: Any) -> None:
            progress(stage, done, total, **info)
            now = time.monotonic()
            if total and (done == total or now - self.told_progress > PROGRESS_SECONDS):
                self.told_progress = now
                self.lines.put({"event": "progress", "stage": stage, "percent": round(100 * done / total, 1)})

        return told

    def published(self, record: dict[str, Any]) -> None:
        """Remember what Prefect's pages show of a published run."""
        self.artifacts = _artifacts(record)
        self.refused = refusal(record)
        self.page = {"name": _name(record), "tags": _tags(record)}

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        state, message = ("failed", self.refused) if self.refused and error is None else described(error)
        self.lines.put({"event": "end", "state": state, "message": message, "artifacts": self.artifacts, **self.page})
        self.lines.put(None)
        if self.process is None:
            return
        if isinstance(error, SVMError) and not self.heard and not user_server():
            self.lost = True  # a person waits for that error, and nobody for a page of it
            self.process.kill()
        self._wait(self.process)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        starting = 0.0 if self.heard else max(0.0, self.started + start_seconds() - time.monotonic())
        try:
            process.wait(timeout=starting + CLOSE_SECONDS + SLACK_SECONDS)
        except subprocess.TimeoutExpired:
            self._lose("it did not end")
        finally:
            process.kill()
            process.wait()
        for thread in self.threads:
            thread.join(timeout=1.0)

    def _write(self) -> None:
        pipe = self.process.stdin if self.process else None
        assert pipe is not None
        with contextlib.suppress(OSError), pipe:  # a scribe that has gone: its end is told by `_read`
            while (line := self.lines.get()) is not None:
                pipe.write(json.dumps(line, default=str).encode() + b"\n")
                pipe.flush()

    def _read(self) -> None:
        pipe = self.process.stdout if self.process else None
        assert pipe is not None
        with pipe:
            for line in pipe:
                with contextlib.suppress(ValueError, KeyError):
                    found = json.loads(line)
                    self.heard, self.done = self.heard or "seen" in found, self.done or "done" in found
                    self._lose(found["lost"])
        if not self.done:
            self._lose("its client ended")

    def _lose(self, why: str) -> None:
        """One line, once."""
        if not self.lost:
            self.lost = True
            sys.stderr.write(f"marginflow: Prefect lost sight of this run ({why}); the run goes on without it\n")
            sys.stderr.flush()


def _scribe() -> subprocess.Popen[bytes]:
    debug = os.environ.get("MARGINFLOW_DEBUG")
    return subprocess.Popen(
        [sys.executable, "-m", "flows.scribe"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if debug else subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the run; Prefect has still to be told how it ended
    )


def described(error: BaseException | None) -> tuple[str, str]:
    """State of a run or a stage that ended with `error`, and why.

    >>> described(None), described(KeyboardInterrupt()), described(OSError("no"))[0]
    (('completed', ''), ('cancelled', 'stopped by a signal; what is finished is kept'), 'failed')
    """
    if error is None:
        return "completed", ""
    if not isinstance(error, Exception):
        return "cancelled", "stopped by a signal; what is finished is kept"
    return "failed", f"{type(error).__name__}: {' '.join(str(error).split())}"


def refusal(record: dict[str, Any]) -> str:
    """Why a published run was not promoted; "" if nothing spoke against it."""
    from pipeline.registry.gate import described as why_not

    gate = record.get("gate")
    return f"not promoted: {why_not(gate)}" if gate and not gate["passed"] else ""


# --- what Prefect's pages show of a run -----------------------------------------------------------------------------
def _name(record: dict[str, Any]) -> str:
    """A run in a few words: `digits C=10 accuracy=0.98`."""
    config, best = record["config"], record.get("best")
    tried = best["params"] if best else {key: config[key] for key in ("C", "nu", "epsilon") if key in config}
    params = [f"{key}={value}" for key, value in tried.items() if not isinstance(value, dict)]
    score = (record["scores"] or {}).get("test") or (record["scores"] or {}).get("train") or {}
    scored = [f"{key}={value:.4g}" for key, value in score.items() if key == record["scored_by"] and value is not None]
    return " ".join([config["name"], *params, *scored])


def _tags(record: dict[str, Any]) -> list[str]:
    """What runs are filtered by: the program, the experiment, the task, how it ended."""
    gate = {None: [], True: ["gate-passed"], False: ["gate-failed"]}[(record.get("gate") or {}).get("passed")]
    return ["marginflow", record["config"]["name"], record["task"], record["status"], *gate]


def _artifacts(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Leaderboard and certificates as tables, and a link to the report."""
    run = record["run"]
    points = [point["params"] | {key: point[key] for key in SCORES} for point in record.get("points", [])]
    proofs = [{key: entry[key] for key in CERTIFICATE} for entry in record["per_class"]]
    report = f"{run}/report.html" if "://" in run else Path(run, "report.html").as_uri()
    return [
        *_table("leaderboard", f"Leaderboard of {run}, best first", points),
        *_table("certificates", f"Certificates of {run}", proofs),
        {"key": "report", "type": "markdown", "data": f"[report.html]({report})"},
    ]


def _table(key: str, description: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    if not rows:
        return []
    table = json.dumps([{name: str(value) for name, value in row.items()} for row in rows])
    return [{"key": key, "type": "table", "description": description, "data": table}]
