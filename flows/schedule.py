"""A config as a Prefect deployment: served by this process, run by cron, one run at a time."""

from flows.server import quiet_environment, user_server
from svmcore.errors import InputError

__all__ = ["serve"]


def serve(config: str, name: str, cron: str) -> None:
    """Serve until Ctrl-C; runs that would overlap wait.

    Raises
    ------
    InputError
        Without a Prefect server that outlives this process, or with a cron expression that is none.
    """
    from pathlib import Path

    quiet_environment()
    if not user_server():
        raise InputError(
            "scheduled runs need a Prefect server that stays: run `prefect server start` and set "
            "PREFECT_API_URL=http://127.0.0.1:4200/api"
        )
    _check_cron(cron)
    from flows.flow import marginflow

    marginflow.serve(name=name, cron=cron, limit=1, parameters={"config": str(Path(config).absolute())})


def _check_cron(cron: str) -> None:
    from prefect.server.schemas.schedules import CronSchedule

    try:
        CronSchedule(cron=cron)
    except ValueError:
        raise InputError(f"--cron {cron!r} is no cron expression; give five fields such as '0 2 * * *'") from None
