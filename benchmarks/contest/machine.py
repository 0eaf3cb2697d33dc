"""What this machine can do at best, and the floor that this sets for a fit."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

GEMM_SHAPE = (1024, 768, 8192)
EXP_BLOCK = 2**16
STREAM_BYTES = 2**28
REPEATS = 5


@dataclass(frozen=True)
class Rates:
    """Best rates of all cores: float32 GEMM flop/s, exponentials/s in cache, bytes/s written to memory."""

    gemm_flops: float
    exp_per_second: float
    write_bytes_per_second: float


@dataclass(frozen=True)
class Floor:
    """Least seconds for a plan's kernel entries: 2p flop, one exponential and four bytes each."""

    plan: str
    entries: float
    gemm_seconds: float
    exp_seconds: float
    memory_seconds: float

    @property
    def seconds(self) -> float:
        """Their sum: the three share the cores, and blocks larger than the cache run them one after the other."""
        return self.gemm_seconds + self.exp_seconds + self.memory_seconds


def floor(rates: Rates, n: int, p: int, n_support: int, resident: bool) -> Floor:
    """Return the floor over n distinct rows: the support vectors' columns, or half the Gram if resident."""
    entries = n * (n + 1) / 2 if resident else float(n_support) * n
    return Floor(
        "resident" if resident else "columns",
        entries,
        entries * 2 * p / rates.gemm_flops,
        entries / rates.exp_per_second,
        entries * 4 / rates.write_bytes_per_second,
    )


def measure_rates() -> Rates:
    """Measure the machine's rates, each the best of five after one warm-up; about two seconds in all."""
    m, p, n = GEMM_SHAPE
    A, B, out = np.ones((m, p), np.float32), np.ones((n, p), np.float32), np.empty((m, n), np.float32)
    gemm = 2.0 * m * p * n / _best(lambda: np.matmul(A, B.T, out=out))
    cores = os.cpu_count() or 1
    blocks = [np.full(EXP_BLOCK, -0.5, np.float32) for _ in range(cores)]
    outs = [np.empty_like(block) for block in blocks]
    streams = [np.ones(STREAM_BYTES // 4, np.float32) for _ in range(cores)]
    with ThreadPoolExecutor(cores) as pool:
        exps = 200 * EXP_BLOCK * cores / _best(lambda: list(pool.map(_exponentials, blocks, outs)))
        written = STREAM_BYTES * cores / _best(lambda: list(pool.map(lambda stream: stream.fill(0.5), streams)))
    return Rates(gemm, exps, written)


def _exponentials(block: np.ndarray, out: np.ndarray) -> None:
    for _ in range(200):
        np.exp(block, out=out)


def _best(work: Callable[[], Any]) -> float:
    """Shortest of several runs."""
    work()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def describe(rates: Rates) -> dict[str, Any]:
    """Describe the machine, for the record."""
    import psutil

    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "numpy": np.__version__,
        **asdict(rates),
    }
