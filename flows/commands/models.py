"""Commands on a model: predict, verify, sign, export, report."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.commands.app import FAILED, Json, ModelPath, app
from flows.commands.printed import put, tell, verdict
from flows.commands.words import drift_lines, scores_text

__all__ = ["export", "predict", "report", "sign", "verify"]


@app.command()
def predict(
    model: ModelPath,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Rows, with or without labels.")],
    output: Annotated[str | None, typer.Option("--output", metavar="FILE", help=".csv, .parquet or .json.")] = None,
    ignore_extra: Annotated[
        bool, typer.Option("--ignore-extra", help="Leave out columns that the training data did not have.")
    ] = False,
    drift: Annotated[
        bool, typer.Option("--drift", help="Say whether the rows are like those of training: features, and as a whole.")
    ] = False,
    json_: Json = False,
) -> None:
    """Labels and decision values of a source, or values.

    Example: marginflow predict runs/digits@champion new.csv --output labels.csv --drift
    """
    from pipeline.model.predict import predict_to_file

    record = predict_to_file(model, source, output if output or json_ else "-", ignore_extra=ignore_extra, drift=drift)
    if json_:
        put(record, True, str)
    else:
        tell(", ".join([f"{record['n']:,} rows", *scores_text(record)]))
        for line in drift_lines(record.get("drift")):
            tell(line)
    if record.get("unknown_labels"):
        shown = ", ".join(map(repr, record["unknown_labels"][:10]))
        tell(f"{record['n_unknown']:,} rows with labels that the training data has not ({shown}) are left out of it")


@app.command()
def verify(
    model: ModelPath,
    source: Annotated[str | None, typer.Option("--source", metavar="URL", help="Its training rows are here.")] = None,
    test: Annotated[str | None, typer.Option("--test", metavar="URL", help="Its test rows are here.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Open what somebody else's model names.")] = False,
    key: Annotated[str | None, typer.Option("--key", metavar="FILE", help="Its signer's public key (PEM).")] = None,
    json_: Json = False,
) -> None:
    """Recompute every certificate from the data, in float64; exit 1 naming what differs.

    Example: marginflow verify runs/digits@champion
    """
    from flows.console import progress_display
    from pipeline.model.verify import verify as recompute

    with progress_display() as progress:
        report = recompute(model, progress, source=source, test=test, trust=trust, key=key)
    put(report, json_, verdict)
    if not report["agrees"]:
        for part in report["differences"]:
            tell(f"{part['part']}: stored {part['stored']}, recomputed {part['recomputed']}")
        raise typer.Exit(FAILED)


@app.command()
def sign(
    model: ModelPath,
    key: Annotated[str, typer.Option("--key", metavar="FILE", help="Private key of an elliptic curve (PEM).")],
) -> None:
    """Sign a model; `verify --key` checks it with the public key.

    Example: marginflow sign runs/digits@champion --key key.pem
    """
    from pipeline.model.signature import sign as write_signature

    sys.stdout.write(f"{write_signature(model, key)}\n")


@app.command()
def export(
    model: ModelPath,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Ending in .libsvm or .onnx.")],
) -> None:
    """Write a model for other programs: LIBSVM's text, or ONNX.

    Example: marginflow export runs/digits@champion digits.onnx
    """
    from pipeline.model.stored import load_model
    from pipeline.storage.files import check_writable
    from svmcore.export import export_model

    stored = load_model(model)
    check_writable(Path(file).absolute().parent, file)
    columns = None if stored.schema.is_plain else [*stored.schema.features()]
    for written in export_model(stored.model, file, stored.scaling.shift, stored.scaling.factor, columns):
        sys.stdout.write(f"{written}\n")


@app.command()
def report(run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or s3:// URL of a run.")]) -> None:
    """Write report.html again.

    Example: marginflow report runs/digits@champion
    """
    from pipeline.report.page import rewrite_report

    sys.stdout.write(f"{rewrite_report(run)}\n")
