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
    """Write one byte to each page of n_bytes of fresh memory, one page at least, and give it back: returns the bytes.

    On a virtual machine the host backs memory when it is first written, at 1-2 s per GB, and may take it back soon
    after it was freed; later writes cost 0.1-0.4 s per GB. Small pages and large ones (which NumPy asks for) are
    found in different places, so both are touched: solvers use either.
    """
    n_bytes = max(min(n_bytes, int(0.8 * psutil.virtual_memory().available)), os.sysconf("SC_PAGE_SIZE"))
    for large in (False, True):
        with mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            if large:
                memory.madvise(mmap.MADV_HUGEPAGE)
            _write_each_page(memory)
    return n_bytes


def _write_each_page(memory: mmap.mmap) -> None:
    page, part = os.sysconf("SC_PAGE_SIZE"), 2**28
    for lo in range(0, len(memory), part):
        hi = min(lo + part, len(memory))
        memory[lo:hi:page] = bytes(-(-(hi - lo) // page))
