import os
import signal

import numpy as np
import pytest

from pipeline.compute.workers import InlineWorkers, never
from pipeline.kernel import columns
from pipeline.kernel.columns import WorkerColumns, computed_columns
from svmcore.kernels import RBF, Linear
from svmcore.sources import CachedColumns, Source

KERNEL = RBF(gamma=0.1)


@pytest.fixture(scope="module")
def exact(dataset):
    return KERNEL(dataset.X(), dataset.X())


def worker_columns(dataset, kernel, dtype, workers):
    return WorkerColumns(computed_columns(str(dataset.path), kernel, dtype), str(dataset.path), workers)


@pytest.mark.parametrize(("dtype", "atol"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_columns__are_those_of_the_dense_kernel(dtype, atol, dataset, exact, two_workers, monkeypatch):
    monkeypatch.setattr(columns, "ROWS", 300)
    monkeypatch.setattr(columns, "COLUMNS", 100)
    source = worker_columns(dataset, KERNEL, dtype, two_workers)
    idx = np.random.default_rng(0).permutation(700)[:250]
    found = source.columns(idx)
    assert isinstance(source, Source)
    assert found.dtype == dtype
    assert found.flags.c_contiguous
    np.testing.assert_allclose(found, exact[idx], atol=atol)
    assert source.n_computed == 250


def test_columns__have_the_same_bytes_in_process(dataset, two_workers):
    idx = np.arange(0, 700, 3)
    there = worker_columns(dataset, KERNEL, np.float32, two_workers).columns(idx)
    here = worker_columns(dataset, KERNEL, np.float32, InlineWorkers()).columns(idx)
    assert there.tobytes() == here.tobytes()


def test_diagonal__is_that_of_the_kernel(dataset, two_workers, monkeypatch):
    monkeypatch.setattr(columns, "ROWS", 300)
    found = worker_columns(dataset, Linear(), np.float32, two_workers).diagonal()
    np.testing.assert_allclose(found, (dataset.X().astype(float) ** 2).sum(axis=1), rtol=1e-12)


def test_columns__in_a_cache_travel_once_and_in_sets(dataset, exact, monkeypatch):
    requests = []

    class Counting(InlineWorkers):
        def map(self, fn, items, retries=2, sign=never):
            requests.append(len(items))
            return super().map(fn, items, retries)

    source = worker_columns(dataset, KERNEL, np.float32, Counting())
    cached = CachedColumns(source, 4 * 700 * 300)
    np.testing.assert_allclose(cached.columns(np.arange(200)), exact[:200], atol=1e-5)
    np.testing.assert_allclose(cached.columns(np.arange(100, 200)), exact[100:200], atol=1e-5)
    assert requests == [1]
    assert source.n_computed == 200


def test_columns__survive_a_killed_worker(dataset, exact, two_workers, monkeypatch):
    monkeypatch.setattr(columns, "ROWS", 50)
    source = worker_columns(dataset, KERNEL, np.float32, two_workers)
    os.kill(next(iter(two_workers.client.run(os.getpid).values())), signal.SIGKILL)
    np.testing.assert_allclose(source.columns(np.arange(40)), exact[:40], atol=1e-5)


def test_take__is_the_kernel_on_those_rows(dataset, exact):
    rows = np.arange(0, 700, 7)
    part = worker_columns(dataset, KERNEL, np.float64, InlineWorkers()).take(rows)
    np.testing.assert_allclose(part.columns(np.array([3])), exact[np.ix_(rows[[3]], rows)], atol=1e-12)


def test_all_columns__are_those_of_the_dense_kernel_and_end_with_an_interrupt(dataset, exact, monkeypatch):
    local = computed_columns(str(dataset.path), KERNEL, np.float32)
    np.testing.assert_allclose(columns._all_columns(local).matrix, exact, atol=1e-5)
    asked = []

    def interrupted(source, stop):
        asked.append(stop)
        assert not stop()
        raise KeyboardInterrupt

    monkeypatch.setattr(columns, "resident_gram", interrupted)
    with pytest.raises(KeyboardInterrupt):
        columns._all_columns(local)
    assert asked[0]()  # what the threads ask for every tile


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_outputs__are_summed_by_the_workers(dtype, dataset, exact, two_workers, monkeypatch):
    monkeypatch.setattr(columns, "ROWS", 300)
    source, coef = worker_columns(dataset, KERNEL, dtype, two_workers), np.zeros(700)
    assert not np.any(source.outputs(coef))
    coef[::3] = np.random.default_rng(1).normal(size=len(coef[::3]))
    values, sizes = source.outputs(coef)
    np.testing.assert_allclose(values, exact @ coef, atol=1e-4)
    np.testing.assert_allclose(sizes, np.abs(exact) @ np.abs(coef), rtol=1e-5)
    assert source.n_computed == np.count_nonzero(coef)
    np.testing.assert_array_equal(values, worker_columns(dataset, KERNEL, dtype, InlineWorkers()).outputs(coef)[0])


def test_fill__writes_to_the_rows_that_are_named(dataset, exact, monkeypatch):
    monkeypatch.setattr(columns, "ROWS", 300)
    monkeypatch.setattr(columns, "COLUMNS", 2)
    idx, rows, out = np.array([40, 2, 689]), np.array([5, 0, 3]), np.full((7, 700), np.nan)
    worker_columns(dataset, KERNEL, np.float64, InlineWorkers()).fill(idx, out, rows)
    np.testing.assert_allclose(out[rows], exact[idx], atol=1e-12)
    assert np.isnan(np.delete(out, rows, axis=0)).all()
