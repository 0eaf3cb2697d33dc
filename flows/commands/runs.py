"""Commands on the runs of a store: what ran, and which of them has a name."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.commands.app import Json, StoreUrl, app
from flows.commands.printed import aliases_text, put, runs_table

__all__ = ["aliases", "promote", "runs"]


@app.command()
def runs(store: StoreUrl = None, json_: Json = False) -> None:
    """What ran, best first."""
    from pipeline.storage.runs import open_store

    here = store or "runs"
    nothing_yet = store is None and not Path(here).exists()
    put({"runs": [] if nothing_yet else open_store(here, write=False).runs()}, json_, runs_table)


@app.command()
def promote(
    run: Annotated[str, typer.Argument(metavar="RUN", help="STORE/NAME/RUN_ID, or STORE/NAME@ALIAS.")],
    alias: Annotated[str, typer.Option("--as", metavar="ALIAS", help="Which name it gets.")] = "champion",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="For the log.")] = "",
) -> None:
    """Let an alias name a run: STORE/NAME@champion. To roll back, promote the one before."""
    from pipeline.registry.aliases import promote as move
    from pipeline.registry.aliases import run_at

    store, key = run_at(run)
    done = move(store, key, alias, why)
    before = f" (before: {done.before})" if done.before else ""
    sys.stdout.write(f"{store.url}/{done.name}@{alias}: {done.run}{before}\n")


@app.command()
def aliases(store: StoreUrl = None, json_: Json = False) -> None:
    """What every alias names, and who moved it when and why, the last move first."""
    from pipeline.registry.aliases import aliases as logs
    from pipeline.storage.runs import open_store

    here = store or "runs"
    found = {} if store is None and not Path(here).exists() else logs(open_store(here, write=False))
    listed = [
        {"alias": alias, "run": log[-1].run, "log": [dataclasses.asdict(move) for move in reversed(log)]}
        for alias, log in found.items()
    ]
    put({"aliases": listed}, json_, aliases_text)
