"""The process that tells Prefect of a run: `Witness` writes lines of JSON to its stdin, and its end is the run's end.

It starts a server if the user has none. What cannot be told is kept and tried again: a server may restart. Nobody
waits for any of it but the end of the run, and that for some seconds only.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

from flows.server import PrivateServer, local_server, start_seconds
from flows.witness import CLOSE_SECONDS

__all__ = ["main"]

REQUEST_SECONDS = 3.0
HICCUP_SECONDS = 2.0  # a failure that lasts less is not told
PAUSE_SECONDS = (0.25, 10.0)  # between two trials, doubled each time
GONE = {"event": "end", "state": "crashed", "message": "the process of the run has gone without a word"}
PENDING = {"type": "PENDING", "name": "Pending"}
NAMES = {"retrying": ("SCHEDULED", "AwaitingRetry")}


class Lost(Exception):
    """Prefect cannot be told any more."""


def main() -> int:
    """Tell Prefect of a run until it ends; says on stdout how that goes."""
    os.environ["PREFECT_CLIENT_MAX_RETRIES"] = "0"  # we know better when to try again, and when to stop
    events = _Events()
    try:
        with local_server() as server:
            _told(events, server)
        _say(done=True)
    except Exception as error:
        _say(lost=str(error) if isinstance(error, Lost) else f"{type(error).__name__}: {error}")
        return 1
    return 0


def _say(**words: Any) -> None:
    with contextlib.suppress(OSError):  # the run has gone
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()


def _told(events: "_Events", server: PrivateServer | None) -> None:
    """Tell every event, each as often as it takes."""
    from prefect.client.orchestration import get_client

    if server is not None and not _up(events, server):
        return
    with get_client(sync_client=True, httpx_settings={"timeout": REQUEST_SECONDS}) as client:
        page = _Page(client)
        _say(seen=page.url)
        for event in events.each(server):
            _insist(page, event, events, server)


def _up(events: "_Events", server: PrivateServer) -> bool:
    """Wait for our own server; False if the run was stopped before it came up, and nobody waits for a page of it."""
    while not server.answers():
        if why := server.late(start_seconds()):
            raise Lost(why)
        if events.closing() and not events.finished():
            return False
        time.sleep(0.05)
    return True


def _insist(page: "_Page", event: dict[str, Any], events: "_Events", server: PrivateServer | None) -> None:
    """Tell one event; raises if that is hopeless, or if the run has ended and waits no more."""
    import httpx

    since, pause = time.monotonic(), PAUSE_SECONDS[0]
    while True:
        try:
            page.tell(event)
            return
        except httpx.HTTPError as error:
            status = getattr(getattr(error, "response", None), "status_code", 503)
            why = f"{page.url}: {type(error).__name__}" + (f" {status}" if status != 503 else "")
            if 400 <= status < 500 and status not in (408, 429):
                raise Lost(why) from None
        if server is not None and server.ended():
            raise Lost("its server has ended")
        if time.monotonic() - since > HICCUP_SECONDS:
            if events.ended.is_set():
                raise Lost(why)
            _say(lost=why)
        if events.closing():
            raise Lost(why)
        events.pause(pause)
        pause = min(2 * pause, PAUSE_SECONDS[1])


class _Events:
    """What the run tells, in its order; a thread reads it at once, so that the run never waits for us."""

    def __init__(self) -> None:
        self.coming: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.last: dict[str, Any] = {}
        self.ended = threading.Event()
        self.end = float("inf")
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            self._take(json.loads(line))
        if not self.ended.is_set():
            self._take(GONE)

    def _take(self, event: dict[str, Any]) -> None:
        self.coming.put(event)
        if event["event"] == "end":
            self.last, self.end = event, time.monotonic() + CLOSE_SECONDS
            self.ended.set()

    def closing(self) -> bool:
        """Whether the run has ended and waits no more."""
        return time.monotonic() > self.end

    def finished(self) -> bool:
        """Whether the run has ended by itself: then our server may still come up."""
        return self.last.get("state") in ("completed", "failed")

    def pause(self, seconds: float) -> None:
        """Wait, but not past the end of the run."""
        if self.ended.is_set():
            time.sleep(min(seconds, 0.25))
        else:
            self.ended.wait(seconds)

    def each(self, server: PrivateServer | None) -> Iterator[dict[str, Any]]:
        """Yield the events up to the last one; the time of the end is what is left from now on."""
        if self.ended.is_set():  # we, or our server, have come up after the end
            self.end = time.monotonic() + CLOSE_SECONDS
        while True:
            try:
                event = self.coming.get(timeout=1.0)
            except queue.Empty:
                if server is not None and server.ended():
                    raise Lost("its server has ended") from None
                continue
            yield event
            if event["event"] == "end":
                return


class _Page:
    """The flow run and its task runs at Prefect. Keys are ours: what was told twice is there once."""

    def __init__(self, client: Any) -> None:
        self.client, self.url = client, str(client.api_url)
        self.key = str(uuid.uuid4())
        self.flow_run: str | None = None
        self.ours = True
        self.stages: dict[str, str] = {}
        self.n_artifacts = 0
        self.bar: str | None = None

    def tell(self, event: dict[str, Any]) -> None:
        """Tell one event."""
        getattr(self, f"_{event['event']}")(event)

    def _begin(self, event: dict[str, Any]) -> None:
        self.flow_run, self.ours = event["flow_run"], event["flow_run"] is None
        if self.ours:
            flow = str(self.client.create_flow_from_name("marginflow"))
            run = {"flow_id": flow, "parameters": event["parameters"], "idempotency_key": self.key, "state": PENDING}
            self.flow_run = self._post("/flow_runs/", run)["id"]
            self.client.set_flow_run_state(self.flow_run, _state("running"), force=True)

    def _stage(self, event: dict[str, Any]) -> None:
        name = event["name"]
        if name not in self.stages:
            run = {"name": name, "task_key": f"marginflow.{name}", "dynamic_key": "0", "state": PENDING}
            self.stages[name] = self._post("/task_runs/", run | {"flow_run_id": self.flow_run})["id"]
        state = _state(event["state"], event["message"])
        self.client.set_task_run_state(uuid.UUID(self.stages[name]), state, force=True)

    def _progress(self, event: dict[str, Any]) -> None:
        bar = {"data": event["percent"], "description": event["stage"]}
        if self.bar is None:
            body = bar | {"key": "progress", "type": "progress", "flow_run_id": self.flow_run}
            self.bar = self._post("/artifacts/", body)["id"]
        else:
            self.client.request("PATCH", f"/artifacts/{self.bar}", json=bar)

    def _end(self, event: dict[str, Any]) -> None:
        if "name" in event:
            shown = {"name": event["name"], "tags": event["tags"]}
            self.client.request("PATCH", f"/flow_runs/{self.flow_run}", json=shown)
        for artifact in event.get("artifacts", [])[self.n_artifacts :]:
            self._post("/artifacts/", artifact | {"flow_run_id": self.flow_run})
            self.n_artifacts += 1
        if self.ours:
            self.client.set_flow_run_state(self.flow_run, _state(event["state"], event["message"]), force=True)

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.request("POST", path, json=body).json()
        return answer


def _state(state: str, message: str = "") -> Any:
    from prefect.client.schemas.objects import State

    kind, name = NAMES.get(state, (state.upper(), state.capitalize()))
    return State(type=kind, name=name, message=message or None)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads of Prefect's client have nothing to say any more
