"""A matplotlib figure as an SVG fragment of an HTML page: themable, the same bytes every time.

Figures are drawn in stand-in colours that become CSS variables, so that one drawing serves light, dark
and print. What is drawn is not decided here.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

__all__ = ["INK", "LINE", "MARKERS", "MUTED", "SERIES", "SURFACE", "draw_svg"]

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
NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def draw_svg(name: str, title: str, description: str, draw: Callable[[Any], None], size: tuple[float, float]) -> str:
    """Call `draw(figure)` on an empty figure of `size` inches; return `<svg>` with title and description.

    `name` is unique on the page: it prefixes every id of the drawing.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with _house_style(name):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(buffer, format="svg", metadata=NO_METADATA)
    return _fragment(buffer.getvalue(), name, title, description)


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
    tag = tag.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    for colour, variable in VARIABLES.items():
        tag = tag.replace(colour, f"var({variable})")
    return tag
