"""A config as a Prefect deployment: served by this process, run by cron, one run at a time.

A run is a process of its own, so that a run which dies takes nothing with it.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flows.server import announce_service, kept_server
from svmcore.errors import InputError

__all__ = ["local_timezone", "serve"]

STOPS = (signal.SIGINT, signal.SIGTERM)


def serve(
    config: str,
    name: str,
    cron: str,
    overrides: Sequence[str],
    store: str | None,
    tell: Callable[[str], None],
    log_to: str | None = None,
) -> int:
    """Serve until Ctrl-C or SIGTERM; runs that would overlap wait. Returns the number of the signal.

    The config is read again at each run. A run under way when the service ends is cancelled; what it finished is kept.

    Raises
    ------
    InputError
        If `cron` is no cron expression.
    """
    parameters: dict[str, Any] = {"config": str(Path(config).absolute()), "overrides": list(overrides)}
    parameters["log_to"] = log_to
    parameters["store"] = store if store is None or "://" in store else str(Path(store).absolute())
    announce_service()
    with kept_server() as server:
        from prefect.flows import EntrypointType
        from prefect.runner import Runner
        from prefect.settings import PREFECT_API_URL

        from flows.flow import marginflow

        schedule, zone = _schedule(cron)
        if server is not None:
            server.wait()
        url = str(PREFECT_API_URL.value()).removesuffix("/api")
        runner = Runner(name=name, limit=1)
        runner.add_flow(
            marginflow,
            name=name,
            schedule=schedule,
            paused=False,  # the end of an earlier service has paused it
            parameters=parameters,
            description=f"marginflow schedule {config}",
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
        tell(f"{name}: at {cron!r} ({zone}), one run at a time; runs and their artifacts: {url}")
        tell(f"once, now: PREFECT_API_URL={url}/api prefect deployment run marginflow/{name}")
        return asyncio.run(_until_stopped(runner))


async def _until_stopped(runner: Any) -> int:
    """Run until a signal, which cancels the run under way and waits for its end."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()
    serving = asyncio.create_task(runner.start())
    while not (runner.started or serving.done()):  # it sets a handler of its own at its start
        await asyncio.sleep(0.05)
    for number in STOPS:
        loop.add_signal_handler(number, lambda number=number: stopped.done() or stopped.set_result(number))
    await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        await runner.astop()
    await serving
    return stopped.result() if stopped.done() else 0


def _schedule(cron: str) -> tuple[Any, str]:
    from prefect.schedules import Cron
    from prefect.server.schemas.schedules import CronSchedule

    zone = local_timezone()
    try:
        CronSchedule(cron=cron, timezone=zone)
    except ValueError:
        raise InputError(f"--cron {cron!r} is no cron expression; give five fields such as '0 2 * * *'") from None
    return Cron(cron, timezone=zone), zone


def local_timezone() -> str:
    """Name of this machine's time zone; cron's two in the morning is that of the user."""
    named = os.environ.get("TZ", "").lstrip(":")
    if named and not named.startswith("/"):
        return named
    _, found, name = os.path.realpath(named or "/etc/localtime").partition("/zoneinfo/")
    return name if found else "UTC"
