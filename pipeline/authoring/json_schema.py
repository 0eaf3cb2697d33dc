"""The JSON schema of a config, for editors and checks: every key, what it accepts, its default."""

from typing import Any

from pipeline.config.schema import Experiment
from svmcore.kernels import Kernel
from svmcore.solvers import Solver

__all__ = ["json_schema"]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
SIZE = {"type": ["integer", "string", "null"], "pattern": r"^\s*[0-9.]+\s*[A-Za-z]*\s*$"}
SIZES = (("Cache", "limit"), ("Cache", "disk"), ("Cluster", "memory"))


def json_schema() -> dict[str, Any]:
    """Return the schema of a config as it is written: sizes such as 4GiB, kernels and solvers by name or in full."""
    schema = Experiment.model_json_schema()
    schema["required"] = ["data"]  # a config is named after its file
    properties, sections = schema["properties"], schema["$defs"]
    properties["kernel"] |= _family(Kernel)
    properties["solver"] |= _family(Solver)
    for section, key in SIZES:
        kept = {name: sections[section]["properties"][key][name] for name in ("description", "default")}
        sections[section]["properties"][key] = SIZE | kept
    refit = sections["Sweep"]["properties"]["refit"]
    refit["anyOf"] = [*refit.get("anyOf", []), {"const": False}]
    return {"$schema": DRAFT, "title": "marginflow config"} | {k: v for k, v in schema.items() if k != "title"}


def _family(family: Any) -> dict[str, Any]:
    """A kernel or solver: its name alone, or a mapping with the name and any of its parameters."""
    names = sorted(family.names())
    fields = sorted({field for name in names for field in getattr(family.named(name), "__dataclass_fields__", {})})
    mapping = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"enum": names}} | {field: {} for field in fields if field != "name"},
        "additionalProperties": False,
    }
    return {"anyOf": [{"enum": names}, mapping], "type": ["string", "object"]}
