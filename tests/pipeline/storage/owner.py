"""A process that owns something, for tests that stop and kill it: `python owner.py WHAT FOLDER [SECONDS]`.

It says what it has, waits for a line on its standard input, and says how it ended.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

from pipeline.storage.cache import claim, evict, using
from pipeline.storage.files import writing
from pipeline.storage.leases import LeaseLost, owned_folder, told_when_lost
from pipeline.storage.runs import open_store


def say(what):
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def cache(root, seconds):
    with using(root, seconds) as lease:
        claim(root, ["gram/used"])
        yield lease.path


@contextlib.contextmanager
def removing(root, seconds):
    """Evict all that nobody uses, again and again."""
    say("ready")
    while not Path(root, "stop").exists():
        evict(root, 0)
    yield root


@contextlib.contextmanager
def torn(folder, seconds):
    """Die between the write and the rename."""
    with writing(folder / "file") as partial:
        partial.write_bytes(b"new")
        say(partial)
        os.kill(os.getpid(), signal.SIGKILL)
    yield folder


@contextlib.contextmanager
def draft(folder, seconds):
    with open_store(folder).draft() as made:
        yield made


KINDS = {"folder": owned_folder, "cache": cache, "draft": draft, "removing": removing, "torn": torn}


def main(what, folder, seconds="600"):
    try:
        with KINDS[what](Path(folder), float(seconds)) as owned, told_when_lost(owned):
            say(owned)
            sys.stdin.readline()
            (owned / "more").write_text("") if what == "folder" else None
        say("whole")
    except LeaseLost:
        say("lost")


if __name__ == "__main__":
    main(*sys.argv[1:])
