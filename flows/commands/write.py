"""Commands that help to write a config: init, config, schema."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.commands.app import Config, Json, Set, app
from flows.commands.printed import put, tell

__all__ = ["config", "init", "schema"]


@app.command()
def init(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Your data: .csv, .parquet, or another source.")],
    label: Annotated[
        str, typer.Option("--label", metavar="COLUMN", help="Name or position of the label; none: rows alone.")
    ] = "-1",
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Default: NAME.yaml; -: print it.")
    ] = None,
) -> None:
    """Write a commented config from the data; `marginflow run` takes it as it is.

    Classes, values (regression) or one class: the label says which.

    Example: marginflow init customers.csv --label churned
    """
    from pipeline.authoring.first import first_config
    from pipeline.storage.files import create_atomic
    from svmcore.errors import InputError

    column = int(label) if label.lstrip("-").isdigit() else None if label == "none" else label
    name, text = first_config(file, column)
    target = output or f"{name}.yaml"
    if target == "-":
        sys.stdout.write(text)
        return
    if not create_atomic(Path(target).absolute(), text.encode()):
        raise InputError(f"{target} is there already; give --output FILE, or remove it")
    sys.stdout.write(f"{target}\n")
    tell(f"next: marginflow run {target}")


@app.command()
def config(config: Config, set_: Set = [], json_: Json = False) -> None:  # noqa: B006
    """Print the config with every default said, and where each value comes from.

    Example: marginflow config digits.yaml --set C=10
    """
    from pipeline.authoring.origins import annotated, origins
    from pipeline.config.keys import as_json

    found = origins(config, set_)
    put(as_json(found) if json_ else found, json_, annotated)


@app.command()
def schema() -> None:
    """Print the JSON schema of a config, for editors.

    Example: marginflow schema > marginflow.schema.json, and "# yaml-language-server: $schema=marginflow.schema.json" as
    the first line of a config.
    """
    from pipeline.authoring.json_schema import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=1) + "\n")
