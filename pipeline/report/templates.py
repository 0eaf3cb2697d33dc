"""Pages from their templates: values escaped, nothing undefined."""

from functools import cache
from pathlib import Path
from typing import Any

from pipeline.config import quantities
from pipeline.report import formats
from pipeline.report.batch import value_text

__all__ = ["template"]


@cache
def template(name: str) -> Any:
    """Return the template in the file `name` of this folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for module, names in (
        (formats, ("count", "label_text", "percent", "score")),
        (quantities, ("number", "seconds", "size")),
    ):
        environment.filters |= {name: getattr(module, name) for name in names}
    environment.filters["value_text"] = value_text
    return environment.get_template(name)
