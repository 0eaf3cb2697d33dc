"""The program `marginflow`: what its commands share, arguments, options and exit codes."""

import sys
import time
from typing import Annotated, Any

import psutil
import typer
from typer.core import TyperGroup

__all__ = [
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "NOT_PROMOTED",
    "REFUSED",
    "STARTED",
    "TERMINATED",
    "Config",
    "Json",
    "ModelPath",
    "Set",
    "StoreUrl",
    "app",
]

# when this process began, before Python and its imports
STARTED = time.monotonic() - max(0.0, time.time() - psutil.Process().create_time())
DONE, FAILED, REFUSED, NOT_PROMOTED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143

ORDER = (
    *("init", "run", "plan", "schedule", "predict", "verify", "export", "sign"),
    *("runs", "compare", "report", "index", "promote", "aliases", "prune"),
    *("config", "schema", "warm"),
)


class _InOrder(TyperGroup):
    """Commands as a user meets them, whatever file they are in."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=ORDER.index)


app = typer.Typer(
    name="marginflow",
    cls=_InOrder,
    help="Exact, certified kernel SVMs in batches, from one YAML file.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Config = Annotated[str, typer.Argument(metavar="CONFIG", help="YAML file that declares the experiment.")]
ModelPath = Annotated[
    str, typer.Argument(metavar="MODEL", help="A run (folder or s3:// URL), its model.zarr, or STORE/NAME@ALIAS.")
]
Set = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. kernel.gamma=0.1.")]
StoreUrl = Annotated[str | None, typer.Option("--store", metavar="URL", help="Runs: a folder or s3://bucket/prefix.")]
Json = Annotated[bool, typer.Option("--json", help="Exactly one JSON object on stdout.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"marginflow {version('marginflow')}\n")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Exact, certified kernel SVMs in batches, from one YAML file."""
