"""Commands on a finished run: predicted, verified, reported, and refused where its files are not what they were."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from flows.cli import main

from .refusals import refused


@pytest.fixture
def model(rows_run, tmp_path):
    return Path(shutil.copytree(rows_run["run"], tmp_path / "model"))


def commands_on(model, rows):
    return [["predict", str(model), str(rows)], ["report", str(model)], ["export", str(model), "x.onnx"]]


def test_commands__refuse_a_model_whose_hash_is_wrong(model, rows_csv, capsys):
    part = model / "model.zarr" / "bias" / "c" / "0"
    part.write_bytes(part.read_bytes()[::-1])
    for argv in commands_on(model, rows_csv):
        assert "bias/c/0 was changed" in refused(argv, capsys)
    assert main(["verify", str(model)]) == 1
    assert "bias/c/0" in capsys.readouterr().err


def test_commands__refuse_a_model_of_a_newer_version(model, rows_csv, capsys):
    file = model / "model.zarr" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 9}))
    for argv in [*commands_on(model, rows_csv), ["verify", str(model)]]:
        line = refused(argv, capsys)
        assert "format 9" in line
        assert "format 4" in line


def test_report__is_written_again(model, capsys):
    (model / "report.html").unlink()
    assert main(["report", str(model)]) == 0
    assert capsys.readouterr().out.strip() == str(model / "report.html")
    assert "<html" in (model / "report.html").read_text()


def test_verify__prints_the_recomputed_certificates(rows_run, capsys):
    assert main(["verify", rows_run["run"]]) == 0
    out = capsys.readouterr().out
    assert "agrees" in out
    assert all(label in out for label in ("ant", "bee", "cat"))
    assert main(["verify", rows_run["run"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["agrees"] is True


@pytest.fixture
def unlabelled(rows_csv, tmp_path):
    """The same rows without their labels."""
    path = tmp_path / "unlabelled.csv"
    path.write_text("\n".join(line.rsplit(",", 1)[0] for line in rows_csv.read_text().splitlines()) + "\n")
    return path


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_predict__writes_equal_labels_and_values_in_every_format(
    rows_run, rows_csv, unlabelled, tmp_path, capsys, ending
):
    from pipeline import load_model

    stored = load_model(rows_run["model"])
    rows = [line.split(",") for line in unlabelled.read_text().splitlines()[1:]]
    X = np.array(rows, float)
    output = tmp_path / f"labels.{ending}"
    assert main(["predict", rows_run["run"], str(unlabelled), "--output", str(output), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["n"], record["accuracy"], record["output"]) == (90, None, str(output))
    labels, decision = read_predictions(output, ending)
    assert labels == stored.predict(X).tolist()
    assert np.array(decision, float) == pytest.approx(stored.decision_function(X))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([output.name, unlabelled.name])


def read_predictions(output, ending):
    if ending == "json":
        record = json.loads(output.read_text())
        return record["labels"], record["decision"]
    if ending == "csv":
        header, *rows = (line.split(",") for line in output.read_text().splitlines())
        assert header == ["label", "decision_ant", "decision_bee", "decision_cat"]
        return [row[0] for row in rows], [row[1:] for row in rows]
    from pyarrow import parquet

    table = parquet.read_table(output).to_pydict()
    return table.pop("label"), np.stack(list(table.values()), axis=1)


def test_predict__tells_the_accuracy_where_labels_are(rows_run, rows_csv, capsys):
    assert main(["predict", rows_run["model"], str(rows_csv), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    right = rows_run["train_accuracy"] * rows_run["n_train"] + rows_run["accuracy"] * rows_run["n_test"]
    assert record["accuracy"] == pytest.approx(right / 90)
    assert len(record["labels"]) == len(record["decision"]) == 90


def test_predict__refuses_another_width_and_an_unknown_ending(rows_run, tmp_path, capsys):
    wide = tmp_path / "wide.csv"
    wide.write_text("1,2,3,4,5\n")
    line = refused(["predict", rows_run["run"], str(wide)], capsys)
    assert "wide.csv: 5 columns, but 2 features are expected; give 2 columns, or 3 with the label" in line
    line = refused(["predict", rows_run["run"], str(wide), "--output", str(tmp_path / "x.xlsx")], capsys)
    assert ".parquet" in line
    assert [p.name for p in tmp_path.iterdir()] == ["wide.csv"]


def test_predict__rows_with_an_unknown_label_are_predicted_and_the_rest_is_scored(rows_run, rows_csv, tmp_path, capsys):
    known = tmp_path / "known.csv"
    lines = rows_csv.read_text().splitlines()
    known.write_text("\n".join(lines[:40]) + "\n")
    mixed = tmp_path / "mixed.csv"
    mixed.write_text("\n".join([*lines[:40], "1,2,dog", "2,1,emu", "2,2,dog"]) + "\n")
    assert main(["predict", rows_run["run"], str(known), "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone["unknown_labels"] == []
    assert main(["predict", rows_run["run"], str(mixed), "--json"]) == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert found["accuracy"] == alone["accuracy"]
    assert found["labels"][:39] == alone["labels"]
    assert (found["n"], found["n_unknown"], found["unknown_labels"]) == (42, 3, ["dog", "emu"])
    assert "3 rows with labels" in told.err
