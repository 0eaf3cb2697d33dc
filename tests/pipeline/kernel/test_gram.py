import dataclasses
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
import zarr
from scipy import sparse

import svmcore.kernels.base
from pipeline.compute.cluster import open_workers
from pipeline.compute.workers import InlineWorkers
from pipeline.config.load import load_experiment
from pipeline.kernel import checksums, folder, gram, sample, strips
from pipeline.kernel.gram import compute_gram, compute_grams, open_gram
from pipeline.kernel.strips import partition
from pipeline.kernel.worker_points import strip_points, worker_points
from pipeline.rows.dataset import ingest
from svmcore.errors import InputError, MemoryLimit
from svmcore.kernels import RBF, Kernel, Polynomial
from svmcore.points import Points, prepared

INLINE = InlineWorkers()


@dataclasses.dataclass
class Rows:
    """A dataset in memory, for strips computed in this process."""

    X: object
    path: str = "rows in memory"
    rows_fingerprint: str = "rows"
    variance: float = 1.0
    step: float | None = None

    @property
    def n_merged(self):
        return self.X.shape[0]

    @property
    def n_features(self):
        return self.X.shape[1]


@pytest.fixture
def in_memory(monkeypatch):
    def make(X, step=None):
        """Rows `X`, or `step` times the bytes `X`, as a worker has them."""
        values = X if step is None else X * step

        def points(path, dtype, kernel, whole):
            return Points.for_gram(X, np.dtype(dtype)) if step is None else Points.of_bytes(X, step, always=True)

        for module in (strips, sample):
            monkeypatch.setattr(module, "strip_points", points)
        monkeypatch.setattr(sample, "worker_rows", lambda path: values)
        return Rows(values, step=step)

    return make


def normal(n, p=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p)) + 2.0


def pixels(n, p=20, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, p)).astype(np.uint8)


def flip_byte(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        value = file.read(1)
        file.seek(offset)
        file.write(bytes([value[0] ^ 0x10]))


# ---- values
@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 300, 4_000, 20_000, 131_072, 500_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_partition__covers_every_row_once_in_strips_of_bounded_bytes(n, dtype):
    ranges = partition(n, dtype)
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == n
    height = max(stop - start for start, stop in ranges)
    assert height == 64 or height * n * np.dtype(dtype).itemsize <= strips.STRIP_BYTES


@pytest.mark.parametrize("name", sorted(set(Kernel.names()) - {"precomputed"}))
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_gram__is_the_kernel_of_all_pairs(name, form, dtype, tolerance, in_memory, tmp_path):
    kernel = Kernel.create({"name": name} | Kernel.named(name).example)
    X = normal(200)
    X = np.where(X > 3.3, X, 0.0) if form == "sparse" else X  # a tenth: kept as CSR
    dataset = in_memory(sparse.csr_matrix(X) if form == "sparse" else X)
    K = compute_gram(dataset, kernel, dtype, tmp_path, INLINE).open()
    exact = kernel(X, X)
    scale = np.sqrt(np.abs(np.outer(exact.diagonal(), exact.diagonal())))
    assert K.dtype == dtype
    assert np.all(np.abs(K - exact) <= tolerance * np.maximum(scale, 1e-3 * scale.max()))
    assert np.array_equal(K, K.T)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 129, 300])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-13)])
def test_gram__is_right_for_every_number_of_strips(n, dtype, tolerance, in_memory, tmp_path):
    X = normal(n)
    found = compute_gram(in_memory(X), RBF(gamma=0.2), dtype, tmp_path, INLINE)
    assert found.n_blocks == len(partition(n, dtype))
    np.testing.assert_allclose(found.open(), RBF(gamma=0.2)(X, X), atol=tolerance)
    np.testing.assert_array_equal(found.open(), found.open().T)


def test_gram__of_rows_on_a_lattice_is_exact(in_memory, tmp_path, monkeypatch):
    monkeypatch.setattr(prepared, "is_fast", lambda: True)
    X = np.random.default_rng(0).integers(0, 256, (300, 30)).astype(np.float32)
    K = compute_gram(in_memory(X), RBF(gamma=1e-5), np.float32, tmp_path, INLINE).open()
    np.testing.assert_allclose(K, RBF(gamma=1e-5)(X, X), rtol=1e-6)
    np.testing.assert_array_equal(K, K.T)


@pytest.mark.parametrize("n", [1, 2, 63, 65, 300, 1500])
def test_gram__in_whole_rows_has_the_bytes_of_strips_with_their_transpose(n, in_memory, tmp_path, monkeypatch):
    X, kernel = pixels(n), RBF(gamma=0.3)
    dataset = in_memory(X, step=1 / 255)
    assert strips.in_whole_rows(dataset, kernel, np.float32)
    whole = compute_gram(dataset, kernel, np.float32, tmp_path / "whole", INLINE)
    monkeypatch.setattr(strips, "FEATURES", 0)
    assert not strips.in_whole_rows(dataset, kernel, np.float32)
    mirrored = compute_gram(dataset, kernel, np.float32, tmp_path / "mirrored", INLINE)
    assert whole.open().tobytes() == mirrored.open().tobytes()
    assert np.array_equal(whole.open(), whole.open().T)
    np.testing.assert_allclose(whole.open(), kernel(X / 255.0, X / 255.0), rtol=1e-6)


def test_gram__in_whole_rows_shares_a_sweep_with_kernels_that_are_not(in_memory, tmp_path):
    dataset = in_memory(pixels(300), step=1 / 255)
    kernels = [RBF(gamma=0.3), Polynomial(degree=2, gamma=0.5), RBF(gamma=0.1)]
    assert [strips.in_whole_rows(dataset, kernel, np.float32) for kernel in kernels] == [True, False, True]
    alone = [compute_gram(dataset, k, np.float32, tmp_path / "alone", INLINE).open() for k in kernels]
    together = compute_grams(dataset, kernels, np.float32, tmp_path / "together", INLINE)
    assert all(np.array_equal(K, found.open()) for K, found in zip(alone, together, strict=True))


def test_whole_rows__are_for_float32_values_of_few_bytes(in_memory):
    few, many = in_memory(pixels(9), step=1.0), in_memory(pixels(9, strips.FEATURES + 1), step=1.0)
    assert strips.in_whole_rows(few, RBF(gamma=0.1), np.float32)
    assert not strips.in_whole_rows(few, RBF(gamma=0.1), np.float64)
    assert not strips.in_whole_rows(many, RBF(gamma=0.1), np.float32)
    assert not strips.in_whole_rows(in_memory(normal(9)), RBF(gamma=0.1), np.float32)


def test_gram__has_the_exact_diagonal(in_memory, tmp_path):
    K = compute_gram(in_memory(normal(100) * 50), RBF(gamma=0.2), np.float32, tmp_path, INLINE).open()
    assert np.all(K.diagonal() == 1.0)


def test_gram__is_a_zarr_array_and_a_raw_file(in_memory, tmp_path):
    found = compute_gram(in_memory(normal(100)), RBF(gamma=0.2), np.float32, tmp_path, INLINE)
    array = zarr.open_array(str(found.path), mode="r")
    assert np.isnan(array.fill_value)
    assert np.array_equal(array[:], found.open())
    assert (found.path / "c/0/0").read_bytes() == found.open().tobytes()


def test_gram__gamma_scale_is_resolved_from_the_dataset(in_memory, tmp_path):
    X = normal(70)
    found = compute_gram(in_memory(X), RBF(gamma="scale"), np.float64, tmp_path, INLINE)
    np.testing.assert_allclose(found.open(), RBF(gamma=1 / 5)(X, X), atol=1e-13)


def test_grams__of_several_gammas_share_their_inner_products(in_memory, tmp_path, monkeypatch):
    dataset = in_memory(normal(300, 20))
    kernels = [RBF(gamma=0.1), RBF(gamma=0.2), Polynomial(degree=2, gamma=0.5)]
    alone = [compute_gram(dataset, k, np.float32, tmp_path / "alone", INLINE).open() for k in kernels]
    products = []
    original = svmcore.kernels.base.inner_products
    monkeypatch.setattr(svmcore.kernels.base, "inner_products", lambda *args: products.append(1) or original(*args))
    together = compute_grams(dataset, kernels, np.float32, tmp_path / "together", INLINE)
    assert len(products) == together[0].n_blocks + len(kernels)  # a sample of each is compared with the rows
    assert all(np.array_equal(K, found.open()) for K, found in zip(alone, together, strict=True))


def test_fingerprint__changes_with_data_kernel_and_type(in_memory):
    dataset = in_memory(normal(70))
    other = dataclasses.replace(dataset, rows_fingerprint="other")
    found = {
        gram.gram_fingerprint(rows, kernel, dtype)
        for rows in (dataset, other)
        for kernel in (RBF(gamma=0.1), RBF(gamma=0.2))
        for dtype in (np.float32, np.float64)
    }
    assert len(found) == 8


# ---- finished, unfinished, damaged
@pytest.fixture(params=["with their transpose", "whole rows"])
def finished(request, in_memory, tmp_path):
    """A dataset, its finished Gram of five strips and a function that computes it again."""
    dataset = in_memory(pixels(300), step=1 / 255) if request.param == "whole rows" else in_memory(normal(300))

    def again(progress=None):
        return compute_gram(dataset, RBF(gamma=0.2), np.float32, tmp_path, INLINE, progress)

    return again(), again


def test_again__reuses_every_strip(finished):
    first, again = finished
    assert (first.n_blocks, first.n_reused) == (5, 0)
    assert again() == dataclasses.replace(first, n_reused=5)


def test_again__leaves_no_mapping_that_would_count_beside_the_solvers(finished):
    first, again = finished
    again()
    assert str(first.path) not in Path("/proc/self/maps").read_text()
    K = first.open()
    assert Path("/proc/self/maps").read_text().count(str(first.path)) == 1
    assert K.shape == (300, 300)


def test_again__computes_only_the_strips_without_a_marker(finished):
    first, again = finished
    before = first.open().copy()
    for index in (1, 4):
        strips.marker(first.path, index).unlink()
    values = np.memmap(first.path / "c/0/0", np.float32, "r+", shape=(300, 300))
    values[64:128, 64:], values[256:, 256:] = 0.0, 0.0  # in whole rows, part of both strips
    with pytest.raises(InputError, match="no finished"):
        first.open()
    assert again().n_reused == 3
    assert np.array_equal(first.open(), before)


@pytest.mark.parametrize("place", [(70, 200), (200, 70), (70, 70), (299, 299), (0, 299), (299, 0)])
def test_again__repairs_a_flipped_bit_on_either_side(place, finished):
    first, again = finished
    before = first.open().copy()
    flip_byte(first.path / "c/0/0", 4 * (300 * place[0] + place[1]) + 1)
    assert not np.array_equal(first.open(), before)
    assert again().n_reused == 4
    assert np.array_equal(first.open(), before)


@pytest.mark.parametrize("damage", ["truncated", "removed", "zeros"])
def test_again__never_takes_missing_values_for_zeros(damage, finished):
    first, again = finished
    before, path = first.open().copy(), first.path / "c/0/0"
    if damage == "truncated":
        os.truncate(path, 1000)
    elif damage == "removed":
        path.unlink()
    else:
        path.write_bytes(bytes(path.stat().st_size))
    if damage != "zeros":
        with pytest.raises(InputError):
            first.open()
    assert again().n_reused == 0
    assert np.array_equal(first.open(), before)


@pytest.mark.parametrize("text", ["", "0", "0123456789abcdef\n", "0123456789abcdef 0123456789abcdef\n"])
def test_again__a_marker_that_does_not_fit_is_no_marker(text, finished):
    first, again = finished
    strips.marker(first.path, 2).write_text(text)
    assert again().n_reused == 4


def test_stopped__goes_on_from_the_finished_strips(in_memory, tmp_path):
    dataset, calls = in_memory(normal(300)), []

    def stop_after_two(stage, done, total, **info):
        calls.append((stage, done, total))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compute_gram(dataset, RBF(gamma=0.2), np.float32, tmp_path, INLINE, stop_after_two)
    assert calls == [("kernel", 1, 5), ("kernel", 2, 5)]
    (folder,) = (tmp_path / "gram").iterdir()
    with pytest.raises(InputError, match="no finished"):
        open_gram(folder)
    assert not (folder / "manifest.json").exists()
    assert compute_gram(dataset, RBF(gamma=0.2), np.float32, tmp_path, INLINE).n_reused == 2


# ---- values against the rows
def damage(path, K, place, dtype=np.float32):
    """Write other values of a K, and checksums that fit them: what a worker with bad memory leaves.

    Returns how many strips have them.
    """
    n, values = len(K), np.memmap(path / "c/0/0", dtype, "r+", shape=K.shape)
    block = slice(place[0], place[0] + 8), slice(place[1], place[1] + 8)
    values[block] *= 1.001
    values[block[::-1]] = values[block].T
    found = 0
    for index, (start, stop) in enumerate(partition(n, dtype)):
        marker, rows = strips.marker(path, index), np.asarray(values[start:stop])
        text = checksums.of_rows(checksums.sum_of_rows(rows, start))
        if len(marker.read_text().split()) == 2:
            text = checksums.of_strip(rows, start, start, stop)
        found += text != marker.read_text()
        strips.mark(marker, text)
    return found


@pytest.mark.parametrize("place", [(70, 200), (0, 280), (260, 290)])
def test_again__a_damaged_block_whose_checksum_fits_is_found_by_the_rows_and_computed_again(place, finished):
    first, again = finished
    before = first.open().copy()
    intact = 5 - damage(first.path, before, place)
    with pytest.raises(InputError, match="was changed"):
        first.open()
    told = []
    assert again(lambda stage, done, total, reused, **info: told.append(reused)).n_reused == intact < 5
    assert told[-2:] == [5, intact]
    assert np.array_equal(first.open(), before)


def test_kernel__that_is_never_that_of_its_rows_is_refused(in_memory, tmp_path, monkeypatch):
    dataset = in_memory(normal(300))
    monkeypatch.setattr(sample, "worker_rows", lambda path: normal(300) * 1.001)
    with pytest.raises(gram.WrongKernel, match="not that of its rows"):
        compute_gram(dataset, RBF(gamma=0.2), np.float32, tmp_path, INLINE)
    assert not list(tmp_path.glob("gram/*/manifest.json"))


@pytest.mark.parametrize("n", [1, 64, 300, 5000, 60_000])
def test_sample__has_rows_of_every_strip(n):
    rows, ranges = sample.sampled_rows(n, "float32"), partition(n, np.float32)
    assert all(((rows >= start) & (rows < stop)).any() for start, stop in ranges)
    assert np.array_equal(rows, np.unique(rows))
    assert len(rows) >= 0.9 * min(n, sample.ROWS)
    assert len(rows) <= sample.ROWS + len(ranges)


def test_reserve__never_touches_a_file_that_is_there(tmp_path):
    """Blocks that a file system gives by writing zeros would wipe out what another run has begun to write."""
    values = tmp_path / "gram" / "fp" / "c" / "0" / "0"
    values.parent.mkdir(parents=True)
    values.write_bytes(b"x" * 8192)
    before = values.stat()
    folder._reserve(values, 8192)
    after = values.stat()
    assert (after.st_ino, after.st_ctime_ns, values.read_bytes()) == (before.st_ino, before.st_ctime_ns, b"x" * 8192)
    folder._reserve(values, 16384)
    assert values.stat().st_size == 16384
    assert not list(tmp_path.glob("gram/.*"))


# ---- errors
def test_open__of_a_folder_without_a_gram_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no finished kernel matrix"):
        open_gram(tmp_path)


def test_overflow__names_the_kernel_and_the_remedy(in_memory, tmp_path):
    dataset = in_memory(normal(70) * 1e6)
    with pytest.raises(InputError, match="polynomial overflows float32; scale the data"):
        compute_gram(dataset, Polynomial(degree=9, gamma=1.0), np.float32, tmp_path, INLINE)


def test_precomputed__is_refused(in_memory, tmp_path):
    with pytest.raises(InputError, match="precomputed"):
        compute_gram(in_memory(normal(5)), Kernel.create("precomputed"), np.float32, tmp_path, INLINE)


def test_disk__too_small_is_refused_before_any_work(in_memory, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(MemoryLimit, match=r"needs 352 KiB on disk"):
            compute_gram(in_memory(normal(300)), RBF(gamma=0.2), np.float32, tmp_path, INLINE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_store__under_a_plain_file_is_refused(in_memory, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        compute_gram(in_memory(normal(5)), RBF(gamma=0.2), np.float32, tmp_path / "file", INLINE)


def test_store__that_a_worker_does_not_see_is_refused(in_memory, tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "_reserve", lambda path, size: None)
    with pytest.raises(InputError, match=r"does not see .* shares"):
        compute_gram(in_memory(normal(5)), RBF(gamma=0.2), np.float32, tmp_path, INLINE)


# ---- worker processes
def test_workers__any_number_of_them_gives_the_same_bytes(dataset, two_workers, tmp_path):
    inline = compute_gram(dataset, RBF(gamma=0.05), np.float32, tmp_path / "inline", INLINE)
    two = compute_gram(dataset, RBF(gamma=0.05), np.float32, tmp_path / "two", two_workers)
    with open_workers({"kind": "local", "workers": 1}) as workers:
        one = compute_gram(dataset, RBF(gamma=0.05), np.float32, tmp_path / "one", workers)
    assert inline.n_blocks > 4
    assert inline.open().tobytes() == one.open().tobytes() == two.open().tobytes()
    exact = RBF(gamma=0.05)(dataset.X(), dataset.X())
    np.testing.assert_allclose(two.open(), exact, atol=1e-5)


@pytest.mark.parametrize("share", [0.01, 0.5], ids=["few are not 0", "half"])
def test_workers__write_whole_rows_of_bytes_in_whatever_form_they_have_them(share, two_workers, tmp_path):
    """Rows of which few are not 0 are CSR for all else: products of bytes are what makes K symmetric."""
    X = pixels(700, 300) * (np.random.default_rng(1).random((700, 300)) < share)
    np.savez(tmp_path / "rows.npz", X=X, y=np.arange(700) % 2)
    exp = load_experiment({"data": {"source": str(tmp_path / "rows.npz"), "scale": 255.0}})
    found, kernel = ingest(exp, tmp_path / "cache"), RBF(gamma=0.05)
    assert strips.in_whole_rows(found, kernel, np.float32)
    assert worker_points(str(found.path), "float32", kernel).is_sparse == (share < 0.02)
    assert strip_points(str(found.path), "float32", kernel, whole=True).on_lattice
    inline = compute_gram(found, kernel, np.float32, tmp_path / "inline", INLINE).open()
    two = compute_gram(found, kernel, np.float32, tmp_path / "two", two_workers).open()
    np.testing.assert_allclose(two, kernel(found.X(), found.X()), rtol=1e-6)
    assert np.array_equal(two, two.T)
    assert two.tobytes() == inline.tobytes()


def test_workers__one_killed_midway_changes_nothing(dataset, two_workers, tmp_path):
    undisturbed = compute_gram(dataset, RBF(gamma=0.07), np.float32, tmp_path / "undisturbed", INLINE)

    def kill(stage, done, total, **info):
        if done == 1:
            os.kill(next(iter(two_workers.client.run(os.getpid).values())), signal.SIGKILL)

    killed = compute_gram(dataset, RBF(gamma=0.07), np.float32, tmp_path / "killed", two_workers, kill)
    assert killed.open().tobytes() == undisturbed.open().tobytes()
    assert compute_gram(dataset, RBF(gamma=0.07), np.float32, tmp_path / "killed", two_workers).n_reused == (
        killed.n_blocks
    )
