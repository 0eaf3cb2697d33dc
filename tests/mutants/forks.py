"""Runs of one module's tests in forks of this process, which has run them once: what no fault changes is loaded.

    python -S tests/mutants/forks.py ask SOCKET      ask for a run, and exit as it does

A run costs its tests and the import of the module with a fault, and of those that import it: compiled functions are
ready, as are the libraries of others.
"""

import ast
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["ask", "serve"]


class Fixtures:
    """What the fixtures `names` of the first run gave is what they give in every fork: no fault changes them."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.values = names, {}

    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Any:
        """What is kept, with the environment of that time; None has pytest make it."""
        if fixturedef.argname not in self.values:
            return None
        value, environment = self.values[fixturedef.argname]
        os.environ.update(environment)
        fixturedef.cached_result = value, fixturedef.cache_key(request), None
        return True if value is None else value

    def pytest_fixture_post_finalizer(self, fixturedef: Any) -> None:
        """Keep it as it goes."""
        if fixturedef.argname in self.names and fixturedef.cached_result is not None:
            self.values[fixturedef.argname] = fixturedef.cached_result[0], dict(os.environ)


def serve(address: Path, faulty: list[str], seconds: int, kept: list[str], given: list[str]) -> int:
    """Run pytest with what is `given` for everyone who connects; a run of more processor time has failed.

    Returns 1 where the tests fail without a fault.
    """
    import pytest

    fixtures = Fixtures(kept)
    if pytest.main([*given, f"--basetemp={address.parent}/kept"], plugins=[fixtures]):
        return 1
    forget({str(Path(path).with_suffix("")).replace("/", ".") for path in faulty})
    sys.dont_write_bytecode = True  # of a fault: it would be taken for the source that follows in the same second
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        server.listen()
        while True:
            with server.accept()[0] as connection:
                child = os.fork()
                if not child:
                    signal.setitimer(signal.ITIMER_PROF, seconds)
                    signal.alarm(20 * seconds)  # it waits for what does not come, or others have the machine
                    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                    os._exit(int(pytest.main([*given, f"--basetemp={address.parent}/fork"], plugins=[fixtures])))
                connection.sendall(b"passed" if os.waitpid(child, 0)[1] == 0 else b"failed")


def forget(faulty: set[str]) -> None:
    """Take the modules `faulty`, what imports them, directly or not, and the tests from the modules that are loaded."""
    ours = {name: module.__file__ for name, module in sys.modules.items() if is_ours(module)}
    needs = {name: set(imports(Path(file))) for name, file in ours.items()}
    stale = faulty
    while found := {name for name in ours if name not in stale and needs[name] & stale}:
        stale = stale | found
    for name in [name for name in sys.modules if name in stale or name.split(".")[0] in ("tests", "conftest")]:
        del sys.modules[name]
        package, _, last = name.rpartition(".")
        if last in vars(sys.modules.get(package, object)):  # `from package import module` would find the sound one
            delattr(sys.modules[package], last)


def is_ours(module: object) -> bool:
    """Whether a module is a file of this tree."""
    return (getattr(module, "__file__", None) or "").startswith(f"{Path.cwd()}/")


def imports(file: Path) -> Iterator[str]:
    """Names that a file imports as it is loaded; those inside of functions are looked up when these are called."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ask(address: str) -> int:
    """0 if the tests pass now."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        return 0 if connection.recv(6) == b"passed" else 1


if __name__ == "__main__":
    what, address, *rest = sys.argv[1:]
    if what == "ask":
        sys.exit(ask(address))
    paths, seconds, kept, *given = rest
    sys.exit(serve(Path(address), paths.split(","), int(seconds), kept.split(","), given))
