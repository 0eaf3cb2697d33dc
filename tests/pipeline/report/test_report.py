"""Reports: pages that stand alone, hold the numbers of their runs, and leave out what is missing."""

import base64
import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys

import pytest

from pipeline.report.page import render, write_report
from pipeline.report.record import read_run
from svmcore.errors import InputError

from .report_runs import NAMES
from .taken_apart import Page

INDEX = "../../index.html"


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
