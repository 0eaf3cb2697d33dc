"""Write docs/book.md and its pictures from config/book/*.yaml: `python docs/generate_book.py [--check]`.

Every figure of the page is taken from a run of its config file; `--check` compares the page with fresh runs and writes
nothing. Run it from the root of the repository.
"""

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import load_model, run
from pipeline.config.load import load_experiment
from svmcore.kernels.feature_maps import quadratic_map, weights

ROOT = Path(__file__).resolve().parent.parent
CONFIGS, PAGE, IMAGES = ROOT / "config" / "book", ROOT / "docs" / "book.md", ROOT / "docs" / "images"


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """One config file after its run: metrics, model and the training rows."""

    name: str
    metrics: dict[str, Any]
    model: Any
    X: Any
    y: Any

    @classmethod
    def of(cls, name: str, store: Path) -> "Result":
        """Run `config/book/NAME.yaml` into `store`."""
        path = CONFIGS / f"{name}.yaml"
        metrics = run(path, store=str(store))
        data = np.loadtxt(load_experiment(path).data.source, delimiter=",", skiprows=1)
        return cls(name, metrics, load_model(metrics["model"]).model, data[:, :-1], data[:, -1])

    @property
    def entry(self) -> dict[str, Any]:
        """The one entry of `per_class`."""
        return dict(self.metrics["per_class"][0])

    @property
    def hyperplane(self) -> list[float]:
        """The weights and the bias of a linear model."""
        return [*self.entry["weights"], self.entry["bias"]]

    @property
    def conic(self) -> list[float]:
        """Coefficients of x1^2, x1 x2, x1, x2^2, x2, 1 of a model with the kernel (1 + x'z)^2."""
        features = quadratic_map(self.model.support_vectors, coef0=1.0)
        a, c, cross, d, e, one = weights(features, self.model.coef[0])
        root = np.sqrt(2.0)
        return [a, root * cross, root * d, c, root * e, one + self.entry["bias"]]

    @property
    def decision(self) -> Any:
        """f(x_i) (n,) of the rows in the order of the CSV file."""
        return self.model.decision_function(self.X)[:, 0]

    @property
    def slack(self) -> Any:
        """max(0, 1 - y_i f(x_i)) (n,)."""
        return np.maximum(0.0, 1.0 - self.y * self.decision)

    @property
    def alpha(self) -> Any:
        """Alpha (n,) of the rows in the order of the CSV file; they are distinct."""
        same = (self.X[:, None] == self.model.support_vectors).all(axis=-1)
        return np.abs(same @ self.model.coef[0])


@dataclasses.dataclass(frozen=True)
class Figure:
    """One line of a table: what, as the book prints it, and the numbers of a run, to some decimals."""

    config: str
    what: str
    printed: str
    ours: Callable[[Result], Iterable[float]]
    decimals: int = 3


@dataclasses.dataclass(frozen=True)
class Example:
    """A section of the page."""

    title: str
    text: str
    figures: Sequence[Figure]
    errata: str = ""


def _sepal(config: str, printed: str) -> Figure:
    return Figure(config, "w, b", printed, lambda r: r.hyperplane)


EXAMPLES = (
    Example(
        "Example 23.3: a hard margin",
        "The 14 points of Table 23.1 with C infinite. Five points lie on the margin of a line in the plane, "
        "so alpha is not unique: compare w, b and the margin.",
        (
            Figure("23.3", "w, b", "(0.833, 0.334), -3.332", lambda r: r.hyperplane, 4),
            Figure("23.3", "margin 1/norm(w)", "1.114", lambda r: [r.entry["margin"]], 4),
            Figure("23.3", "objective e'alpha - w'w/2", "", lambda r: [r.entry["dual"]], 4),
        ),
    ),
    Example(
        "Example 23.4: slack",
        "Four more points make the classes overlap. With C = 1 and the hinge loss the hyperplane stays where "
        "it was and the four points pay.",
        (
            Figure("23.4", "w, b", "(0.834, 0.333), -3.334", lambda r: r.hyperplane, 4),
            Figure("23.4", "slack of x15 ... x18", "0.333, 1.667, 0.833, 2.834", lambda r: r.slack[14:]),
            Figure("23.4", "total slack", "5.667", lambda r: [r.slack.sum()]),
        ),
        "x16 is (2, 3), as in its table; the text below the table has (3, 3).",
    ),
    Example(
        "Example 23.6: the inhomogeneous quadratic kernel",
        "The six support vectors of the example, K = (1 + x'z)^2 and C = 4. The weights are those of the "
        "explicit map of `svmcore.kernels.feature_maps.quadratic_map`.",
        (
            Figure("23.6", "alpha", "0.6198, 2.069, 3.803, 0.3182, 2.9598, 3.8502", lambda r: r.alpha, 4),
            Figure("23.6", "b", "-8.841", lambda r: [r.entry["bias"]]),
            Figure("23.6", "x1^2, x1 x2, x1, x2^2, x2, 1", "", lambda r: r.conic),
        ),
        "With the printed w the bias is +8.84: its sign is lost in print.",
    ),
    Example(
        "Example 23.7: stochastic dual ascent on two lengths of the iris",
        "Algorithm 23.1 with the bias inside the norm: rows (x, 1), K + 1, no equality. At C = 1000 the "
        "book's loop, which ends when an epoch moves alpha by 0.0001, ends a little short, and the first "
        "config file ends there too; the second goes on to the optimum, where three rows at the margin fix "
        "the plane, so that it equals the one of the free bias.",
        (
            _sepal("23.7-C10", "(2.74, -3.74), -3.09"),
            _sepal("23.7-C1000", "(8.56, -7.14), -23.12"),
            _sepal("23.7-C1000-exact", ""),
            _sepal("23.7-C10-free", ""),
            _sepal("23.7-C1000-free", ""),
        ),
        "The positive class is the others; setosa is -1.",
    ),
    Example(
        "Example 23.8: versicolor on two principal components",
        "No line separates versicolor from the rest, a conic does. The book's homogeneous kernel on (x, 1) is "
        "our polynomial (1 + x'z)^2 with `bias: none`. Signs depend on those of the components and of the "
        "classes.",
        (
            Figure("23.8-linear", "w, b", "(0.16, 1.9), 0.8", lambda r: r.hyperplane),
            Figure(
                "23.8-quadratic",
                "x1^2, x1 x2, x1, x2^2, x2, 1",
                "1.86, 1.87, 0.14, 0.85, -1.22, -3.25",
                lambda r: r.conic,
            ),
        ),
    ),
    Example(
        "Example 23.9: Newton in the primal",
        "Example 23.7's rows with the squared hinge and C = 1000: Algorithm 23.2 takes a handful of steps, "
        "Algorithm 23.1 tens of thousands of epochs to the same hyperplane.",
        (
            Figure("23.9", "w, b", "(7.47, -6.34), -19.91", lambda r: r.hyperplane),
            Figure("23.9", "Newton steps", "", lambda r: [r.entry["n_iter"]], 0),
            Figure("23.9-dual", "w, b", "(7.47, -6.34), -19.89", lambda r: r.hyperplane),
        ),
    ),
    Example(
        "Example 23.10: Newton in the primal, with a kernel",
        "Example 23.8's conic with the squared hinge: Algorithm 23.3, and the dual of the same program.",
        (
            Figure(
                "23.10",
                "x1^2, x1 x2, x1, x2^2, x2, 1",
                "0.87, 0.64, -0.5, 0.43, -1.04, -2.398",
                lambda r: r.conic,
            ),
            Figure("23.10", "Newton steps", "", lambda r: [r.entry["n_iter"]], 0),
            Figure(
                "23.10-dual",
                "x1^2, x1 x2, x1, x2^2, x2, 1",
                "1.4, 1.34, -0.05, 0.66, -0.96, -2.66",
                lambda r: r.conic,
            ),
        ),
        "Both are the same convex program with one optimum, the one printed as primal; the one printed as "
        "dual is no optimum.",
    ),
    Example(
        "Five points in closed form",
        "(0, 0)-, (2, 2)+, (-1, -8)-, (-1, -1)-, (3, 3)+, from the tests of Shark: fractions that every "
        "solver must meet.",
        (
            Figure("five-hard", "alpha", "0.25, 0.25, 0, 0, 0", lambda r: r.alpha, 4),
            Figure("five-hard", "b", "-1", lambda r: [r.entry["bias"]], 4),
            Figure("five-hinge", "alpha", "0.1, 0.1, 0, 0.0125, 0.0125", lambda r: r.alpha, 4),
            Figure("five-hinge", "b", "-0.5", lambda r: [r.entry["bias"]], 4),
            Figure("five-squared", "alpha", "0.104, 0.104, 0, 0.008, 0.008", lambda r: r.alpha, 4),
            Figure("five-squared", "b", "-0.48", lambda r: [r.entry["bias"]], 4),
        ),
    ),
)

HEAD = """# The book's examples

<!-- written by docs/generate_book.py: change that, not this -->

The examples of chapter 23 of Zaki and Meira, *Data Mining and Analysis*, each run from a file of `config/book/`
(`marginflow run config/book/23.4.yaml`), with its figures beside the printed ones. Lines are the decision
boundary, dashes the margins f(x) = -1 and +1, rings the support vectors.
"""

TAIL = """
## Errata of the course notes that the other solvers come from

- Simplified SMO: the last factors of b1 are K(x_i, x_i) and K(x_i, x_j), those of b2 are K(x_i, x_j) and K(x_j, x_j).
- With eta = K_ii + K_jj - 2 K_ij the test that leaves a pair out is eta <= 0, not eta >= 0; in every SMO of ours such
  pairs go to the better end of their segment instead.
"""


def names() -> list[str]:
    """Config files of the page, each once, in its order."""
    return list(dict.fromkeys(figure.config for example in EXAMPLES for figure in example.figures))


def tol_of(name: str) -> float:
    """The tol of a config file."""
    return load_experiment(CONFIGS / f"{name}.yaml").build_solver().tol


def run_all(store: Path) -> dict[str, Result]:
    """Run every config file of the page."""
    return {name: Result.of(name, store) for name in names()}


def page(results: dict[str, Result]) -> str:
    """Text of docs/book.md."""
    return HEAD + "".join(_section(example, results) for example in EXAMPLES) + TAIL


def _section(example: Example, results: dict[str, Result]) -> str:
    rows = [
        f"| [{f.config}](../config/book/{f.config}.yaml) | {f.what} | {f.printed} | {_numbers(f, results)} |"
        for f in example.figures
    ]
    configs = dict.fromkeys(figure.config for figure in example.figures)
    pictures = [f"![{name}: decision boundary, margins, support vectors](images/book_{name}.png)" for name in configs]
    errata = [f"**Erratum.** {example.errata}", ""] if example.errata else []
    table = ["| config | what | printed | this run |", "|---|---|---|---|", *rows]
    return "\n".join(["", f"## {example.title}", "", example.text, "", *table, "", *errata, *pictures, ""])


def _numbers(figure: Figure, results: dict[str, Result]) -> str:
    return ", ".join(_fixed(value, figure.decimals) for value in figure.ours(results[figure.config]))


def _fixed(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0.0 else text


def draw(result: Result, path: Path) -> None:
    """Decision boundary, margins and support vectors of one run, as a small PNG."""
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(4.2, 3.4), dpi=80, layout="constrained")
    ax = figure.add_subplot(title=result.name)
    low, high = result.X.min(axis=0), result.X.max(axis=0)
    pad = 0.08 * (high - low)
    x1, x2 = (np.linspace(low[i] - pad[i], high[i] + pad[i], 160) for i in (0, 1))
    mesh = np.stack([axis.ravel() for axis in np.meshgrid(x1, x2)], axis=1)
    values = result.model.decision_function(mesh)[:, 0].reshape(160, 160)
    ax.contourf(x1, x2, values > 0, levels=[-0.5, 0.5, 1.5], colors=["#dbe6f4", "#f7e3d4"])
    ax.contour(
        x1, x2, values, levels=[-1, 0, 1], colors="#333333", linestyles=["dashed", "solid", "dashed"], linewidths=1
    )
    for label, marker, colour in ((1, "o", "#c4500f"), (-1, "^", "#1f5fa8")):
        rows = result.X[result.y == label]
        ax.plot(rows[:, 0], rows[:, 1], marker, color=colour, markersize=4, label=f"{label:+d}")
    support = result.model.support_vectors
    ax.plot(support[:, 0], support[:, 1], "o", markersize=8, markerfacecolor="none", markeredgecolor="#333333")
    figure.savefig(path, metadata={"Software": None})


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or compare it with fresh runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page would change")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as store:
        results = run_all(Path(store))
        text = page(results)
        if options.check:
            same = PAGE.read_text() == text
            sys.stderr.write("" if same else "docs/book.md differs: run python docs/generate_book.py\n")
            return 0 if same else 1
        PAGE.write_text(text)
        for result in results.values():
            draw(result, IMAGES / f"book_{result.name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
