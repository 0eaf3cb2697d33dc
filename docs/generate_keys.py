"""Write docs/reference/keys.md, every key of a config from its schema: `python docs/generate_keys.py`."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.authoring.json_schema import json_schema
from pipeline.config.quantities import size
from svmcore.approximation import Approximation
from svmcore.kernels import Kernel
from svmcore.solvers import Solver

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "keys.md"

HEAD = """# Every key

<!-- written by docs/generate_keys.py: change that, not this -->

What each key of a config accepts, and its default. [Configuration](../configuration.md) says what the keys are for.
`marginflow config CONFIG` prints them with their values, and `marginflow schema` gives this page to your editor.

## Sections
"""

PARAMETERS = {  # of solvers, kernels and approximations
    "tol": "bound of the KKT gap of the answer",
    "max_iter": "most steps of the solver's own kind; -1: no limit",
    "time_limit": "seconds for each fit; `null`: no limit",
    "working_set": "most variables of a working set, 2 or more",
    "newcomers": "variables that a round adds to it, 2 or more",
    "shuffle": "whether each epoch takes the rows in a new random order",
    "seed": "of the random order",
    "max_passes": "ends after so many passes in a row that changed nothing",
    "min_change": "a step counts if a coefficient moves by so much",
    "gamma": "a number above 0, `scale` = 1 / (p var(X)), or `auto` = 1 / p",
    "degree": "a whole number, 1 or more",
    "coef0": "a number",
    "kernel": "another kernel",
    "left": "another kernel",
    "right": "another kernel",
    "scale": "a number above 0",
    "factor": "`normalise`, or `{name: gaussian, gamma: g}`",
    "rank": "how many landmarks at most",
    "polish": "`true`: `smo` goes on from the answer to the exact machine; or `false`",
    "landmarks": "`uniform`, `kmeans` or `rpcholesky`",
}
NEEDED = "needed"
REQUIRED = ("data.source", "cluster.tls.ca", "cluster.tls.cert", "cluster.tls.key", "cluster.workers.maximum")


def sections(properties: Mapping[str, Any], definitions: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """A line for each key and the keys below it."""
    for key, found in properties.items():
        inner = _inner(found, definitions)
        if inner is None or any(part.get("type", "null") != "null" for part in found.get("anyOf", ())):
            yield f"| `{above}{key}` | {_escaped(found['description'])} | {_default(found, above + key)} |"
        yield from sections(inner or {}, definitions, f"{above}{key}.")


def _inner(found: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Keys of the section that a key holds."""
    for part in (found, *found.get("anyOf", ()), *found.get("allOf", ())):
        if "$ref" in part:
            return definitions[part["$ref"].rpartition("/")[2]].get("properties")
    return None


def _default(found: Mapping[str, Any], key: str) -> str:
    if key in ("kernel", "solver"):
        return {"kernel": "`rbf`", "solver": "`auto`"}[key]
    if key == "name":
        return "the file's stem"
    if "default" not in found:
        return "none" if key not in REQUIRED else NEEDED
    value = found["default"]
    if key.startswith("cache."):
        return f"`{size(value).replace(' ', '')}`"
    return "none" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("**", "\\*\\*")


def family(kind: Any) -> Iterator[str]:
    """A line for each key of each kernel or solver."""
    for name in kind.names():
        fields = dataclasses.fields(kind.named(name))
        if not fields:
            yield f"| `{name}` | | no keys of its own | |"
        for field in fields:
            default = NEEDED if field.default is dataclasses.MISSING else f"`{_yaml(field.default)}`"
            yield f"| `{name}` | `{field.name}` | {PARAMETERS[field.name]} | {default} |"


def _yaml(value: Any) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def page() -> str:
    """The page as text."""
    schema = json_schema()
    lines = [HEAD, "| key | accepts | default |", "|---|---|---|", *sections(schema["properties"], schema["$defs"])]
    for title, text, kind in (
        ("Kernels", "`kernel: rbf`, or `kernel: {name: rbf, gamma: 0.1}`.", Kernel),
        ("Solvers", "`solver: smo`, or `solver: {name: smo, time_limit: 600}`.", Solver),
        ("Approximations", "`approximation: {name: nystroem, rank: 500}`.", Approximation),
    ):
        lines += [
            "",
            f"## {title}",
            "",
            text,
            "",
            "| name | key | accepts | default |",
            "|---|---|---|---|",
            *family(kind),
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
