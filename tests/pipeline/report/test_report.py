import base64
import gzip
import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from pipeline.report.batch import batch_of
from pipeline.report.page import render, write_report
from pipeline.report.record import read_run
from svmcore.errors import InputError

from . import report_runs

VOID = {"meta", "link", "br", "img", "hr", "input", "col", "source", "wbr", "base", "area", "embed", "track"}
INDEX = "../../index.html"
NAMES = ("digits", "letters", "cancer", "wine", "batch")


class Page(HTMLParser):
    """A page taken apart; asserts that every element is closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.words, self.values = [], set(), [], [], []
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        self.values += [value for key, value in attrs if key == "data-v" or (tag, key) == ("data", "value")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    def all(self, name):
        return [value for key, value in self.attributes if key == name]


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("reports")
    return {name: getattr(report_runs, f"{name}_run")(root / name / "20260102T030405-0123abcd") for name in NAMES}


@pytest.fixture(scope="session")
def pages(runs):
    return {name: write_report(folder).read_text() for name, folder in runs.items()}


@pytest.fixture
def edited(runs, tmp_path):
    """Copy a run, let `change(metrics, evaluation)` alter it, return the page."""

    def make(name, change):
        folder = shutil.copytree(runs[name], tmp_path / name)
        metrics, evaluation = (json.loads((folder / f).read_text()) for f in ("metrics.json", "evaluation.json"))
        change(metrics, evaluation)
        (folder / "metrics.json").write_text(json.dumps(metrics))
        (folder / "evaluation.json").write_text(json.dumps(evaluation))
        return write_report(folder).read_text()

    return make


@pytest.mark.parametrize("name", NAMES)
def test_page__is_well_formed_and_refers_only_to_itself(pages, name):
    page = Page(pages[name])
    ids = page.all("id")
    assert len(ids) == len(set(ids))
    assert {i for refs in page.all("aria-labelledby") for i in refs.split()} <= set(ids)
    assert set(re.findall(r"url\(#([^)]+)\)", pages[name])) <= set(ids)
    references = page.all("href") + page.all("src") + page.all("xlink:href")
    assert all(ref.startswith("data:") or ref.removeprefix("#") in ids for ref in references if ref != INDEX)
    assert "://" not in pages[name].replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert "@import" not in pages[name]
    assert not {"img", "iframe", "object"} & page.tags


def test_page__runs_no_script_but_its_own(pages):
    (policy,) = [value for value in Page(pages["cancer"]).all("content") if "default-src" in value]
    (script,) = re.findall(r"<script>(.*?)</script>", pages["cancer"], re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}';")
    assert not re.search(r"\son[a-z]+=", re.sub(r"<script.*?</script>", "", pages["cancer"], flags=re.DOTALL))
    for block in re.findall(r'<script type="application/json">(.*?)</script>', pages["cancer"], re.DOTALL):
        json.loads(block)


@pytest.mark.parametrize("name", NAMES)
def test_page__holds_the_numbers_of_the_metrics(pages, runs, name):
    metrics = json.loads((runs[name] / "metrics.json").read_text())
    shown = {float(value) for value in Page(pages[name]).values if re.match(r"-?[\d.]", value)}
    keys = ("accuracy", "train_accuracy", "n_train", "n_features", "n_support", "kkt_gap", "relative_gap")
    expected = [metrics[key] for key in keys] + list(metrics["seconds"].values())
    expected += [metrics["peak_memory_bytes"], metrics["blocks"]["total"], metrics["blocks"]["reused"]]
    columns = ("n_support", "n_bounded", "n_iter", "primal", "dual", "relative_gap", "kkt_gap", "bias")
    expected += [entry[column] for entry in metrics["per_class"] for column in columns]
    expected += [p[key] for p in metrics.get("points", []) for key in ("mean_score", "std_score", "seconds")]
    assert [value for value in expected if float(value) not in shown] == []


def test_page__shows_numbers_as_people_read_them(pages):
    text = Page(pages["digits"]).text
    for words in ("certified", "1,437", "and 360 test rows", "2.43 s", "298 MiB", "one-vs-rest", "tol 0.001"):
        assert words in text
    assert "marginflow · run 20260102T030405-0123abcd" in text


@pytest.mark.parametrize("name", NAMES)
def test_confusion__every_count_is_there(pages, runs, name):
    evaluation = json.loads((runs[name] / "evaluation.json").read_text())
    matrix = re.search(r'<table class="matrix( many)?( few)?">.*?</table>', pages[name], re.DOTALL).group()
    body = re.findall(r'<td class="(?:right|wrong|zero)"[^>]*>([\d,·]+)', matrix)
    counts = [0 if cell == "·" else int(cell.replace(",", "")) for cell in body]
    assert counts == [n for row in evaluation["confusion"] for n in row]


def test_figures__come_with_what_the_run_has(pages):
    titles = {name: set(re.findall(r"<svg[^>]*><title[^>]*>([^<]*)", html)) for name, html in pages.items()}
    curve = "KKT gap against time for each class"
    curve = {curve, "ROC curve", "Precision and recall"}
    assert titles["digits"] == titles["letters"] == curve
    assert titles["cancer"] == titles["wine"] == curve | {"Decision regions"}
    batch = {"Mean score against C", "Scores of the folds", "Cost of each point"}
    assert titles["batch"] == curve | batch


def test_figures__a_line_for_each_class_and_axes_in_plain_numbers(pages, runs):
    svg = next(s for s in re.findall(r"<svg.*?</svg>", pages["digits"], re.DOTALL) if "convergence-title" in s)
    legend = svg[svg.index("-legend_1") :]
    assert re.findall(r"<text[^>]*>([^<]*)</text>", legend) == [*"0123456789", "tol 0.001"]
    assert "mathdefault" not in "".join(pages.values())
    assert "#05" not in "".join(pages.values())  # no stand-in colour is left over


def test_report__same_bytes_in_another_process(runs, pages):
    code = "import sys; from pathlib import Path\n"
    code += "from pipeline.report.page import render; from pipeline.report.record import read_run\n"
    code += "sys.stdout.buffer.write(render(read_run(Path(sys.argv[1]))).encode())"
    command = [sys.executable, "-c", code, str(runs["cancer"])]
    other = subprocess.run(command, capture_output=True, check=True, env={"PYTHONHASHSEED": "7"}, timeout=120)
    assert other.stdout.decode() == pages["cancer"]
    assert render(read_run(runs["cancer"])) == pages["cancer"]


def test_report__matplotlib_only_when_it_draws():
    code = "import sys, pipeline.report.page; assert not {'matplotlib', 'jinja2', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


DATA_BLOCK = '<script type="application/json">'
NASTY = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>']


def test_report__escapes_labels_names_and_config(runs, tmp_path):
    folder = shutil.copytree(runs["cancer"], tmp_path / "nasty")
    for file in ("metrics.json", "evaluation.json"):
        text = (folder / file).read_text()
        for label, nasty in zip(("benign", "malignant"), NASTY, strict=True):
            text = text.replace(json.dumps(label), json.dumps(nasty))
        (folder / file).write_text(text)
    (folder / "config.yaml").write_text("name: '</title><b>'\n# </pre><script>\n")
    html = write_report(folder).read_text()
    page = Page(html)
    assert "img" not in page.tags
    assert not [one for one in re.findall(r"<script[^>]*>", html) if one not in ("<script>", DATA_BLOCK)]
    assert html.count("<script>") == 1
    assert NASTY[0] in page.text  # in the table
    assert "</title><b>" in page.text
    assert "# </pre><script>" in page.text
    legend = html[html.index("Decision regions</title>") :]
    assert "&lt;script&gt;alert(1)&lt;" in legend[: legend.index("</svg>")]


def test_report__labels_are_text_not_mathematics(edited):
    def rename(metrics, evaluation):
        evaluation["history"][0]["label"], evaluation["history"][1]["label"] = "$x$ 猫", "#050000 url(#a"

    page = Page(edited("digits", rename))
    assert "$x$ 猫" in page.text
    assert "#050000 url(#a" in page.text


MISSING = {
    "evaluation": {
        "curves": "ROC curve",
        "errors": "Worst errors",
        "plane": "Decision regions",
        "history": "Convergence",
        "confusion": "Confusion matrix",
    },
    "metrics": {
        "per_class": "Certificates",
        "plan": "Planned and measured",
        "versions": "Versions",
        "seconds": "total time",
        "accuracy": "test accuracy",
        "n_support": "support vectors",
        "peak_memory_bytes": "peak memory",
    },
}


@pytest.mark.parametrize("part", MISSING)
def test_report__leaves_out_what_is_missing(pages, edited, part):
    def remove(metrics, evaluation):
        evaluation["plane"].pop("support_vectors")
        for key in MISSING[part]:
            {"metrics": metrics, "evaluation": evaluation}[part].pop(key)

    before, after = Page(pages["cancer"]).text, Page(edited("cancer", remove)).text
    for kind, headings in MISSING.items():
        assert [heading for heading in headings.values() if heading not in before] == []
        assert [heading for heading in headings.values() if (heading in after) == (kind == part)] == []


def test_report__of_almost_nothing(tmp_path):
    (tmp_path / "metrics.json").write_text('{"status": "time_limit"}')
    html = write_report(tmp_path).read_text()
    page = Page(html)
    assert "time limit" in page.text
    assert not {"svg", "table", "h2", "dl"} & page.tags


def test_report__values_behind_a_drawing_lie_where_they_are_drawn(pages):
    figure = re.search(r"<svg[^>]*roc-title.*?</svg>\s*<script[^>]*>(.*?)</script>", pages["cancer"], re.DOTALL)
    marks = json.loads(figure.group(1))
    assert (marks["x"], marks["y"]) == ("false positive rate", "true positive rate")
    path = [[float(v) for v in pair] for pair in re.findall(r"[ML] ([\d.]+) ([\d.]+)", figure.group(0))]
    for px, py, _, _ in marks["lines"][0]["at"]:
        assert min(abs(px - x) + abs(py - y) for x, y in path) < 2.5
    assert marks["lines"][0]["at"][-1][2:] == [1.0, 1.0]


def test_report__metrics_are_in_the_page_to_take_away(pages, runs):
    (link,) = [ref for ref in Page(pages["wine"]).all("href") if ref.startswith("data:application/gzip")]
    found = json.loads(gzip.decompress(base64.b64decode(link.partition("base64,")[2])))
    assert found == json.loads((runs["wine"] / "metrics.json").read_text())


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


def test_write_report__without_a_run(tmp_path):
    with pytest.raises(InputError, match=r"no metrics\.json in .*give the folder of a run"):
        write_report(tmp_path)
    (tmp_path / "metrics.json").write_text("{")
    with pytest.raises(InputError, match=r"metrics\.json is not valid JSON"):
        write_report(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.json"]


def test_write_report__again_replaces_the_page(runs, pages):
    (runs["wine"] / "report.html").write_text("old")
    assert write_report(runs["wine"]) == runs["wine"] / "report.html"
    assert (runs["wine"] / "report.html").read_text() == pages["wine"]
    assert not list(runs["wine"].glob(".report*"))


def point(mean, **params):
    return {"params": params, "mean_score": mean, "std_score": 0.01, "fold_scores": [mean], "seconds": 1.0}


def test_batch__ranks_by_score_then_support_vectors_from_results(runs):
    run = read_run(runs["batch"])
    batch = batch_of(run.metrics, run.rows)
    keys = [(-p.mean_score, p.n_support) for p in batch.points]
    assert keys == sorted(keys)
    assert [p.is_best for p in batch.points] == [True] + [False] * 14
    assert batch.worst_gap == max(float(row["kkt_gap"]) for row in run.rows)
    assert batch.within(run.tol) == 15
    assert batch.statuses() == [("converged", 15)]


def test_batch__heat_map_and_curves_hold_the_other_parameters_at_the_best():
    grid = [(C, g, s) for C in (1, 10) for g in (0.1, 0.2) for s in ("none", "standard")]
    points = [point((50 + k) / 100, **{"C": C, "kernel.gamma": g, "data.scale": s}) for k, (C, g, s) in enumerate(grid)]
    batch = batch_of({"points": points, "best": points[-1]}, [])
    heat = batch.heat_map()
    assert (heat.rows, heat.columns, heat.fixed) == (("0.1", "0.2"), ("1", "10"), "data.scale = standard")
    assert [[p.mean_score for p in row] for row in heat.cells] == [[0.51, 0.55], [0.53, 0.57]]
    curves = batch.curves()
    assert [(label, [p.mean_score for p in line]) for label, line in curves.series] == [
        ("gamma 0.1", [0.51, 0.55]),
        ("gamma 0.2", [0.53, 0.57]),
    ]


def test_batch__many_curves_are_thinned_and_keep_the_best():
    points = [point(0.9 if (C, g) == (1, 7) else 0.5, C=C, gamma=g) for C in (1, 2) for g in range(30)]
    curves = batch_of({"points": points, "best": {"params": {"C": 1, "gamma": 7}}}, []).curves(most=8)
    assert len(curves.series) == 8
    assert curves.hidden == 22
    assert {"gamma 0", "gamma 7", "gamma 29"} <= {label for label, _ in curves.series}


def test_batch__says_what_is_held_and_what_is_hidden(edited):
    def widen(metrics, evaluation):
        grid = [(C, g, s) for C in (1, 2) for g in range(10) for s in ("none", "maxabs")]
        metrics["points"] = [point(0.9, **{"C": C, "kernel.gamma": g, "data.scale": s}) for C, g, s in grid]
        metrics["best"] = metrics["points"][0]

    text = Page(edited("batch", widen)).text
    assert "one standard deviation of the fold scores; data.scale = none; 2 curves not shown" in text


def test_batch__of_kernels_has_no_curve_but_a_leaderboard(edited):
    def kernels(metrics, evaluation):
        specs = [{"name": "linear"}, {"name": "rbf", "gamma": 0.5}]
        metrics["points"] = [point(0.9 - 0.1 * k, kernel=spec) for k, spec in enumerate(specs)]
        metrics["best"] = {"kernel": {"name": "linear"}}

    text = Page(edited("batch", kernels)).text
    assert "rbf(gamma=0.5)" in text
    assert "Score along" not in text
    assert "Mean score over" not in text


def colours(html):
    """CSS variables of the light and of the dark scheme."""
    light, dark = re.findall(r":root \{([^}]*)\}", html)[:2]
    found = [dict(re.findall(r"--([\w-]+): ([^;]+);", block)) for block in (light, dark)]
    return found[0], found[0] | found[1]


def rgb(text):
    return [int(text[k : k + 2], 16) for k in (1, 3, 5)] if text[0] == "#" else [int(v) for v in text.split()]


def contrast(a, b):
    def luminance(colour):
        linear = [c / 3294.6 if c <= 10.31 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_page__contrast_as_wcag_asks(pages, scheme):
    of = colours(pages["digits"])[scheme]
    text = [(ink, on) for ink in ("ink", "muted") for on in ("surface", "page", "soft")]
    text += [(mood, f"{mood}-soft") for mood in ("good", "warn", "bad")] + [("good", "surface"), ("bad", "surface")]
    assert [pair for pair in text if contrast(rgb(of[pair[0]]), rgb(of[pair[1]])) < 4.5] == []
    assert [k for k in range(10) if contrast(rgb(of[f"c{k}"]), rgb(of["surface"])) < 3] == []
    most = float(of["most"])
    for cell in ("heat", "error"):
        mixed = [most * c + (1 - most) * s for c, s in zip(rgb(of[cell]), rgb(of["surface"]), strict=True)]
        assert contrast(rgb(of["ink"]), mixed) >= 4.5


def outline(html):
    """Headings and number of figures."""
    return re.findall(r"<h2[^>]*>([^<]*)", html), html.count("</svg>")


def test_page__has_these_headings_and_figures(pages):
    headings = ["Confusion matrix", "Another threshold", "Worst errors", "ROC curve", "Precision and recall"]
    headings += ["Decision regions", "Certificates", "Convergence", "Time and memory", "Planned and measured", "Plan"]
    assert outline(pages["cancer"]) == ([*headings, "Configuration", "Versions"], 4)
