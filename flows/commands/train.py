"""Commands that train: run, plan, schedule, warm."""

from typing import Annotated

import typer

from flows.commands.app import NOT_PROMOTED, STARTED, Config, Json, Set, StoreUrl, app
from flows.commands.printed import plan_text, put, summary, tell

__all__ = ["plan", "run", "schedule", "warm"]

LogTo = Annotated[
    str | None, typer.Option("--log-to", metavar="mlflow", help="Log it there too; MLFLOW_TRACKING_URI says where.")
]


@app.command()
def run(
    config: Config,
    set_: Set = [],  # noqa: B006 -- typer reads it, nobody changes it
    store: StoreUrl = None,
    json_: Json = False,
    no_prefect: Annotated[bool, typer.Option("--no-prefect", help="Run the stages plainly.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all, say what it costs, train nothing.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 3 unless all is certified within its limits.")] = False,
    prove: Annotated[
        float, typer.Option("--prove", metavar="SHARE", help="Solve on until this share of the test labels is proved.")
    ] = 0.0,
    log_to: LogTo = None,
    performance_report: Annotated[
        bool, typer.Option("--performance-report", help="Keep Dask's report of the workers' time with the run.")
    ] = False,
) -> None:
    """Train all that the config declares, and publish it with its certificates; exit 3 if its gate says no.

    Example: marginflow run digits.yaml --set C=10 --set kernel.gamma=0.02 --strict
    """
    from flows.console import progress_display
    from flows.tracking import check_tracker, log_run
    from flows.witness import Witness
    from pipeline.compute.dashboard import check_reportable
    from pipeline.config.load import load_experiment
    from pipeline.config.redact import redacted_override, redacted_text
    from pipeline.registry.gate import described
    from pipeline.running.clock import Clock
    from pipeline.running.plan import plan_of
    from pipeline.running.run import execute
    from pipeline.running.session import Dask, check_inputs

    set_ = [*set_, f"prove={prove}"] if prove else set_
    exp = load_experiment(config, set_)
    check_tracker(log_to)
    if dry_run:
        put(plan_of(exp, store, clock=Clock(STARTED)), json_, plan_text, "plan_table")
        return
    opened, clock, dask = check_inputs(exp, store), Clock(STARTED), Dask(report=performance_report)
    if performance_report:
        check_reportable()
    with progress_display(exp.tol) as progress:
        if no_prefect:
            record = execute(exp, opened, progress, clock=clock, strict=strict, dask=dask)
        else:
            shown = {"config": config, "overrides": [redacted_override(text) for text in set_]}
            with Witness(shown | {"store": store and redacted_text(store)}) as witness:
                record = execute(exp, opened, witness.watching(progress), witness.tell, clock, strict, dask)
                witness.published(record)
    put(record, json_, summary)
    if log_to:
        tell(f"logged to {log_to}: run {log_run(record)}")
    if record["gate"] and not record["gate"]["passed"]:
        tell(f"not promoted: {described(record['gate'])}")
        raise typer.Exit(NOT_PROMOTED)


@app.command()
def plan(
    config: Config,
    set_: Set = [],  # noqa: B006
    json_: Json = False,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Plan for so many workers.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Open what the config of somebody's run names.")] = False,
) -> None:
    """Bytes and seconds, before any work.

    Example: marginflow plan digits.yaml --set data.rows=1000
    """
    from pipeline.config.load import load_experiment
    from pipeline.model.parts import check_own_config
    from pipeline.running.clock import Clock
    from pipeline.running.plan import plan_of

    if not trust:
        check_own_config(config)
    put(plan_of(load_experiment(config, set_), clock=Clock(STARTED), workers=workers), json_, plan_text, "plan_table")


@app.command()
def schedule(
    config: Config,
    cron: Annotated[str, typer.Option("--cron", metavar="EXPR", help='Such as "0 2 * * *", in local time.')],
    set_: Set = [],  # noqa: B006
    store: StoreUrl = None,
    log_to: LogTo = None,
) -> None:
    """Serve the config as a Prefect deployment that runs on a schedule, one run at a time.

    Example: marginflow schedule digits.yaml --cron "0 3 * * *" --log-to mlflow
    """
    from flows.schedule import serve
    from flows.tracking import check_tracker
    from pipeline.config.load import load_experiment
    from pipeline.config.redact import check_parameters
    from pipeline.running.session import check_inputs

    check_parameters(config, set_)
    exp = load_experiment(config, set_)
    check_inputs(exp, store)
    check_tracker(log_to)
    raise SystemExit(128 + serve(config, exp.name, cron, set_, store, tell, log_to))


@app.command()
def warm() -> None:
    """Compile in advance what runs need, for an image or a new machine: the first run then starts as later ones do.

    Example: marginflow warm
    """
    from pipeline.running import warm as parts

    for name in parts.warm():
        tell(f"compiled: {name}")
