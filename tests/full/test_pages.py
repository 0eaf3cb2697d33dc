"""Reports and the index of a store in a real browser: what they can do, and what axe-core finds against them."""

import csv
import json
import os
import re
import runpy
import shutil
from pathlib import Path

import pytest

from pipeline import run
from pipeline.report.comparison import write_comparison

pytestmark = pytest.mark.full
ROOT = Path(__file__).parents[2]
playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra `full`")
axe_module = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra `full`")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no Chromium here", allow_module_level=True)
SIZES = {"wide": (1200, 900), "narrow": (400, 800)}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Three nights of two classes, of which the second fails its gate; ten classes; values; one class."""
    folder = tmp_path_factory.mktemp("pages")
    gallery = runpy.run_path(str(ROOT / "docs" / "generate_gallery.py"), run_name="generate_gallery")
    cancer, sweep = gallery["cancer"](folder), {"sweep": gallery["SWEEP"]}
    base = {key: cancer[key] for key in ("cluster", "store")}
    gate = {"gate": {"drop": {"accuracy": 0.02}}}
    digits = {"name": "digits", "data": {"source": "sklearn:digits", "test": 0.3}, "C": 10}
    diabetes = {"source": "sklearn:diabetes", "test": 0.3, "scale": "standard"}
    configs = {
        "first": cancer,
        "failed": cancer | {"C": 0.01} | gate,
        "batch": cancer | sweep | gate,
        "digits": base | digits,
        "values": base | {"name": "diabetes", "task": "svr", "data": diabetes, "C": 10, "epsilon": 10},
        "inside": base | {"name": "odd", "task": "one-class", "nu": 0.1, "data": {"source": "sklearn:wine"}},
    }
    found = {name: Path(run(config)["run"]) / "report.html" for name, config in configs.items()}
    write_comparison(found["first"].parent, found["failed"].parent, folder / "comparison.html")
    return found | {"index": folder / "runs" / "index.html", "comparison": folder / "comparison.html"}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        yield started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture
def opened(browser, store):
    """Open a page; whatever it asks of the network, or complains of, fails the test."""
    pages, complaints = [], []

    def open_(name, size="wide", scheme="light", **options):
        width, height = SIZES[size]
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda asked: (
                complaints.append(asked.url) if not asked.url.startswith(("file:", "data:", "blob:")) else None
            ),
        )
        page.goto(store[name].as_uri())
        pages.append(page)
        return page

    yield open_
    for page in pages:
        page.close()
    assert complaints == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["failed", "batch", "digits", "values", "inside", "index", "comparison"])
def test_page__has_no_finding_of_axe_and_fits(opened, name, scheme, size):
    page = opened(name, size, scheme)
    found = axe_module.Axe().run(page).response
    told = [
        (one["id"], one["impact"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found["violations"]
    ]
    assert [one for one in told if one[1] in ("serious", "critical")] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    if folder := os.environ.get("MARGINFLOW_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}-{size}-{scheme}.png", full_page=True)


def column(page, heading, name):
    """Texts of a column of the table under a heading."""
    region = page.get_by_role("region", name=heading, exact=True).first
    heads = [text.strip() for text in region.locator("thead th").all_inner_texts()]
    return region, region.locator(f"tbody tr > :nth-child({heads.index(name) + 1})").all_text_contents()


def test_table__is_sorted_by_a_click_and_by_the_keyboard(opened):
    page = opened("batch")
    region, scores = column(page, "Leaderboard", "mean score")
    assert len(scores) == 24
    assert scores == sorted(scores, reverse=True)
    region.get_by_role("button", name="C", exact=True).click()
    assert [float(c) for c in column(page, "Leaderboard", "C")[1]] == sorted([0.1, 1, 10, 100] * 6)
    assert region.locator("th[aria-sort=ascending]").inner_text() == "C"
    region.get_by_role("button", name="mean score").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert column(page, "Leaderboard", "mean score")[1] == scores
    assert region.locator("tbody tr:visible").count() == 15
    page.get_by_role("button", name="Show all 24").click()
    assert region.locator("tbody tr:visible").count() == 24


def test_table__is_given_as_csv(opened, store):
    page = opened("batch")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Leaderboard as CSV").click()
    assert saved.value.suggested_filename == "leaderboard.csv"
    rows = [*csv.DictReader(Path(saved.value.path()).read_text().splitlines())]
    points = json.loads((store["batch"].parent / "metrics.json").read_text())["points"]
    assert [float(row["mean score"]) for row in rows] == [point["mean_score"] for point in points]


def test_figure__tells_the_value_under_the_pointer_and_by_the_keyboard(opened):
    page = opened("digits")
    figure = page.locator("figure[aria-labelledby=h-roc]")
    figure.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert re.fullmatch(
        r"0, [\d.]+: false positive rate [\d.]+, true positive rate [\d.]+", figure.locator(".tip").inner_text()
    )
    page.keyboard.press("ArrowDown")
    assert figure.locator(".tip").inner_text().startswith("1, ")
    page.keyboard.press("Escape")
    assert figure.locator(".tip").inner_text() == ""
    marks = json.loads(figure.locator("script").text_content())
    px, py, x, y = marks["lines"][2]["at"][-1]
    box, width = (
        figure.locator("svg").bounding_box(),
        figure.locator("svg").evaluate("svg => svg.viewBox.baseVal.width"),
    )
    page.mouse.move(box["x"] + px * box["width"] / width, box["y"] + py * box["width"] / width)
    assert figure.locator(".tip").inner_text().endswith(f"false positive rate {x:g}, true positive rate {y:g}")


def test_comparison__is_sorted_and_points_at_both_curves(opened):
    page = opened("comparison")
    region, names = column(page, "Scores and costs", "what")
    region.get_by_role("button", name="change").click()
    change = [float(text.split()[0]) for text in column(page, "Scores and costs", "change")[1]]
    assert change == sorted(change)
    assert column(page, "Scores and costs", "what")[1] != names
    figure = page.locator("figure[aria-labelledby=h-roc]")
    figure.focus()
    page.keyboard.press("ArrowRight")
    assert figure.locator(".tip").inner_text().startswith("A, ")
    page.keyboard.press("ArrowDown")
    assert figure.locator(".tip").inner_text().startswith("B, ")


def test_threshold__starts_with_the_model_and_moves(opened, store):
    page = opened("batch")
    box = page.locator(".threshold")
    counts = lambda: {name: int(box.locator(f".{name}").inner_text()) for name in ("tn", "fp", "fn", "tp")}  # noqa: E731
    confusion = json.loads((store["batch"].parent / "evaluation.json").read_text())["confusion"]
    assert [*counts().values()] == [*confusion[0], *confusion[1]]
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("End")
    assert (counts()["tp"], counts()["fp"]) == (0, 0)
    page.keyboard.press("Home")
    assert (counts()["fn"], counts()["tn"]) == (0, 0)
    assert box.locator(".recall").inner_text() == "100.00 %"


def test_neighbours__are_reached_by_their_links(opened, store):
    page = opened("failed")
    page.get_by_role("link", name=re.compile("^champion: ")).click()
    assert page.url == store["first"].as_uri()
    page.get_by_role("link", name="all runs").click()
    assert page.url == store["index"].as_uri()
    page.get_by_role("link", name=store["batch"].parent.name, exact=True).first.click()
    assert page.url == store["batch"].as_uri()
    page = opened("comparison")
    page.get_by_role("link", name=store["failed"].parent.name).click()
    assert page.url == store["failed"].as_uri()


@pytest.mark.parametrize("name", ["failed", "batch", "digits", "values", "inside", "index", "comparison"])
def test_page__is_whole_without_its_script_and_on_paper(browser, store, name):
    page = browser.new_page(java_script_enabled=False, viewport={"width": 800, "height": 1000})
    page.goto(store[name].as_uri())
    assert page.locator("h2:visible").count() >= 3
    page.emulate_media(media="print")
    assert page.locator("table:visible").count() >= 1
    assert page.pdf()[:5] == b"%PDF-"
    page.close()
