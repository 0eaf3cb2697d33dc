"""Configs that are written for the user: from data, resolved with origins, and checked by a schema."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest

from flows.cli import app, main
from pipeline.authoring.json_schema import json_schema
from pipeline.config import yaml12
from pipeline.config.load import load_experiment

ROOT = Path(__file__).parents[3]
CONFIGS = sorted((ROOT / "config").rglob("*.yaml"))


@pytest.fixture
def customers(tmp_path, monkeypatch):
    """A CSV with ids, gaps and texts, in the current folder."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"customer_id": range(1, 81), "age": rng.integers(20, 80, 80).astype(float)})
    frame["town"] = rng.choice(["Ulm", "Bern"], 80)
    frame["mail"] = [f"n{k}@x" for k in range(80)]
    frame["churned"] = np.where(frame["age"] + 10 * (frame["town"] == "Ulm") > 50, "yes", "no")
    frame.loc[::9, "age"] = np.nan
    frame.to_csv("customers.csv", index=False)
    return frame


def test_init__writes_a_config_that_runs_and_says_why(customers, capsys):
    assert main(["init", "customers.csv"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("customers.yaml\n", "next: marginflow run customers.yaml\n")
    data = yaml12.parse(Path("customers.yaml").read_text())["data"]
    assert data["label"] == "churned"
    assert (data["id"], data["drop"]) == ("customer_id", ["mail"])
    assert (data["missing"], data["categories"], data["scale"]) == ("median", "onehot", "standard")
    text = Path("customers.yaml").read_text()
    assert "# 80 rows" in text
    assert "# 2 classes: no, yes" in text
    assert "# missing values: age 9" in text
    quick = ["--set", "sweep.grid={C: [1]}", "--set", "cluster.kind=inline", "--no-prefect", "--json"]
    assert main(["run", "customers.yaml", *quick]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.7


def test_init__never_writes_over_a_file(customers, capsys):
    Path("customers.yaml").write_text("mine")
    assert main(["init", "customers.csv"]) == 2
    assert "customers.yaml is there already" in capsys.readouterr().err
    assert Path("customers.yaml").read_text() == "mine"
    assert main(["init", "customers.csv", "--output", "-"]) == 0
    assert capsys.readouterr().out.startswith("data:\n")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["init", "absent.csv"], "absent.csv: no such file"),
        (["init", "customers.csv", "--label", "churn"], "no label column 'churn'.*did you mean 'churned'"),
        (["init", "customers.csv", "--label", "mail"], "'mail' has 80 different values, too many for classes"),
    ],
)
def test_init__data_without_classes_is_refused(customers, capsys, argv, said):
    assert main(argv) == 2
    assert re.search(said, capsys.readouterr().err)


def test_init__numbers_that_all_differ_are_values(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=90), "b": rng.normal(size=90)})
    frame["price"] = 50 * frame["a"] + rng.normal(size=90)
    frame.to_csv("prices.csv", index=False)
    assert main(["init", "prices.csv"]) == 0
    text = Path("prices.yaml").read_text()
    found = yaml12.parse(text)
    assert (found["task"], found["data"]["label"]) == ("svr", "price")
    spread = frame["price"].std()
    assert 0.05 * spread < found["epsilon"] < 0.2 * spread
    assert "# values from " in text
    quick = ["--set", "sweep.grid={C: [100]}", "--set", "cluster.kind=inline", "--no-prefect", "--json"]
    capsys.readouterr()
    assert main(["run", "prices.yaml", *quick]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["test"]["r2"] > 0.8


@pytest.mark.parametrize("label", ["same", "none"])
def test_init__one_label_or_none_is_one_class(tmp_path, monkeypatch, capsys, label):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    frame.assign(**({"same": "fine"} if label == "same" else {})).to_csv("usual.csv", index=False)
    assert main(["init", "usual.csv", "--label", label]) == 0
    found = yaml12.parse(Path("usual.yaml").read_text())
    assert found["task"] == "one-class"
    assert found["data"]["label"] == (None if label == "none" else "same")
    capsys.readouterr()
    assert main(["run", "usual.yaml", "--set", "cluster.kind=inline", "--no-prefect", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["n_features"] == 2
    assert record["scores"]["train"]["rejected"] < 0.15


@pytest.mark.parametrize("source", ["sklearn:digits", "rows.svm"])
def test_init__takes_sources_without_names(tmp_path, monkeypatch, capsys, source):
    monkeypatch.chdir(tmp_path)
    Path("rows.svm").write_text("1 1:1\n-1 2:1\n" * 5)
    assert main(["init", source, "--output", "c.yaml"]) == 0
    exp = load_experiment("c.yaml")
    assert exp.data.scale == ("standard" if source == "sklearn:digits" else "maxabs")


def test_config__says_where_each_value_comes_from_and_loads_again(tmp_path, capsys):
    file = tmp_path / "rows.yaml"
    file.write_text(
        "data: {source: 'sklearn:iris'}\nkernel: linear\nclass_weight: {0: 2}\nC: .inf\n"
        "sweep: {grid: {kernel.gamma: [0.1, 1]}, folds: 2}\nkernel: rbf\n".replace("kernel: linear\n", "")
    )
    assert main(["config", str(file), "--set", "solver.tol=1e-5"]) == 0
    text = capsys.readouterr().out
    lines = {line.split(":")[0].strip(): line.split("# ")[1] for line in text.splitlines() if "# " in line}
    assert (lines["source"], lines["tol"], lines["bias"], lines["seed"]) == (str(file), "--set", "default", "default")
    assert lines["gamma"] == "default"
    assert load_experiment(yaml12.parse(text)) == load_experiment(file, ["solver.tol=1e-5"])
    assert main(["config", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["C"] == {"value": ".inf", "origin": str(file)}


@pytest.mark.parametrize("file", CONFIGS, ids=[str(file.relative_to(ROOT / "config")) for file in CONFIGS])
def test_schema__every_config_of_ours_is_valid(file):
    jsonschema.Draft202012Validator(json_schema()).validate(yaml12.parse(file.read_text()))


@pytest.mark.parametrize(
    "text",
    [
        "data: {source: x.csv, drop: [1, name], scale: 16, missing: mean}\ncache: {limit: 4GiB, disk: 10}",
        "data: {source: x.csv}\nkernel: rbf\nsolver: smo\nC: .inf\nclass_weight: {a: 2}\nsweep: {refit: false}",
        "data: {source: x.csv, test: 0.2}\ngate: {min: {accuracy: 0.9}}\npromote: champion",
    ],
)
def test_schema__takes_what_a_config_may_say(text):
    jsonschema.Draft202012Validator(json_schema()).validate(yaml12.parse(text))
    load_experiment(yaml12.parse(text))


@pytest.mark.parametrize(
    "text", ["C: 1", "data: {source: x, sorce: y}", "data: {source: x}\nkernel: rfb", "data: {source: x}\nbias: no"]
)
def test_schema__refuses_what_a_config_may_not_say(text):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_schema()).validate(yaml12.parse(text))


def test_schema__is_one_and_says_what_each_key_accepts(capsys):
    assert main(["schema"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["properties"]["bias"]["description"] == "free, penalised or none"


def test_dry_run__says_what_it_costs_and_publishes_nothing(customers, capsys):
    main(["init", "customers.csv"])
    capsys.readouterr()
    assert main(["run", "customers.yaml", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_merged"] > 0
    assert not list(Path("runs").glob("customers"))
    assert main(["run", "customers.yaml", "--dry-run", "--set", "data.source=absent.csv"]) == 2


def test_version_and_help__are_told(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"marginflow \d+\.\d+\.\d+\n", capsys.readouterr().out)
    for argv in (["-h"], ["run", "-h"], ["runs", "--help"]):
        assert main(argv) == 0
        assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize("command", [command.name or command.callback.__name__ for command in app.registered_commands])
def test_help__has_an_example_whose_options_exist(command, capsys):
    assert main([command, "-h"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    example = re.search(rf"Example: (marginflow {command}\b.*?) ?(?:$|,|\.? Options|Arguments|Usage)", told)
    assert example, told
    for option in re.findall(r"(?<!\S)--[a-z-]+", example[1]):
        assert option in told.replace(example[1], "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion__names_the_commands(shell, tmp_path):
    """What a shell asks of the program when one presses Tab after `marginflow pro`."""
    asked = {
        "bash": {"COMP_WORDS": "marginflow pro", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "marginflow pro"},
        "fish": {"_TYPER_COMPLETE_ARGS": "marginflow pro", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    env = os.environ | asked | {"_MARGINFLOW_COMPLETE": f"complete_{shell}"}
    code = "import sys; sys.argv = ['marginflow']; from flows.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "promote" in done.stdout
    assert "prune" not in done.stdout
