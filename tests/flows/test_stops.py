"""A SIGTERM ends a program wherever it comes: also in a destructor, which drops what is raised in it."""

import os
import signal
import subprocess
import sys

import pytest

from flows.stops import on_dropped, sigterm_raised

SIGTERM = "import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.01)"
IN_A_DESTRUCTOR = f"""
import sys, time
from flows.stops import sigterm_raised
class Dying:
    def __del__(self):
        {SIGTERM}
with sigterm_raised():
    Dying()
    time.sleep(30)
"""
UNHEARD = f"""
import os, signal, sys, time
from flows.stops import sigterm_raised
real, sent = os.kill, []
def lossy(pid, number):
    sent.append(number)
    if len(sent) != 2:
        real(pid, number)
os.kill = lossy
{IN_A_DESTRUCTOR}"""
HALF_MADE = f"""
from flows.stops import sigterm_raised
class Half:
    def __init__(self):
        {SIGTERM}
        self.made = True
    def __del__(self):
        self.made
with sigterm_raised():
    try:
        Half()
    except SystemExit as error:
        code = error.code
raise SystemExit(code)
"""


@pytest.mark.parametrize(
    "script",
    [IN_A_DESTRUCTOR, UNHEARD, HALF_MADE],
    ids=["in a destructor", "sent again but not heard", "of a half made object"],
)
def test_sigterm__is_heard_and_nothing_else_is_said(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (143, "")


def test_sigterm__afterwards_all_is_as_found():
    found = signal.getsignal(signal.SIGTERM), sys.unraisablehook
    with pytest.raises(SystemExit) as left, sigterm_raised():
        os.kill(os.getpid(), signal.SIGTERM)
    assert left.value.code == 143
    assert (signal.getsignal(signal.SIGTERM), sys.unraisablehook) == found


def test_dropped__an_error_goes_to_the_log(monkeypatch, caplog):
    class Broken:
        def __del__(self):
            raise ValueError("broken at its end")

    monkeypatch.setattr(sys, "unraisablehook", on_dropped)
    with caplog.at_level("INFO", logger="marginflow"):
        Broken()
    assert "broken at its end" in caplog.text
