"""What this machine can do at best, and the floor that this sets for a fit."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

GEMM_SHAPE = (1024, 768, 8192)
EXP_BLOCK = 2**16
STREAM_BYTES = 2**28
REPEATS = 5
LATTICE_ROWS, LATTICE_TILE = 18_432, 384  # whole tiles of products of bytes


@dataclass(frozen=True)
class Rates:
    """Best rates of all cores: float32 GEMM flop/s, exponentials/s in cache, bytes/s written to memory."""

    gemm_flops: float
    exp_per_second: float
    write_bytes_per_second: float


Measure = Callable[[], Rates]


def typical(measured: Sequence[Rates]) -> Rates:
    """The median of each rate."""
    return Rates(*(statistics.median(rates) for rates in zip(*map(astuple, measured), strict=True)))


@dataclass(frozen=True)
class Floor:
    """Least seconds for a plan's kernel entries: a product of rows, one exponential and four bytes each."""

    plan: str
    entries: float
    product_seconds: float
    exp_seconds: float
    memory_seconds: float

    @property
    def seconds(self) -> float:
        """Their sum: the three share the cores, and blocks larger than the cache run them one after the other."""
        return self.product_seconds + self.exp_seconds + self.memory_seconds


def floor(rates: Rates, n: int, p: int, n_support: int, resident: bool, product: float | None = None) -> Floor:
    """Return the floor over n distinct rows: the support vectors' columns, or half the Gram if resident.

    A product takes `product` seconds, or 2p flop of float32.
    """
    entries = n * (n + 1) / 2 if resident else float(n_support) * n
    return Floor(
        "resident" if resident else "columns",
        entries,
        entries * (2 * p / rates.gemm_flops if product is None else product),
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


def lattice_product_seconds(X: np.ndarray, gamma: float) -> float | None:
    """Seconds, all cores at work, for a product of two rows of `X` as bytes or bits; None if these are no integers.

    The table's own rows tell, as zeros that neighbours share are left out.
    """
    from svmcore.kernels import RBF
    from svmcore.points.byte_products import byte_products, products_size
    from svmcore.points.lattice import sides
    from svmcore.runtime.threads import split_range

    points = RBF(gamma).prepare_gram(X[:LATTICE_ROWS], np.float32)
    if not points.on_lattice:
        return None
    left, right = sides(points.values, points.values)
    tiles = [slice(start, min(start + LATTICE_TILE, len(points))) for start in range(0, len(points), LATTICE_TILE)]
    columns = right.take(tiles[0])  # stay in the second-level cache

    def multiply(first: int, last: int) -> None:
        memory = np.empty(products_size(LATTICE_TILE, LATTICE_TILE), np.int32)
        for tile in tiles[first:last]:
            byte_products(left.take(tile), columns, memory)

    seconds = _best(lambda: split_range(len(tiles), multiply))
    return seconds / (len(points) * (tiles[0].stop - tiles[0].start))


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

    from pipeline.running.provenance import products

    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "products": products(),
        **asdict(rates),
    }
