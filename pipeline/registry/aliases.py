"""Aliases: a name such as `champion` for one of the runs called NAME, and the log of every move.

An alias is its log: numbered entries STORE/.aliases/NAME/ALIAS/00000001.json, of which the last says what it names.
An entry is written whole and only where there is none, so a move is one step, on a folder and on S3, and of two that
move at once one comes after the other. Nothing is ever written over.
"""

import contextlib
import dataclasses
import datetime
import getpass
import json
import re
import socket
from pathlib import Path

from pipeline.config.values import expand, is_url
from pipeline.storage.base import Store
from pipeline.storage.runs import open_store
from svmcore.errors import InputError, did_you_mean

__all__ = ["Move", "aliases", "current", "last_moves", "promote", "resolved", "run_at"]

FOLDER = ".aliases"
ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
DEFAULT_STORE = "runs"


@dataclasses.dataclass(frozen=True)
class Move:
    """One move of an alias: to which run (`NAME/RUN_ID`), when (UTC), by whom and why; `before` is the run it left."""

    alias: str
    run: str
    at: str
    who: str
    why: str
    before: str | None

    @property
    def name(self) -> str:
        """Of the experiment."""
        return self.run.partition("/")[0]


def promote(store: Store, run: str, alias: str = "champion", why: str = "") -> Move:
    """Let `alias` name the run `NAME/RUN_ID` from now on; returns the move.

    Raises
    ------
    InputError
        A run that is not there or has no model, or an alias with other characters than letters, digits, '.', '_', '-'.
    """
    if not ALIAS.fullmatch(alias):
        raise InputError(f"--as {alias!r}: letters, digits, '.', '_' and '-', beginning with a letter, are accepted")
    _check_model(store, run)
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    who = f"{_user()}@{socket.gethostname()}"
    while True:
        log = _log(store, run.partition("/")[0], alias)
        before = _move(store, log[-1]).run if log else None
        move = Move(alias, run, at, who, why, before)
        key = f"{FOLDER}/{move.name}/{alias}/{len(log) + 1:08d}.json"
        if store.create_bytes(key, json.dumps(dataclasses.asdict(move), indent=1).encode()):
            return move


def _user() -> str:
    with contextlib.suppress(OSError, KeyError):  # an account without a name, as in some containers
        return getpass.getuser()
    return "unknown"


def _check_model(store: Store, run: str) -> None:
    try:
        metrics = json.loads(store.get_bytes(f"{run}/metrics.json"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"no run {run} in {store.url}; `marginflow runs` lists them") from None
    if metrics["model"] is None:
        raise InputError(f"the run {store.address(run)} has no model; set sweep.refit in its config and run it again")


def current(store: Store, name: str, alias: str) -> Move | None:
    """The last move of an alias of the runs called `name`; None if it names nothing."""
    log = _log(store, name, alias)
    return _move(store, log[-1]) if log else None


def aliases(store: Store) -> dict[str, list[Move]]:
    """Log of every alias, oldest move first, by `NAME@ALIAS`."""
    return _moves(store, _logs(store))


def last_moves(store: Store) -> dict[str, Move]:
    """The last move of every alias, by `NAME@ALIAS`: what it names now."""
    lasts = {alias: log[-1:] for alias, log in _logs(store).items()}
    return {alias: moves[0] for alias, moves in _moves(store, lasts).items()}


def _logs(store: Store) -> dict[str, list[str]]:
    """Keys of the entries of every alias, oldest first."""
    found: dict[str, list[str]] = {}
    for key in sorted(store.keys(FOLDER)):
        _, name, alias, _ = key.split("/")
        found.setdefault(f"{name}@{alias}", []).append(key)
    return found


def _log(store: Store, name: str, alias: str) -> list[str]:
    return sorted(store.keys(f"{FOLDER}/{name}/{alias}"))


def _move(store: Store, key: str) -> Move:
    return _read(store, key, store.get_bytes(key))


def _moves(store: Store, logs: dict[str, list[str]]) -> dict[str, list[Move]]:
    """Entries of many logs, read several at a time."""
    texts = dict(store.get_many(key for log in logs.values() for key in log))
    return {alias: [_read(store, key, texts[key]) for key in log] for alias, log in logs.items()}


def _read(store: Store, key: str, text: bytes) -> Move:
    try:
        move = Move(**json.loads(text))
    except (ValueError, TypeError):
        raise InputError(f"{store.address(key)}: is no entry of an alias; remove it or restore it") from None
    if not KEY.fullmatch(str(move.run)):
        raise InputError(f"{store.address(key)}: {move.run!r} is no run; remove it or restore it")
    return move


# --- addresses ------------------------------------------------------------------------------------------------------
def resolved(place: str) -> str:
    """Address of the run that `STORE/NAME@ALIAS` (or `NAME@ALIAS` in ./runs) names; any other place as it is."""
    folder, _, last = place.rstrip("/").rpartition("/")
    name, sign, alias = last.rpartition("@")
    if not sign or not name or (not is_url(expand(place)) and Path(expand(place)).expanduser().exists()):
        return place
    store = open_store(folder or DEFAULT_STORE, write=False)
    move = current(store, name, alias)
    if move is None:
        there = [*_logs(store)]
        shown = f"; there are {', '.join(there[:10])}{did_you_mean(last, there)}" if there else "; it has no aliases"
        raise InputError(f"no alias {last} in {store.url}{shown}")
    return store.address(move.run)


def run_at(place: str) -> tuple[Store, str]:
    """Store and key `NAME/RUN_ID` of a run, or of its model, at an address or an alias."""
    address = resolved(place).rstrip("/").removesuffix("/model.zarr")
    if not is_url(expand(address)):
        address = str(Path(expand(address)).expanduser().absolute())
    parts = address.rsplit("/", 2)
    if len(parts) < 3 or not KEY.fullmatch("/".join(parts[1:])):
        raise InputError(f"{place}: is no run; give STORE/NAME/RUN_ID or STORE/NAME@ALIAS")
    return open_store(parts[0], write=False), "/".join(parts[1:])
