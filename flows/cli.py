"""The command line `marginflow`, and the one place where an error becomes an exit code.

0 done, 1 failed on the way, 2 the input is at fault (one line on stderr), 3 a gate said no, 130 / 143 after Ctrl-C /
SIGTERM.
Commands import what they need when they run, so `marginflow --help` is quick and prefect comes last.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from flows.commands import models, runs, train, write
from flows.commands.app import DONE, FAILED, INTERRUPTED, REFUSED, TERMINATED, app
from flows.commands.printed import tell
from flows.stops import sigterm_raised

__all__ = ["COMMANDS", "app", "main"]

COMMANDS = (train, models, runs, write)  # importing a module registers its commands
STOPPED = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    try:
        import pipeline  # noqa: F401
    except ImportError as error:  # on a system that it refuses
        tell(f"marginflow: {error}")
        return REFUSED
    with sigterm_raised():
        code = _outcome(argv)
    if code in STOPPED:
        tell(f"{STOPPED[code]}; what is finished is kept, the same command goes on from there")
    return code


def _outcome(argv: Sequence[str] | None) -> int:
    try:
        result = app(args=argv, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else FAILED
    except typer.Exit as error:
        return int(error.exit_code)
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        return _code_of(error)
    return result if isinstance(result, int) else DONE


def _code_of(error: Exception) -> int:
    """What a user did wrong is refused, everything else has failed."""
    usage = getattr(error, "format_message", None)  # typer's errors of usage, whichever click it carries
    if usage and type(error).__name__ == "NoArgsIsHelpError":  # `marginflow` alone: its message is the help
        tell(usage())
        return REFUSED
    if usage:
        return _fail(usage(), REFUSED)
    from svmcore.errors import SVMError  # half a second that `--help` need not wait for

    return _fail(error, REFUSED if isinstance(error, SVMError) else FAILED)


def _fail(error: Any, code: int) -> int:
    """One line on stderr; the traceback only of failures, and only if MARGINFLOW_DEBUG asks for it."""
    if code == FAILED and os.environ.get("MARGINFLOW_DEBUG"):
        traceback.print_exception(error)
    from pipeline.config.redact import redacted_text

    text = redacted_text(" ".join(str(error).split()))
    kind = "" if code == REFUSED or not isinstance(error, BaseException) else f"{type(error).__name__}: "
    tell(f"marginflow: {kind}{text}")
    return code


if __name__ == "__main__":
    sys.exit(main())
