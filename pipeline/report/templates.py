"""Pages from their templates: values escaped, nothing undefined."""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.config import quantities
from pipeline.report import formats
from pipeline.report.batch import value_text

__all__ = ["template"]

WEB = Path(__file__).parent / "web"


@cache
def template(name: str) -> Any:
    """Return the template in the file `name` of the folder `web`.

    A page names its script by hash in its policy, so no other script runs in it.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(WEB),
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
    script = (WEB / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals |= {"script": Markup(script), "script_hash": f"sha256-{digest}"}
    return environment.get_template(name)
