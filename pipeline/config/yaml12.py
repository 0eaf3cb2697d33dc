"""YAML by version 1.2's core schema, through PyYAML's safe loader: `1e-3` is a float and `no` is a string.

PyYAML follows YAML 1.1, where `1e-3` is a string, `no` is False, `010` is 8 and `1:30` is 90; none of these is
wanted in a file of numbers and labels. A key given twice is an error here, not a silent overwrite.
"""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from svmcore.errors import InputError

__all__ = ["MAX_TEXT", "dump", "parse"]

MAX_TEXT = 4 << 20  # characters: a list of 50,000 points; PyYAML reads some 200,000 a second
MAX_VALUES = 1_000_000  # with every alias written out

_FLOAT = (
    r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))"
    r"|\.(?:nan|NaN|NAN)"
)
_CORE_SCHEMA = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
)


class _SafeLoader(yaml.SafeLoader):
    """The safe loader: no tag makes an object, and the core schema's resolvers stand in place of YAML 1.1's.

    `yaml.safe_load` takes no other loader than its own, which reads YAML 1.1 and lets the last of two equal keys win;
    what it does with that loader is `get_single_data`.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping, refusing a key that is there twice."""
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen and key_node.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key if isinstance(key, Hashable) else id(key_node))
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


class _SafeDumper(yaml.SafeDumper):
    """The safe dumper, quoting exactly the strings that `_SafeLoader` would read as something else."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal objects out each time: anchors are for machines."""
        return True


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text, 10)


for _kind in (_SafeLoader, _SafeDumper):
    for _name, _pattern, _first in _CORE_SCHEMA:
        _kind.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), _first)
_SafeLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def parse(text: str, where: str = "YAML") -> Any:
    """Read one YAML document; `where` names it in errors.

    >>> parse("{tol: 1e-3, C: .inf, labels: [no, 010, 1:30]}")
    {'tol': 0.001, 'C': inf, 'labels': ['no', 10, '1:30']}
    """
    try:
        if len(text) > MAX_TEXT:
            raise InputError(f"{where}: {len(text):,} characters, more than {MAX_TEXT:,}; name files of data, not rows")
        loader = _SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_aliases(node, where)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}, line {mark.line + 1}, column {mark.column + 1}" if mark else where
        remedy = "; indent with spaces" if "\\t" in str(error.problem) else ""
        raise InputError(f"{place}: not valid YAML: {error.problem or error.context}{remedy}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None
    except (ValueError, KeyError, AttributeError) as error:  # PyYAML's own at `!!int x`, `!!bool x`, `!!timestamp x`
        why = f"a value does not fit its tag ({error}); leave the tag out"
        raise InputError(f"{where}: not valid YAML: {why}") from None
    except RecursionError:
        raise InputError(f"{where}: not valid YAML: brackets within brackets, too many levels; use fewer") from None


def _check_aliases(root: yaml.Node, where: str) -> None:
    """Refuse aliases that stand for very many values, or for themselves, before anything is made of them."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        """Values below a node with every alias written out; 0 marks a node whose own values are being counted."""
        if isinstance(node, yaml.ScalarNode):
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = 0
            parts = (part for item in node.value for part in (item if isinstance(item, tuple) else (item,)))
            sizes[id(node)] = 1 + sum(size(part) for part in parts)
        if not 0 < sizes[id(node)] <= MAX_VALUES:
            what = f"more than {MAX_VALUES:,} values" if sizes[id(node)] else "themselves"
            raise InputError(f"{where}, line {node.start_mark.line + 1}: aliases that stand for {what}; write them out")
        return sizes[id(node)]

    size(root)


def dump(value: Any) -> str:
    """Write `value` so that `parse` reads the same value back, keys in the order given.

    >>> parse(dump({"tol": 1e-07, "label": "1e-3"}))
    {'tol': 1e-07, 'label': '1e-3'}
    """
    return yaml.dump(value, Dumper=_SafeDumper, sort_keys=False, allow_unicode=True, default_flow_style=False)
