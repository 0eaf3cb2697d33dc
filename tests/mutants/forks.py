"""Runs of one module's tests in forks of this process, which has imported what takes long and changes with no fault.

    python -S tests/mutants/forks.py ask SOCKET      ask for a run, and exit as it does

A run costs its tests and the import of our own modules, a third of what a new process costs.
"""

import importlib
import os
import signal
import socket
import sys
from pathlib import Path

__all__ = ["ask", "serve"]

OF_OTHERS = (
    "hypothesis",
    "numba",
    "scipy.linalg",
    "scipy.sparse",
    "sklearn.svm",
    "dask.distributed",
    "zarr",
    "pyarrow",
)


def serve(address: Path, given: list[str], seconds: int) -> None:
    """Run pytest with what is `given` for everyone who connects; a run that takes longer has failed."""
    import pytest

    for name in OF_OTHERS:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        server.listen()
        while True:
            with server.accept()[0] as connection:
                child = os.fork()
                if not child:
                    signal.alarm(seconds)
                    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                    os._exit(int(pytest.main(given)))
                connection.sendall(b"passed" if os.waitpid(child, 0)[1] == 0 else b"failed")


def ask(address: str) -> int:
    """0 if the tests pass now."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        return 0 if connection.recv(6) == b"passed" else 1


if __name__ == "__main__":
    what, address, *rest = sys.argv[1:]
    sys.exit(ask(address) if what == "ask" else serve(Path(address), rest[1:], int(rest[0])))
