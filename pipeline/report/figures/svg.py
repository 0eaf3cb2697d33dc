"""A matplotlib figure as an SVG fragment of an HTML page: themable, the same bytes every time.

Figures are drawn in stand-in colours that become CSS variables, so that one drawing serves light, dark
and print. What is drawn is not decided here. The values behind a drawing go with it, for those who point at it.
"""

import io
import json
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, NamedTuple

__all__ = ["INK", "LINE", "MARKERS", "MUTED", "SERIES", "SURFACE", "Marks", "draw_svg", "lines", "short"]

INK, MUTED, LINE, SURFACE = "#010101", "#020202", "#030303", "#040404"
SERIES = tuple(f"#0500{k:02x}" for k in range(10))
MARKERS = "os^Dv<>phX"
VARIABLES = {INK: "--ink", MUTED: "--muted", LINE: "--line", SURFACE: "--surface"}
VARIABLES |= {colour: f"--c{k}" for k, colour in enumerate(SERIES)}

STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 12,
    "axes.linewidth": 1.0,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.size": 11.5,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "legend.fontsize": 11.5,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,  # a class may be called $x$
    "xtick.color": LINE,
    "xtick.labelcolor": MUTED,
    "xtick.labelsize": 11,
    "ytick.color": LINE,
    "ytick.labelcolor": MUTED,
    "ytick.labelsize": 11,
}
MOST_MARKS = 1000  # values that go with a drawing
MOST_NAMED = 10  # lines that colours can tell apart
NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


class Marks(NamedTuple):
    """Values that a reader may point at: the name of a line, its axes, x and y as they are drawn."""

    name: str
    ax: Any
    x: Sequence[float]
    y: Sequence[float]


Drawing = Callable[[Any], "Sequence[Marks] | None"]


def draw_svg(name: str, title: str, description: str, draw: Drawing, size: tuple[float, float]) -> str:
    """Call `draw(figure)` on an empty figure of `size` inches; return `<svg>` with title and description.

    `name` is unique on the page: it prefixes every id of the drawing. The marks that `draw` returns follow it as JSON.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with _house_style(name):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        marks = draw(figure) or ()
        figure.savefig(buffer, format="svg", metadata=NO_METADATA)
        values = _values(figure, marks)
    return _fragment(buffer.getvalue(), name, title, description) + values


def _values(figure: Any, marks: Sequence[Marks]) -> str:
    """Marks as JSON in units of the drawing: {x, y: names, lines: [{name, at: [[px, py, x, y], ...]}]}."""
    if not marks:
        return ""
    stride = -(-sum(len(mark.x) for mark in marks) // MOST_MARKS)
    ax = marks[0].ax
    found = {
        "x": ax.get_xlabel(),
        "y": ax.get_ylabel(),
        "lines": [{"name": mark.name, "at": _placed(figure, mark, stride)} for mark in marks],
    }
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return f'<script type="application/json">{text}</script>'


def _placed(figure: Any, mark: Marks, stride: int) -> list[list[float]]:
    pairs = [*zip(mark.x, mark.y, strict=True)]
    pairs = pairs[:-1:stride] + pairs[-1:]
    scale, height = 72 / figure.dpi, 72 * figure.get_figheight()
    pixels = mark.ax.transData.transform(pairs)
    return [
        [round(scale * px, 1), round(height - scale * py, 1), float(f"{x:.4g}"), float(f"{y:.4g}")]
        for (px, py), (x, y) in zip(pixels.tolist(), pairs, strict=True)
    ]


def lines(names: Sequence[str], worst: Sequence[int], remark: str) -> list[dict[str, Any]]:
    """Colour and label of each line; of too many to tell apart, only the three `worst` have them, with a remark.

    >>> [line["label"] for line in lines(["a", "b"], [1, 0], "slow")]
    ['a', 'b']
    """
    if len(names) <= MOST_NAMED:
        return [{"color": SERIES[k], "label": short(name)} for k, name in enumerate(names)]
    found: list[dict[str, Any]] = [{"color": MUTED, "alpha": 0.35, "linewidth": 1.1} for _ in names]
    found[worst[-1]]["label"] = f"{len(names) - 3} others"
    for rank, k in enumerate(worst[:3]):
        found[k] = {"color": SERIES[rank], "label": f"{short(names[k])} ({remark})", "zorder": 3}
    return found


def short(label: str, limit: int = 24) -> str:
    """A label that fits into a legend."""
    return label if len(label) <= limit else label[: limit - 1] + "…"


@contextmanager
def _house_style(name: str) -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        # the browser draws the text, so what matplotlib's own font lacks does not matter
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**STYLE, "svg.hashsalt": name})
        yield


def _fragment(svg: str, name: str, title: str, description: str) -> str:
    body = svg[svg.index("<svg") :]
    head, body = body[: body.index(">") + 1], body[body.index(">") + 1 :]
    view_box = re.search(r'viewBox="[^"]*"', head)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href=", "href=")
    # only inside tags: a class label is text and keeps its letters whatever they look like
    body = re.sub(r"<[^>]*>", lambda tag: _tag(tag.group(), name), body)
    box = view_box.group() if view_box else ""
    return (
        f'<svg {box} role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(description)}</desc>{body}'
    )


def _tag(tag: str, name: str) -> str:
    tag = re.sub(r'(?<![\w-])id="', f'id="{name}-', tag)
    tag = re.sub(r"\d+\.\d{3,}", lambda digits: f"{float(digits.group()):.2f}", tag)  # hundredths of a point are enough
    tag = tag.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    for colour, variable in VARIABLES.items():
        tag = tag.replace(colour, f"var({variable})")
    return tag
