"""A Prefect server for one command, over the database of PREFECT_HOME, that never outlives the command.

Prefect starts such a server too, but only once it is itself imported, and a `kill -9` leaves it behind. This one
starts at once, so that it comes up while the cluster does, and ends when the pipe to its parent closes. A server that
the user has set (PREFECT_API_URL, or the active profile) is used instead.
"""

import contextlib
import http.client
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

__all__ = [
    "QUIET",
    "PrivateServer",
    "announce_service",
    "end_with_service",
    "kept_server",
    "local_server",
    "quiet_environment",
    "start_seconds",
    "user_server",
]

QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_CLI_PROMPT": "false",
}
ALONE = {  # of the server that serves one run
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
}
AUTH, CLIENT_AUTH = "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"
START_SECONDS = 120.0  # of a server that a service cannot do without
RUN_SECONDS = 30.0  # of one that only watches a run
RUN_SETTING = "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"
USUAL_PORT = 4200
SERVICE = "MARGINFLOW_SERVICE"
GRACE_SECONDS = 30.0
CLOSE_SECONDS = 1.0


def quiet_environment() -> None:
    """Set what keeps Prefect offline and quiet, where the user has set nothing; before prefect is imported."""
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)


def announce_service() -> None:
    """Let the processes of runs know that they are this one's."""
    os.environ[SERVICE] = str(os.getpid())


def end_with_service() -> None:
    """Stop this run, as by a SIGTERM, when the service that started it has gone without a word (`kill -9`)."""
    service = int(os.environ.get(SERVICE, 0))
    if os.getppid() != service:  # a worker of a pool: its runs may outlive it
        return

    def watch() -> None:
        while os.getppid() == service:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def user_server() -> bool:
    """Whether the user has named a server, in the environment or in the active profile of PREFECT_HOME."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    try:
        profiles = tomllib.loads((home / "profiles.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return False
    active = os.environ.get("PREFECT_PROFILE") or profiles.get("active")
    return "PREFECT_API_URL" in profiles.get("profiles", {}).get(active, {})


def start_seconds() -> float:
    """How long a server that only watches a run may take to come up: Prefect's own setting, or half a minute."""
    try:
        return float(os.environ.get(RUN_SETTING, RUN_SECONDS))
    except ValueError:
        return RUN_SECONDS


def local_server() -> AbstractContextManager["PrivateServer | None"]:
    """Start a server and point PREFECT_API_URL at it; it ends with this block. None where the user has one."""
    return _unless_there_is_one(ALONE)


def kept_server() -> AbstractContextManager["PrivateServer | None"]:
    """As `local_server`, but a whole one, with schedules and pages, on the usual port if that is free."""
    return _unless_there_is_one({}, USUAL_PORT)


@contextlib.contextmanager
def _unless_there_is_one(extra: dict[str, str], port: int = 0) -> Iterator["PrivateServer | None"]:
    quiet_environment()
    if user_server():
        yield None
        return
    if extra is ALONE:  # other users of this machine reach its port too
        extra = extra | {AUTH: f"marginflow:{secrets.token_urlsafe(32)}"}
    with _started(extra, port) as server:
        yield server


@contextlib.contextmanager
def _started(extra: dict[str, str], port: int = 0) -> Iterator["PrivateServer"]:
    with socket.socket() as listener:  # handed to the server: no other process can take the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        server = PrivateServer(listener, extra)
    ours = {"PREFECT_API_URL": f"{server.url}/api"} | ({CLIENT_AUTH: extra[AUTH]} if AUTH in extra else {})
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield server
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
        server.close()


class PrivateServer:
    """The child process: whether it answers, has ended, or takes too long."""

    def __init__(self, listener: socket.socket, extra: dict[str, str]) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flows.server", str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("MARGINFLOW_DEBUG") else subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # Ctrl-C is for the run, which still has to tell the server how it ended
            env=os.environ | extra,
        )

    def answers(self) -> bool:
        """Whether it is up."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/health", timeout=1):
                return True
        except (OSError, http.client.HTTPException):
            return False

    def ended(self) -> bool:
        """Whether its process is no more."""
        return self.process.poll() is not None

    def late(self, seconds: float) -> str:
        """Why it is not waited for any more, if it has not answered; empty as long as it may still come up."""
        if self.ended():
            return f"its server ended at the start with code {self.process.returncode}"
        return f"its server did not start within {seconds:.0f} s" if self._age() > seconds else ""

    def _age(self) -> float:
        return time.monotonic() - self.started

    def wait(self) -> None:
        """Block until the server answers, for those who cannot do without."""
        while not self.answers():
            if why := self.late(START_SECONDS):
                raise RuntimeError(f"Prefect cannot serve a schedule: {why}; MARGINFLOW_DEBUG=1 shows what it says")
            time.sleep(0.05)

    def close(self) -> None:
        """End the server; it has nothing to save."""
        self.process.terminate()
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _serve(descriptor: int) -> None:
    """Serve on an open socket until the parent's end of stdin closes."""

    def follow_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=follow_parent, daemon=True).start()
    import uvicorn

    uvicorn.run("prefect.server.api.server:create_app", factory=True, fd=descriptor, log_level="error", lifespan="on")


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
