"""What must not be written down: passwords and tokens in URLs, and under names that say what they are.

A secret belongs in the environment, as `${NAME}`, which stays as written everywhere and is filled in where it is used.
One that was written out all the same is put as `***` into config.yaml, the report, Prefect's parameters and errors.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config import yaml12
from svmcore.errors import InputError

__all__ = ["check_parameters", "redacted", "redacted_override", "redacted_text"]

HIDDEN = "***"
_NAME = r"[\w.-]*(?:passw|secret|token|credential|signature|key)[\w.-]*|sig|pwd"
_SECRET = re.compile(_NAME, re.IGNORECASE)
_USER = re.compile(r"(?<=://)(?!\$\{\w+\}@)[^/\s@'\"]+(?=@)")
_QUERY = re.compile(rf"(?<=[?&])({_NAME})=(?!\$\{{)[^&\s'\"]+", re.IGNORECASE)
_ASSIGNED = re.compile(rf"\b({_NAME})=(?!\$)\S+", re.IGNORECASE)
_FROM_ENVIRONMENT = re.compile(r"\$\{\w+\}")


def redacted_text(text: str) -> str:
    """Hide who signs in to a URL, and the parameters of its query that are secrets.

    >>> redacted_text("https://me:pass@host/x.csv?sig=abc&part=1"), redacted_text("https://${LOGIN}@host/x")
    ('https://***@host/x.csv?sig=***&part=1', 'https://${LOGIN}@host/x')
    """
    return _QUERY.sub(rf"\1={HIDDEN}", _USER.sub(HIDDEN, text))


def redacted(value: Any) -> Any:
    """Copy nested mappings and lists with what has a secret's name hidden; `${NAME}` stays.

    >>> redacted({"user": "me", "password": "1234", "token": "${TOKEN}", "prologue": ["export API_KEY=77"]})
    {'user': 'me', 'password': '***', 'token': '${TOKEN}', 'prologue': ['export API_KEY=***']}
    """
    if isinstance(value, Mapping):
        return {key: _hidden(part) if _SECRET.fullmatch(str(key)) else redacted(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(part) for part in value]
    return _ASSIGNED.sub(rf"\1={HIDDEN}", redacted_text(value)) if isinstance(value, str) else value


def _hidden(value: Any) -> Any:
    """`***`, unless there is nothing to hide."""
    from_environment = isinstance(value, str) and _FROM_ENVIRONMENT.fullmatch(value)
    return value if from_environment or value is None or isinstance(value, bool) else HIDDEN


def redacted_override(override: str) -> str:
    """Hide the secrets in a `KEY=VALUE` of the command line.

    >>> redacted_override("cluster.kwargs.password=1"), redacted_override("C=10")
    ('cluster.kwargs.password=***', 'C=10')
    """
    key, sign, text = override.partition("=")
    value = _parsed(text)
    name = key.rpartition(".")[2]
    hidden = redacted({name: value})[name] if not key.strip().startswith("cluster.tls") else value
    if hidden == value:
        return redacted_text(override)
    return f"{key}{sign}{hidden if isinstance(hidden, str) else json.dumps(hidden, default=str)}"


def check_parameters(config: Any, overrides: Sequence[str]) -> None:
    """Refuse a class to import, and its arguments, in the parameters of a deployment.

    Whoever reaches its server can set them.

    Raises
    ------
    InputError
        Parameters that name cluster.factory or cluster.kwargs, or that hold a secret, which a database would keep.
    """
    clusters = [config.get("cluster")] if isinstance(config, Mapping) else []
    for override in overrides:
        key, _, text = override.partition("=")
        if redacted_override(override) != override:
            raise InputError(
                f"--set {redacted_override(override)}: holds a secret, which Prefect would keep; write ${{NAME}} and "
                "set NAME in the environment"
            )
        clusters.append(_parsed(text) if key.strip() == "cluster" else {key.strip().removeprefix("cluster."): None})
    for cluster in clusters:
        for name in cluster if isinstance(cluster, Mapping) else ():
            if str(name).split(".")[0] in ("factory", "kwargs"):
                raise InputError(
                    f"cluster.{name}: a class to import is taken from the config's file alone, never from the "
                    "parameters of a flow; write it into the file"
                )


def _parsed(text: str) -> Any:
    try:
        return yaml12.parse(text)
    except InputError:
        return text
