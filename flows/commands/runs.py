"""Commands on the runs of a store: what ran, and which of them has a name."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.commands.app import Json, StoreUrl, app
from flows.commands.printed import aliases_text, comparison, pruned, put, runs_table

__all__ = ["aliases", "compare", "index", "promote", "prune", "runs"]


@app.command()
def runs(
    store: StoreUrl = None,
    name: Annotated[str | None, typer.Option("--name", help="Only runs of this name.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="DAY", help="From this day or time on (UTC).")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="DAY", help="Up to this day or time (UTC).")] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="EXPR", help='Such as "accuracy>0.9"; all must hold.')
    ] = None,
    sort: Annotated[str, typer.Option("--sort", metavar="KEY", help="Largest first; -KEY: smallest first.")] = "score",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many.")] = None,
    json_: Json = False,
) -> None:
    """What ran, best first, with dates and parameters.

    Example: marginflow runs --name digits --since 2026-11-01 --where "accuracy>0.9" --sort date --limit 20
    """
    from pipeline.registry.listing import Query, listed

    opened = _opened(store)
    query = Query(name, since, until, where or (), sort, limit)
    put({"runs": listed(opened, query) if opened else []}, json_, runs_table, "runs_table")


def _opened(store: str | None) -> Any:
    """The store to look at; None where none was given and nothing ran here yet."""
    from pipeline.storage.runs import open_store

    here = store or "runs"
    return None if store is None and not Path(here).exists() else open_store(here, write=False)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="STORE/NAME/RUN_ID or STORE/NAME@ALIAS.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other run.")],
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Write it as a page too, one .html without network.")
    ] = None,
    json_: Json = False,
) -> None:
    """Two runs side by side: config, data, scores, certificates, classes, time.

    Example: marginflow compare runs/digits@champion runs/digits/20261121T101843Z-fa7c5073 --output comparison.html
    """
    if output:
        from pipeline.report.comparison import write_comparison

        found = write_comparison(a, b, output)
    else:
        from pipeline.registry.compare import compare as compared

        found = compared(a, b)
    put(found, json_, comparison)


@app.command()
def prune(
    keep: Annotated[int, typer.Option("--keep", metavar="N", help="How many runs of each name stay, the newest.")],
    store: StoreUrl = None,
    name: Annotated[str | None, typer.Option("--name", help="Only runs of this name.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
    json_: Json = False,
) -> None:
    """Remove old runs; never one that an alias names, or named before.

    Example: marginflow prune --keep 30 --dry-run
    """
    from pipeline.registry.listing import to_prune
    from pipeline.report.index import write_index

    opened = _opened(store)
    gone = to_prune(opened, keep, name) if opened else []
    for key in () if dry_run else gone:
        opened.remove(key)
    if gone and not dry_run:
        write_index(opened)
    put({"removed": gone, "dry_run": dry_run}, json_, pruned)


@app.command()
def index(store: StoreUrl = None) -> None:
    """Write index.html of a store again: trends, failed gates, champions, links.

    Example: marginflow index --store s3://lab/runs
    """
    from pipeline.report.index import write_index
    from pipeline.storage.runs import open_store

    sys.stdout.write(f"{write_index(open_store(store or 'runs', write=False))}\n")


@app.command()
def promote(
    run: Annotated[str, typer.Argument(metavar="RUN", help="STORE/NAME/RUN_ID, or STORE/NAME@ALIAS.")],
    alias: Annotated[str, typer.Option("--as", metavar="ALIAS", help="Which name it gets.")] = "champion",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="For the log.")] = "",
) -> None:
    """Let an alias name a run: STORE/NAME@champion. To roll back, promote the one before.

    Example: marginflow promote runs/digits/20261120T101801Z-7ed939c4 --why "rolled back: complaints"
    """
    from pipeline.registry.aliases import promote as move
    from pipeline.registry.aliases import run_at

    store, key = run_at(run)
    done = move(store, key, alias, why)
    before = f" (before: {done.before})" if done.before else ""
    sys.stdout.write(f"{store.url}/{done.name}@{alias}: {done.run}{before}\n")


@app.command()
def aliases(store: StoreUrl = None, json_: Json = False) -> None:
    """What every alias names, and who moved it when and why, the last move first.

    Example: marginflow aliases --store runs
    """
    from pipeline.registry.aliases import aliases as logs

    opened = _opened(store)
    found = logs(opened) if opened else {}
    listed = [
        {"alias": alias, "run": log[-1].run, "log": [dataclasses.asdict(move) for move in reversed(log)]}
        for alias, log in found.items()
    ]
    put({"aliases": listed}, json_, aliases_text)
