"""Commands on the runs of a store."""

from pathlib import Path

from flows.commands.app import Json, StoreUrl, app
from flows.commands.printed import put, runs_table

__all__ = ["runs"]


@app.command()
def runs(store: StoreUrl = None, json_: Json = False) -> None:
    """What ran, best first."""
    from pipeline.storage.runs import open_store

    here = store or "runs"
    nothing_yet = store is None and not Path(here).exists()
    put({"runs": [] if nothing_yet else open_store(here, write=False).runs()}, json_, runs_table)
