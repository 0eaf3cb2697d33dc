"""Two runs side by side as a page."""

import re
from pathlib import Path

import pytest

from flows.cli import main
from pipeline import run
from pipeline.model.predict import predict_to_file
from pipeline.registry.compare import compare


@pytest.fixture(scope="module")
def other(rows_config, tmp_path_factory):
    """A run of the same rows, much worse at one class, which failed its gate."""
    worse = rows_config | {"class_weight": {"ant": 100}, "C": 1e-3, "gate": {"min": {"accuracy": 0.99}}}
    return run(worse, store=str(tmp_path_factory.mktemp("other")))


def cells(page, heading):
    """Rows of the table under a heading, as texts."""
    section = re.search(rf">{heading}</h2>.*?<tbody>(.*?)</tbody>", page, re.DOTALL)[1]
    rows = re.findall(r"<tr.*?</tr>", section, re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in rows]


def test_compare__page_has_the_scores_the_test_and_each_class(rows_run, other, tmp_path, capsys):
    page = tmp_path / "comparison.html"
    assert main(["compare", rows_run["run"], other["run"], "--output", str(page)]) == 0
    assert "McNemar's exact test" in capsys.readouterr().out
    text = page.read_text()
    p_value = compare(rows_run["run"], other["run"])["paired"]["p_value"]
    assert f"p = {p_value:.2g}" in text
    assert f"B is worse than A in accuracy: {other['accuracy']:.4g} against {rows_run['accuracy']:.4g}." in text
    assert "its gate said no: min.accuracy" in text
    (scores,) = [row for row in cells(text, "Scores and costs") if row[0] == "accuracy"]
    assert [float(value) for value in scores[1:3]] == pytest.approx([rows_run["accuracy"], other["accuracy"]], abs=1e-4)
    assert float(scores[3]) == pytest.approx(other["accuracy"] - rows_run["accuracy"], rel=2e-3)
    assert ["C", "10", "0.001"] in cells(text, "What differs")


def test_compare__recall_and_precision_are_those_of_the_predictions(rows_run, other, rows_csv, tmp_path):
    from sklearn.metrics import precision_recall_fscore_support

    page = tmp_path / "c.html"
    assert main(["compare", rows_run["run"], other["run"], "--output", str(page), "--json"]) == 0
    found = cells(page.read_text(), "Each class")
    assert [row[0] for row in found] == ["ant", "bee", "cat"]
    for side, record in enumerate((rows_run, other)):
        precision, recall = truth(record, rows_csv, tmp_path, precision_recall_fscore_support)
        assert [row[1 + side] for row in found] == [f"{100 * share:.2f} %" for share in recall]
        assert [row[4 + side] for row in found] == ["–" if s != s else f"{100 * s:.2f} %" for s in precision]


def truth(record, rows_csv, folder, judge):
    """Precision and recall of the test rows, by scikit-learn from the labels that the model tells of all rows."""
    import pandas as pd
    from sklearn.model_selection import train_test_split

    out = folder / "labels.csv"
    predict_to_file(record["model"], str(rows_csv), str(out))
    told, rows = pd.read_csv(out)["label"], pd.read_csv(rows_csv)
    _, test = train_test_split(rows.index, test_size=0.2, stratify=rows["kind"], random_state=0)
    scored = judge(rows["kind"][test], told[test], labels=["ant", "bee", "cat"], zero_division=float("nan"))
    return scored[0], scored[1]


def test_compare__page_needs_no_network_and_links_to_both_reports(rows_run, other, tmp_path):
    page = tmp_path / "comparison.html"
    assert main(["compare", rows_run["run"], other["run"], "--output", str(page)]) == 0
    text = page.read_text()
    assert not re.search(r"https?://(?!www.w3.org/)", text)
    links = re.findall(r'<a href="([^"]+)"', text)
    assert [(tmp_path / link).resolve() for link in links] == [
        Path(record["run"], "report.html").resolve() for record in (rows_run, other)
    ]


def test_compare__of_two_classes_draws_both_curves(tmp_path):
    data = {"source": "sklearn:breast_cancer", "test": 0.3, "scale": "standard"}
    config = {"data": data, "cluster": {"kind": "inline"}, "store": str(tmp_path / "runs")}
    runs = [run(config | {"name": "two", "C": C})["run"] for C in (1e-3, 1)]
    assert main(["compare", *runs, "--output", str(tmp_path / "c.html")]) == 0
    text = (tmp_path / "c.html").read_text()
    assert re.search(r"2 curves; the least area is 0\.9\d", text)
    assert len(text) < 2e5


def test_compare__another_ending_or_folder_is_refused(rows_run, tmp_path, capsys):
    assert main(["compare", rows_run["run"], rows_run["run"], "--output", str(tmp_path / "c.pdf")]) == 2
    assert "give a file that ends in .html" in capsys.readouterr().err
    assert main(["compare", rows_run["run"], "runs/absent/x", "--output", str(tmp_path / "c.html")]) == 2
    assert not (tmp_path / "c.html").exists()
