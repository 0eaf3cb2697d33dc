"""Reports of runs in which one thing is altered: labels, sizes, neighbours, gaps that certify nothing."""

import json
import random
import re
import shutil

from pipeline.report.page import write_report

from .taken_apart import Page


def test_report__labels_are_text_not_mathematics(edited):
    def rename(metrics, evaluation):
        evaluation["history"][0]["label"], evaluation["history"][1]["label"] = "$x$ 猫", "#050000 url(#a"

    page = Page(edited("digits", rename))
    assert "$x$ 猫" in page.text
    assert "#050000 url(#a" in page.text


def test_report__of_100_classes_and_1000_points_is_below_a_megabyte(runs, tmp_path):
    folder = shutil.copytree(runs["batch"], tmp_path / "large")
    metrics, evaluation = (json.loads((folder / f).read_text()) for f in ("metrics.json", "evaluation.json"))
    rng = random.Random(0)
    grid = [{"C": 10.0**a, "kernel.gamma": 2.0**-b} for a in range(-10, 10) for b in range(50)]
    entry = {"std_score": 0.0123456789, "kkt_gap": 9.876543e-4, "n_support": 123, "status": "converged"}
    metrics["points"] = [
        entry
        | {
            "params": p,
            "mean_score": rng.random(),
            "fold_scores": [rng.random() for _ in range(5)],
            "seconds": rng.random(),
        }
        for p in grid
    ]
    metrics["best"] = metrics["points"][0]
    metrics["per_class"] = [
        metrics["per_class"][0] | {"label": k, "primal": rng.random(), "bias": rng.random()} for k in range(100)
    ]
    evaluation["classes"] = metrics["classes"] = list(range(100))
    evaluation["confusion"] = [[rng.randint(0, 9) for _ in range(100)] for _ in range(100)]
    axis = [k / 24 for k in range(25)]
    curve = evaluation["curves"][0] | {"tpr": [x**0.3 for x in axis], "fpr": axis, "threshold": [None, *axis[1:]]}
    evaluation["curves"] = [curve | {"label": k} for k in range(100)]
    points = [[rng.random() * k, k, 10 ** -(k / 20)] for k in range(80)]
    evaluation["history"] = [{"label": k, "points": points} for k in range(100)]
    for file, content in (("metrics.json", metrics), ("evaluation.json", evaluation)):
        (folder / file).write_text(json.dumps(content))
    assert write_report(folder).stat().st_size < 1e6


BESIDE = {
    "a": "/srv/runs/2/20260101T030405-89abcdef",
    "b": "",
    "config": {"C": [1, 10], "sweep.grid.C": [None, [1, 10]]},
    "data": {"n_train": [400, 455], "n_test": [114, 114]},
    "scores": {"accuracy": [0.75, 0.5], "test neg_mean_absolute_error": [-2.0, -1.5]},
    "certificate": {"kkt_gap": [1e-3, 5e-4], "n_support": [9, 8], "status": ["converged", "converged"]},
    "seconds": {"total": [2.0, 1.0]},
    "per_class": [],
    "paired": {"test": "mcnemar", "only_a": 30, "only_b": 2, "p_value": 2.5e-7},
}


def test_report__says_what_changed_first(runs, tmp_path):
    folder = shutil.copytree(runs["cancer"], tmp_path / "changed")
    other = BESIDE | {"a": "/srv/runs/2/20260101T230405-00000000", "paired": None, "config": {}, "data": {}}
    beside = {"alias": "champion", "champion": BESIDE, "previous": other}
    (folder / "neighbours.json").write_text(json.dumps(beside))
    metrics = json.loads((folder / "metrics.json").read_text())
    failed = [{"rule": "min.accuracy", "found": 0.5, "needed": 0.9}]
    (folder / "metrics.json").write_text(json.dumps(metrics | {"gate": {"passed": False, "failed": failed}}))
    page = Page(write_report(folder).read_text())
    assert "Worse than the champion in accuracy: 0.5 against 0.75." in page.text
    assert "The gate said no: min.accuracy is 0.5, needed 0.9." in page.text
    assert page.all("href").count("../20260101T030405-89abcdef/report.html") == 2
    assert "accuracy 0.75 0.5 -0.25 ✗" in page.text
    assert "test mae 2 1.5 -0.5 ✓" in page.text
    assert "KKT gap 0.001 5e-4 -5e-4 support" in page.text
    assert "on the 32 test rows that one of the two alone has right: p = 2.5e-7" in page.text
    assert "sweep.grid.C : – → 1, 10" in page.text
    assert "n_train : 400 → 455" in page.text
    assert page.text.count("Not tested on the same rows") == 1
    assert "The same configuration and data." in page.text
    (folder / "neighbours.json").write_text(json.dumps(beside | {"previous": BESIDE}))
    assert write_report(folder).read_text().count("h-change2") == 0


def test_report__draws_calibration_where_there_are_probabilities(edited):
    def add(metrics, evaluation):
        bins = [{"said": 0.1, "seen": 0.2, "rows": 30}, {"said": 0.9, "seen": 0.85, "rows": 70}]
        evaluation["calibration"] = [{"label": "benign", "bins": bins}]

    html = edited("cancer", add)
    assert ">Calibration</h2>" in html
    assert "1 curves; the furthest is off by 0.1" in html


def test_report__null_gaps_are_not_certified(edited):
    def no_bound(metrics, evaluation):
        for entry in metrics["per_class"]:
            entry |= {"primal": None, "relative_gap": None, "kkt_gap": None}
        metrics["relative_gap"] = metrics["kkt_gap"] = None

    text = Page(edited("wine", no_bound)).text
    assert "✗ not certified" in text
    assert "relative gap" not in text
    assert "primal" not in text


def test_report__one_gap_above_tol_is_not_certified(edited):
    def exceed(metrics, evaluation):
        metrics["status"] = metrics["per_class"][1]["status"] = "max_iter"
        metrics["per_class"][1]["kkt_gap"] = 1.06e-3

    text = Page(edited("wine", exceed)).text
    assert "✗ not certified" in text
    assert "max iter" in text
    assert "worst KKT gap 0.00106 against tol 0.001" in text
    assert re.findall("0.00106 ([✓✗])", text) == ["✗"]


def test_report__many_classes_become_a_map(edited):
    def widen(metrics, evaluation):
        evaluation["classes"] = metrics["classes"] = list(range(60))
        evaluation["confusion"] = [[9 if i == j else int(i == 3 and j == 5) for j in range(60)] for i in range(60)]

    html = edited("wine", widen)
    text = Page(html).text
    assert '<table class="matrix' not in html
    assert "<image" in html
    assert "60 classes, 99.82 % on the diagonal" in text
    assert "3 taken for 5 (1)" in text


def test_report__one_against_one_labels(edited):
    def pair(metrics, evaluation):
        metrics["per_class"][0]["label"] = ["cat", "dog"]

    assert "cat vs dog" in Page(edited("wine", pair)).text
