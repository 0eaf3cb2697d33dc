"""Peak resident memory of this process, and memory touched before the clock starts."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import psutil

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")


def resident_bytes() -> int:
    """Resident memory now."""
    return psutil.Process().memory_info().rss


def reset_peak() -> None:
    """Start the peak again from the present (Linux: writing 5 resets VmHWM)."""
    CLEAR_REFS.write_text("5")


def peak_bytes() -> int:
    """Largest resident memory since `reset_peak`, as the kernel counted it."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def touch(n_bytes: int) -> int:
    """Write one byte to each page of n_bytes of fresh memory and give it back: returns the bytes touched.

    On a virtual machine the host backs a page when it is first written, at 1-2 s per GB; later 0.1 s per GB.
    """
    n_bytes = min(n_bytes, int(0.8 * psutil.virtual_memory().available))
    page = os.sysconf("SC_PAGE_SIZE")
    with mmap.mmap(-1, n_bytes) as memory:
        for lo in range(0, n_bytes, 2**28):
            memory[lo : min(lo + 2**28, n_bytes) : page] = bytes(-(-min(2**28, n_bytes - lo) // page))
    return n_bytes
