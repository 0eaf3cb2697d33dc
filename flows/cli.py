"""The command line `marginflow`, and the one place where an error becomes an exit code.

0 done, 1 failed on the way, 2 the input is at fault (one line on stderr), 130 / 143 after Ctrl-C / SIGTERM.
Commands import what they need when they run, so `marginflow --help` is quick and prefect comes last.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from svmcore.errors import SVMError

__all__ = ["app", "main"]

STARTED = time.monotonic()
DONE, FAILED, REFUSED, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
STOPPED = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}

app = typer.Typer(
    name="marginflow",
    help="Exact, certified kernel SVMs in batches, from one YAML file.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Config = Annotated[str, typer.Argument(metavar="CONFIG", help="YAML file that declares the experiment.")]
ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="A run's folder or s3:// URL, or its model.zarr.")]
Set = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. kernel.gamma=0.1.")]
StoreUrl = Annotated[str | None, typer.Option("--store", metavar="URL", help="Runs: a folder or s3://bucket/prefix.")]
Json = Annotated[bool, typer.Option("--json", help="Exactly one JSON object on stdout.")]


@app.command()
def run(
    config: Config,
    set_: Set = [],  # noqa: B006 -- typer reads it, nobody changes it
    store: StoreUrl = None,
    json_: Json = False,
    no_prefect: Annotated[bool, typer.Option("--no-prefect", help="Run the stages plainly.")] = False,
) -> None:
    """Train all that the config declares, and publish it with its certificates."""
    from flows.console import progress_display
    from flows.witness import Witness
    from pipeline.config.load import load_experiment
    from pipeline.config.redact import redacted_override, redacted_text
    from pipeline.running.clock import Clock
    from pipeline.running.run import execute
    from pipeline.running.session import check_inputs

    exp = load_experiment(config, set_)
    opened, clock = check_inputs(exp, store), Clock(STARTED)
    with progress_display(exp.tol) as progress:
        if no_prefect:
            record = execute(exp, opened, progress, clock=clock)
        else:
            shown = {"config": config, "overrides": [redacted_override(text) for text in set_]}
            with Witness(shown | {"store": store and redacted_text(store)}) as witness:
                record = execute(exp, opened, progress, witness.tell, clock)
                witness.published(record)
    _print(record, json_, _summary)


@app.command()
def plan(
    config: Config,
    set_: Set = [],  # noqa: B006
    json_: Json = False,
    trust: Annotated[bool, typer.Option("--trust", help="Open what the config of somebody's run names.")] = False,
) -> None:
    """Bytes and seconds, before any work."""
    from pipeline.config.load import load_experiment
    from pipeline.model.stored import check_own_config
    from pipeline.running.plan import plan_of

    if not trust:
        check_own_config(config)
    _print(plan_of(load_experiment(config, set_)), json_, _plan_text)


@app.command()
def predict(
    model: ModelPath,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Rows, with or without labels.")],
    output: Annotated[str | None, typer.Option("--output", metavar="FILE", help=".csv, .parquet or .json.")] = None,
    json_: Json = False,
) -> None:
    """Labels and decision values of a source, or values."""
    from pipeline.model.predict import predict_to_file

    record = predict_to_file(model, source, output if output or json_ else "-")
    if json_:
        _print(record, True, str)
    else:
        _tell(", ".join([f"{record['n']:,} rows", *_scores_text(record)]))
    if record.get("unknown_labels"):
        shown = ", ".join(map(repr, record["unknown_labels"][:10]))
        _tell(f"{record['n_unknown']:,} rows with labels that the training data has not ({shown}) are left out of it")


@app.command()
def verify(
    model: ModelPath,
    source: Annotated[str | None, typer.Option("--source", metavar="URL", help="Its training rows are here.")] = None,
    test: Annotated[str | None, typer.Option("--test", metavar="URL", help="Its test rows are here.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Open what somebody else's model names.")] = False,
    key: Annotated[str | None, typer.Option("--key", metavar="FILE", help="Its signer's public key (PEM).")] = None,
    json_: Json = False,
) -> None:
    """Recompute every certificate from the data, in float64; exit 1 naming what differs."""
    from flows.console import progress_display
    from pipeline.model.verify import verify as recompute

    with progress_display() as progress:
        report = recompute(model, progress, source=source, test=test, trust=trust, key=key)
    _print(report, json_, _verdict)
    if not report["agrees"]:
        for part in report["differences"]:
            _tell(f"{part['part']}: stored {part['stored']}, recomputed {part['recomputed']}")
        raise typer.Exit(FAILED)


@app.command()
def sign(
    model: ModelPath,
    key: Annotated[str, typer.Option("--key", metavar="FILE", help="Private key of an elliptic curve (PEM).")],
) -> None:
    """Sign a model; `verify --key` checks it with the public key."""
    from pipeline.model.signature import sign as write_signature

    sys.stdout.write(f"{write_signature(model, key)}\n")


@app.command()
def runs(store: StoreUrl = None, json_: Json = False) -> None:
    """What ran, best first."""
    from pipeline.storage.runs import open_store

    here = store or "runs"
    nothing_yet = store is None and not Path(here).exists()
    _print({"runs": [] if nothing_yet else open_store(here, write=False).runs()}, json_, _table)


@app.command()
def report(run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or s3:// URL of a run.")]) -> None:
    """Write report.html again."""
    from pipeline.report.page import rewrite_report

    sys.stdout.write(f"{rewrite_report(run)}\n")


@app.command()
def schedule(
    config: Config,
    cron: Annotated[str, typer.Option("--cron", metavar="EXPR", help='Such as "0 2 * * *", in local time.')],
    set_: Set = [],  # noqa: B006
    store: StoreUrl = None,
) -> None:
    """Serve the config as a Prefect deployment that runs on a schedule, one run at a time."""
    from flows.schedule import serve
    from pipeline.config.load import load_experiment
    from pipeline.config.redact import check_parameters
    from pipeline.running.session import check_inputs

    check_parameters(config, set_)
    exp = load_experiment(config, set_)
    check_inputs(exp, store)
    raise SystemExit(128 + serve(config, exp.name, cron, set_, store, _tell))


@app.command()
def export(
    model: ModelPath,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Ending in .libsvm or .onnx.")],
) -> None:
    """Write a model for other programs: LIBSVM's text, or ONNX."""
    from pipeline.model.stored import load_model
    from pipeline.storage.files import check_writable
    from svmcore.export import export_model

    stored = load_model(model)
    check_writable(Path(file).absolute().parent, file)
    for written in export_model(stored.model, file, stored.scaling.shift, stored.scaling.factor):
        sys.stdout.write(f"{written}\n")


# --- what is printed ------------------------------------------------------------------------------------------------
def _print(record: dict[str, Any], as_json: bool, text: Any) -> None:
    line = json.dumps(record, allow_nan=False) if as_json else text(record)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")


def _number(value: Any, style: str) -> str:
    return "none" if value is None else format(value, style)


def _summary(record: dict[str, Any]) -> str:
    from flows.leaderboard import batch_lines

    return "\n".join(
        [
            *(batch_lines(record) if record.get("points") else _run_lines(record)),
            f"{record['seconds']['total']:.1f} s in all, {record['seconds']['solve']:.2f} s solving",
            f"report: {record['run']}/report.html",
            f"run: {record['run']}",
        ]
    )


def _run_lines(record: dict[str, Any]) -> list[str]:
    scored = _scores_text(_named(record["scores"]))
    support = f"{record['n_support']:,} support vectors of {record['n_train']:,}"
    gaps = f"relative gap {_number(record['relative_gap'], '.1e')}, KKT gap {_number(record['kkt_gap'], '.1e')}"
    return [
        f"{record['status']}: {', '.join(scored)}",
        f"{gaps} (worst of {len(record['per_class'])}); {support}",
    ]


def _named(scores: dict[str, Any]) -> dict[str, float]:
    """Scores of test rows, where there are any, then those of training rows, under one name each."""
    test, train = scores["test"] or {}, scores["train"]
    return test | {f"training {name}": value for name, value in train.items()}


def _scores_text(record: dict[str, Any]) -> list[str]:
    """What of a record is a score and known; errors are written as they are."""
    found = []
    for name, value in record.items():
        word = name.removeprefix("training ")
        if value is not None and word in _SCORES:
            text, sign, style = _SCORES[word]
            found.append(f"{name.replace(word, text)} {sign * value:{style}}")
        elif value is not None and "training" not in name and isinstance(value, float):
            found.append(f"{name} {value:.4f}")
    return found


_SCORES = {  # name, sign and style of those that are printed by another name, and also of training rows
    "accuracy": ("accuracy", 1, ".4f"),
    "r2": ("r2", 1, ".4f"),
    "rejected": ("rejected", 1, ".4f"),
    "mae": ("mae", 1, ".4g"),
    "rmse": ("rmse", 1, ".4g"),
    "max_error": ("max error", 1, ".4g"),
    "neg_mean_absolute_error": ("mae", -1, ".4g"),
    "neg_root_mean_squared_error": ("rmse", -1, ".4g"),
    "neg_max_error": ("max error", -1, ".4g"),
}


def _verdict(report: dict[str, Any]) -> str:
    if not report["agrees"]:
        return f"{report['model']}: DIFFERS"
    lines = [f"{'class':>12} {'dual':>14} {'relative gap':>13} {'KKT gap':>10}"]
    for entry in report["per_class"]:
        shown = (_number(entry["dual"], ".6f"), _number(entry["relative_gap"], ".1e"), _number(entry["kkt_gap"], ".1e"))
        lines.append(f"{entry['label']!s:>12} {shown[0]:>14} {shown[1]:>13} {shown[2]:>10}")
    return "\n".join([*lines, f"{report['model']}: every certificate and score agrees, recomputed in float64"])


def _table(listing: dict[str, Any]) -> str:
    found = listing["runs"]
    if not found:
        return "no runs"
    lines = [f"{'accuracy':>8}  {'status':<10} {'gap':>8} {'seconds':>8}  run"]
    for entry in found:
        accuracy, gap = _number(entry.get("accuracy"), ".4f"), _number(entry.get("relative_gap"), ".1e")
        total = _number(entry.get("seconds", {}).get("total"), ".1f")
        lines.append(f"{accuracy:>8}  {entry.get('status') or '':<10} {gap:>8} {total:>8}  {entry['run']}")
    return "\n".join(lines)


def _plan_text(record: dict[str, Any]) -> str:
    from pipeline.config.quantities import seconds, size

    lines = []
    for key, value in record.items():
        if isinstance(value, dict):
            text = ", ".join(f"{name} {seconds(part)}" for name, part in value.items())
        elif key.endswith("_bytes"):
            text = size(value)
        else:
            text = f"{value:,}" if isinstance(value, int) else str(value)
        lines.append(f"{key.replace('_', ' '):<24} {text}")
    return "\n".join(lines)


# --- errors to exit codes -------------------------------------------------------------------------------------------
def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        code = _outcome(argv)
    finally:
        signal.signal(signal.SIGTERM, previous)
    if code in STOPPED:
        _tell(f"{STOPPED[code]}; what is finished is kept, the same command goes on from there")
    return code


def _terminate(signum: int, frame: Any) -> None:
    """SIGTERM: leave through every `finally`, so that what is finished is kept and no process stays."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(TERMINATED)


def _outcome(argv: Sequence[str] | None) -> int:
    try:
        result = app(args=argv, standalone_mode=False)
    except SVMError as error:
        return _fail(error, REFUSED)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else FAILED
    except typer.Exit as error:
        return int(error.exit_code)
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        usage = getattr(error, "format_message", None)  # typer's errors of usage, whichever click it carries
        if usage and type(error).__name__ == "NoArgsIsHelpError":  # `marginflow` alone: its message is the help
            _tell(usage())
            return REFUSED
        return _fail(usage(), REFUSED) if usage else _fail(error, FAILED)
    return result if isinstance(result, int) else DONE


def _fail(error: Any, code: int) -> int:
    """One line on stderr; the traceback only of failures, and only if MARGINFLOW_DEBUG asks for it."""
    if code == FAILED and os.environ.get("MARGINFLOW_DEBUG"):
        traceback.print_exception(error)
    from pipeline.config.redact import redacted_text

    text = redacted_text(" ".join(str(error).split()))
    kind = "" if code == REFUSED or not isinstance(error, BaseException) else f"{type(error).__name__}: "
    _tell(f"marginflow: {kind}{text}")
    return code


if __name__ == "__main__":
    sys.exit(main())
