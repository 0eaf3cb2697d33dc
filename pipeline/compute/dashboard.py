"""What Dask shows of a run: the address of its dashboard, and its report of how the workers spent their time."""

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from svmcore.errors import InputError

__all__ = ["check_reportable", "dashboard_of", "reported"]

FILE = "performance-report.html"


def dashboard_of(client: Any) -> str | None:
    """Address of the dashboard of a client's scheduler, where it serves one."""
    if "dashboard" not in client.scheduler_info(n_workers=0).get("services", {}) or not _has_bokeh():
        return None
    with contextlib.suppress(KeyError, ValueError, AttributeError):
        return str(client.dashboard_link)
    return None


def check_reportable() -> None:
    """Refuse a report that cannot be drawn, before any work."""
    if not _has_bokeh():
        raise InputError("--performance-report needs bokeh, which draws it; pip install 'marginflow[cluster]'")


def _has_bokeh() -> bool:
    return importlib.util.find_spec("bokeh") is not None


@contextlib.contextmanager
def reported(client: Any, folder: Path) -> Iterator[None]:
    """Dask's performance report of the block in `folder`, whole in one file: it needs no network to be read."""
    from distributed import performance_report

    with client.as_current(), performance_report(filename=str(folder / FILE), mode="inline"):
        yield
