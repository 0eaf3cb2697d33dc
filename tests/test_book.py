"""The figures of the book and of the closed forms, from the config files; and the page that shows them."""

import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
BOOK = runpy.run_path(str(ROOT / "docs" / "generate_book.py"), run_name="generate_book")


@pytest.fixture(scope="module")
def book(tmp_path_factory, without_figures):
    """Every config of the book after its run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return BOOK["run_all"](tmp_path_factory.mktemp("book"))


def test_book__every_config_is_on_the_page_and_proved(book):
    assert sorted(book) == sorted(path.stem for path in (ROOT / "config" / "book").glob("*.yaml"))
    for name, result in book.items():
        assert result.metrics["status"] == "converged", name
        assert result.metrics["kkt_gap"] <= 1.05 * BOOK["tol_of"](name)


def test_book__page_shows_what_the_configs_give(book):
    assert (ROOT / "docs" / "book.md").read_text() == BOOK["page"](book)
    for name in book:
        assert (ROOT / "docs" / "images" / f"book_{name}.png").stat().st_size > 5000


def test_example_23_3__hard_margin(book):
    r = book["23.3"]
    np.testing.assert_allclose(r.hyperplane, [0.8333, 0.3333, -3.3333], atol=1e-4)
    assert r.entry["margin"] == pytest.approx(1.1142, abs=1e-4)
    assert r.entry["dual"] == pytest.approx(29 / 72, abs=1e-6)  # w'w / 2 with w = (5/6, 2/6)
    assert r.slack.max() < 1e-6


def test_example_23_4__slacks(book):
    r = book["23.4"]
    np.testing.assert_allclose(r.hyperplane, [0.8333, 0.3333, -3.3333], atol=1e-4)
    np.testing.assert_allclose(r.slack[14:], [0.333, 1.667, 0.833, 2.833], atol=1e-3)
    assert r.slack.sum() == pytest.approx(5.667, abs=1e-3)
    assert r.entry["slack"] == pytest.approx(r.slack.sum(), abs=1e-5)
    assert (r.alpha[14:] == 1.0).all()


def test_example_23_6__quadratic_kernel(book):
    r = book["23.6"]
    np.testing.assert_allclose(r.alpha, [0.6201, 2.0705, 3.8051, 0.3184, 2.9615, 3.8526], atol=1e-4)
    assert r.entry["bias"] == pytest.approx(8.846, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "hyperplane", "atol"),
    [
        ("23.7-C10", (2.746, -3.748, -3.087), 1e-3),
        ("23.7-C1000", (8.564, -7.137, -23.12), (5e-4, 5e-4, 5e-3)),  # an early end: each to its last digit
        ("23.7-C1000-exact", (60 / 7, -50 / 7, -162 / 7), 1e-4),
        ("23.7-C10-free", (4.000, -4.000, -9.000), 1e-3),
        ("23.7-C1000-free", (8.571, -7.143, -23.142), 1e-3),
    ],
)
def test_example_23_7__dual_ascent(book, name, hyperplane, atol):
    assert (np.abs(np.subtract(book[name].hyperplane, hyperplane)) < atol).all(), book[name].hyperplane


def test_example_23_7__the_exact_optimum_is_certified(book):
    entry = book["23.7-C1000-exact"].entry
    assert entry["relative_gap"] < 1e-7
    assert entry["dual"] == pytest.approx((60**2 + 50**2 + 162**2) / 49 / 2, rel=1e-6)  # the data are float32
    assert book["23.7-C1000"].entry["dual"] < entry["dual"]


def test_example_23_8__linear(book):
    np.testing.assert_allclose(np.abs(book["23.8-linear"].hyperplane), [0.163, 1.896, 0.804], atol=1e-3)


def test_example_23_8__quadratic(book):
    r = book["23.8-quadratic"]
    np.testing.assert_allclose(np.abs(r.conic), [1.866, 1.874, 0.148, 0.853, 1.215, 3.257], atol=1e-3)


def test_example_23_9__newton(book):
    for name in ("23.9", "23.9-dual"):
        np.testing.assert_allclose(book[name].hyperplane, [7.474, -6.340, -19.908], atol=1e-3)
    assert book["23.9"].entry["n_iter"] <= 10
    assert book["23.9-dual"].entry["n_iter"] > 10_000


def test_example_23_10__newton_with_a_kernel(book):
    for name in ("23.10", "23.10-dual"):
        np.testing.assert_allclose(np.abs(book[name].conic), [0.869, 0.643, 0.499, 0.428, 1.037, 2.400], atol=1e-3)


@pytest.mark.parametrize(
    ("name", "alpha", "bias"),
    [
        ("five-hard", (0.25, 0.25, 0, 0, 0), -1.0),
        ("five-hinge", (0.1, 0.1, 0, 0.0125, 0.0125), -0.5),
        ("five-squared", (0.104, 0.104, 0, 0.008, 0.008), -0.48),
    ],
)
def test_five_points__closed_forms(book, name, alpha, bias):
    np.testing.assert_allclose(book[name].alpha, alpha, atol=1e-8)
    assert book[name].entry["bias"] == pytest.approx(bias, abs=1e-8)
    assert book[name].y.tolist() == [-1, 1, -1, -1, 1]
