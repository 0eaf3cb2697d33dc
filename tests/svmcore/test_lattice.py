"""Rows on a lattice: found where they are, refused where not, and exact from the bytes to the kernel's values."""

import os
import pickle
import subprocess
import sys

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from svmcore import RBF, Conformal, Linear, Points, Polynomial, Product, Sum, Tanh
from svmcore.errors import Unsupported
from svmcore.kernels.base import blocks
from svmcore.points import byte_products as bytes_module
from svmcore.points import prepared, tile_products
from svmcore.points.byte_products import (
    COLUMNS,
    HEIGHT,
    LeftRows,
    add_byte_products,
    byte_products,
    left_bits,
    left_rows,
    products_size,
    right_bits,
    right_rows,
)
from svmcore.points.lattice import Codes, encode, encode_alike, integer_products
from svmcore.points.word_products import ROWS, WINDOW
from svmcore.train import Recipe, train

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (300, 37))
PIXELS[0, :2] = 0, 255
ON_LATTICE = {
    "pixels": PIXELS.astype(np.float32) / np.float32(255),
    "pixels-float64": PIXELS / 255,
    "bytes": PIXELS.astype(np.uint8),
    "one-hot": np.eye(9, dtype=np.float32)[RNG.integers(0, 9, 300)],
    "signs": RNG.choice([-1.0, 1.0], (300, 5)),
    "grades, each column about its own mean": RNG.integers(0, 7, (300, 4)) * 0.25 - np.array([100.0, 0.3, -7.1, 0.0]),
    "a shift of a million": 1e6 + RNG.integers(0, 20, (300, 3)),
}
KERNELS = (
    RBF(0.7),
    Linear(),
    Polynomial(degree=3, gamma=0.2, coef0=0.5),
    Tanh(gamma=0.1),
    Conformal(Polynomial(degree=2, gamma=0.2, coef0=1.0)),
    Sum(RBF(0.3), Product(RBF(0.2), Linear())),
)
everywhere = pytest.mark.parametrize("X", ON_LATTICE.values(), ids=ON_LATTICE.keys())


@pytest.fixture
def coded(monkeypatch):
    """Rows are coded on every processor: without the fast instruction the same sums are made in plain steps."""
    monkeypatch.setattr(prepared, "is_fast", lambda: True)


@pytest.fixture(scope="module", params=[True, False], ids=["tile registers", "words"])
def each_way(request):
    """On the registers of this processor, if it has such, and without them."""
    if request.param and not tile_products.has_tiles():
        pytest.skip("this processor has no tile registers, or numba or the system does not use them")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bytes_module, "has_tiles", lambda: request.param)
        yield


def products(A, B):
    width = -(-A.shape[1] // 4) * 4
    left, right = (np.pad(side, ((0, 0), (0, width - side.shape[1]))) for side in (A, B))
    memory = np.empty(products_size(len(A), len(B)), np.int32)
    return byte_products(left_rows(left), right_rows(right, signed=True), memory)[: len(A), : len(B)]


@pytest.mark.usefixtures("each_way")
@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 20), m=st.integers(1, 110), p=st.integers(1, 40), seed=st.integers(0, 99), top=st.booleans())
def test_byte_products__are_those_of_integers(n, m, p, seed, top):
    rng = np.random.default_rng(seed)
    A, B = (np.full((k, p), 255) if top else rng.integers(0, 256, (k, p)) for k in (n, m))
    np.testing.assert_array_equal(products(A.astype(np.uint8), B.astype(np.uint8)), A @ B.T)


@pytest.mark.usefixtures("each_way")
@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 300), m=st.integers(1, 110), p=st.integers(1, 40), seed=st.integers(0, 99))
def test_byte_products__leave_out_what_is_zero_on_the_left_and_take_parts(n, m, p, seed):
    rng = np.random.default_rng(seed)
    A, B = (rng.integers(0, 256, (k, 4 * p)).astype(np.uint8) for k in (n, m))
    A[:, rng.random(4 * p) < 0.7] = 0
    A[rng.random(n) < 0.5] = 0
    left, right = left_rows(A), right_rows(B, signed=True)
    if isinstance(left, LeftRows):
        there = np.zeros((left.height, p), bool)
        there[:n] = A.reshape(n, p, 4).any(axis=2)
        rows = left.places + np.arange(left.height) // WINDOW * WINDOW
        assert len(left.at) == np.count_nonzero(there[rows].reshape(-1, ROWS, p).any(axis=1))
    memory = np.empty(products_size(n, m), np.int32)
    for first in range(0, n, WINDOW):
        some = slice(first, min(first + WINDOW, n))
        found = byte_products(left.take(some), right, memory)[: some.stop - first, :m]
        np.testing.assert_array_equal(found, A[some].astype(int) @ B.T.astype(int))


def test_left_rows__parts_are_whole_windows():
    left = left_bits(np.ones((2 * WINDOW + 5, 8), np.uint8))
    assert [left.take(slice(*part)).height for part in ((0, WINDOW), (WINDOW, 2 * WINDOW + 5))] == [WINDOW, WINDOW + 8]
    for start, stop in ((16, WINDOW), (0, 16), (WINDOW, 2 * WINDOW - 4)):
        with pytest.raises(ValueError, match=f"whole windows of {WINDOW} rows; given {start} to {stop}"):
            left.take(slice(start, stop))


@pytest.mark.usefixtures("each_way")
@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 20), m=st.integers(1, 60), p=st.integers(1, 40), seed=st.integers(0, 99))
def test_add_byte_products__are_of_bytes_with_a_sign_on_the_left(n, m, p, seed):
    rng = np.random.default_rng(seed)
    A, B = (rng.integers(0, 256, (k, 4 * p)).astype(np.uint8) for k in (n, m))
    A[rng.random((n, 4 * p)) < 0.7] = 128  # stands for 0
    out = np.full((-(-n // HEIGHT) * HEIGHT, -(-m // COLUMNS) * COLUMNS), 5, np.int32)
    add_byte_products(left_rows(A, signed=True), right_rows(B), out)
    np.testing.assert_array_equal(out[:n, :m], 5 + (A.astype(int) - 128) @ B.T.astype(int))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 300), m=st.integers(1, 110), p=st.integers(1, 90), seed=st.integers(0, 99), rare=st.booleans())
def test_products_of_bits__are_those_of_integers_and_take_parts(n, m, p, seed, rare):
    rng = np.random.default_rng(seed)
    A, B = ((rng.random((k, p)) < (0.05 if rare else 0.7)).astype(np.uint8) for k in (n, m))
    left, right, memory = left_bits(A), right_bits(B), np.empty(products_size(n, m), np.int32)
    for first in range(0, n, WINDOW):
        some = slice(first, min(first + WINDOW, n))
        found = byte_products(left.take(some), right, memory)[: some.stop - first, :m]
        np.testing.assert_array_equal(found, A[some].astype(int) @ B.T.astype(int))


def test_codes__are_bits_where_every_row_is_0_or_1():
    corner, codes = encode(np.eye(9)[RNG.integers(0, 9, 300)])
    other = encode_alike(np.array([[0, 2, 1] + [0] * 6]), corner, codes)
    zeros = encode_alike(np.array([[0] * 8 + [1]]), corner, codes)
    assert (codes.binary, codes[3:9].binary, codes.loosened().binary) == (True, True, True)
    assert (zeros.binary, other.binary, encode(PIXELS)[1].binary) == (True, False, False)
    for rows in (other, zeros):  # the form is that of both sides
        found = integer_products(rows, codes[5:60]), integer_products(codes[5:60], rows).T
        np.testing.assert_array_equal(found, [rows.bytes.astype(int) @ codes[5:60].bytes.T.astype(int)] * 2)
    part = codes[96:200]
    assert np.shares_memory(part.right_bits.panels, codes.right_bits.panels)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_lattice__bits_give_the_values_of_bytes(coded, kernel):
    P = Points.for_gram(ON_LATTICE["one-hot"])
    code = P.values
    assert code.binary
    as_bytes = Codes(code.bytes, code.n_features, code.step, code.deviation, code.exact)
    plain = Points(as_bytes, P.moments, P.centre, P.whole)
    np.testing.assert_array_equal(kernel.block(P, P), kernel.block(plain, plain))


@pytest.mark.usefixtures("each_way")
def test_byte_products__of_as_many_features_as_are_allowed_do_not_overflow():
    A = np.full((2, 1 << 15), 255, np.uint8)
    assert (products(A, A) == 255**2 * (1 << 15)).all()


@pytest.mark.parametrize("processor", ["generic", "haswell", "alderlake", "skylake-avx512"])
def test_byte_products__are_the_same_on_other_processors(processor, tmp_path):
    """Plain steps, AVX2, AVX-VNNI, AVX-512 without VNNI: what numba compiles for, where this processor has it."""
    needed = {"generic": None, "haswell": "avx2", "alderlake": "avxvnni", "skylake-avx512": "avx512bw"}[processor]
    if needed is not None and not llvm.get_host_cpu_features().get(needed, False):
        pytest.skip(f"this processor has no {needed}")
    code = (
        "import numpy as np; from svmcore.points.byte_products import *\n"
        "A = np.arange(11 * 8, dtype=np.uint8).reshape(11, 8); B = (np.arange(61 * 8) * 7 % 256).astype(np.uint8)\n"
        "B = B.reshape(61, 8); memory = np.empty(products_size(11, 61), np.int32)\n"
        "G = byte_products(left_rows(A), right_rows(B, signed=True), memory)[:11, :61]\n"
        "from svmcore.points.word_products import instruction\n"
        f"assert getattr(instruction(), 'feature', None) == {needed!r} and isinstance(left_rows(A), LeftRows)\n"
        "assert (G == A.astype(int) @ B.T.astype(int)).all(); S = A ^ np.uint8(255); F = G.copy()\n"
        "E = byte_products(left_rows(A), right_rows(B, signed=True), memory)\n"
        "add_byte_products(left_rows(S, signed=True), right_rows(B), E)\n"
        "assert (E[:11, :61] - F == (S.astype(int) - 128) @ B.T.astype(int)).all()\n"
        "A, B = A % 2, B // 3 % 2; G = byte_products(left_bits(A), right_bits(B), memory)[:11, :61]\n"
        "assert (G == A.astype(int) @ B.T.astype(int)).all()"
    )
    plain = {"NUMBA_CPU_NAME": processor, "NUMBA_CACHE_DIR": str(tmp_path)}
    plain |= {"NUMBA_CPU_FEATURES": ""} if processor == "generic" else {}
    given = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_CPU")}
    subprocess.run([sys.executable, "-c", code], env=given | plain, check=True, timeout=120)


def test_has_tiles__not_where_the_system_keeps_them(monkeypatch):
    monkeypatch.setattr(tile_products, "_permitted", lambda: False)
    assert not tile_products.has_tiles.__wrapped__()


def test_codes__parts_in_whole_tiles_share_what_was_arranged_for_all():
    codes = encode(PIXELS)[1]
    for part, first in ((codes[96:290], 96 // 16), (codes[96:290][96:180], 192 // 16)):
        assert np.shares_memory(part.right.panels, codes.right.panels)
        np.testing.assert_array_equal(part.right.panels, codes.right.panels[first : first + len(part.right.panels)])
    for part in (codes[10:90], codes[-48:], codes[::2], codes[[0, 1]]):
        assert not np.shares_memory(part.right.panels, codes.right.panels)
        np.testing.assert_array_equal(part.right.panels, right_rows(part.bytes, signed=True).panels)


def test_codes__in_another_process_are_their_integers_alone():
    """Rows arranged for tile registers end a process that has not asked for them; a part does not take all along."""
    codes = encode(PIXELS)[1]
    part = codes[96:200]
    size = len(pickle.dumps(part))
    assert part.left.height >= 104
    assert part.right.columns >= 104
    assert len(pickle.dumps(part)) == size < codes.bytes.nbytes
    moved = "import pickle, sys; codes = pickle.load(sys.stdin.buffer); from svmcore.points.lattice import *\n"
    moved += "print((integer_products(codes, codes) == codes.bytes.astype(int) @ codes.bytes.T.astype(int)).all())"
    told = subprocess.run([sys.executable, "-c", moved], input=pickle.dumps(part), capture_output=True, check=True)
    assert told.stdout.strip() == b"True"


def test_tiles__are_refused_where_the_process_has_no_registers(monkeypatch):
    tiles = tile_products.left_tiles(np.ones((3, 4), np.uint8), 0)
    monkeypatch.setattr(tile_products, "has_tiles", lambda: False)
    with pytest.raises(Unsupported, match="prepare them again"):
        byte_products(tiles, right_rows(np.ones((3, 4), np.uint8)), np.empty(products_size(3, 3), np.int32))


@everywhere
def test_encode__finds_the_lattice(X):
    corner, codes = encode(X)
    span = float((X.max(axis=0) - X.min(axis=0).astype(float)).max())
    np.testing.assert_allclose(codes.decoded() + corner, X, rtol=0, atol=span * 2**-23)


def off_by_one_entry(value):
    X = PIXELS.astype(np.float64)
    X[-1, -1] = value
    return X


@pytest.mark.parametrize(
    "X",
    [
        RNG.normal(size=(100, 3)),
        1e5 + RNG.normal(size=(100, 3)),  # float32 would round these to few values
        off_by_one_entry(0.5),
        off_by_one_entry(256.0),
        off_by_one_entry(np.nan),
        off_by_one_entry(np.inf),
        RNG.choice([-1e308, 1e308], (9, 2)),
        np.zeros((5, 2)),
        np.empty((0, 2)),
        np.empty((2, 0)),
        RNG.integers(0, 15, (400, 3)) * np.array([1.0, 0.13, 1.0]),  # no step for all columns
    ],
    ids=[
        "normal",
        "far",
        "half",
        "257 levels",
        "nan",
        "inf",
        "huge",
        "constant",
        "no rows",
        "no features",
        "two steps",
    ],
)
def test_encode__takes_nothing_else(X):
    assert encode(X) is None


@everywhere
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_lattice__kernel_values_are_exact_to_float32(coded, kernel, X):
    X = X / np.abs(X.astype(np.float64)).max()  # the polynomials' range is float32's
    P = Points.for_gram(X)
    assert P.on_lattice
    np.testing.assert_allclose(P.origin_values, X, atol=2**-22)
    K = kernel.block(P.rows(0, 70), P)
    exact = kernel(X[:70], X)
    assert np.abs(K - exact).max() <= 1e-6 * np.abs(exact).max()
    np.testing.assert_allclose(K[:, :70], K[:, :70].T, rtol=3e-7)
    np.testing.assert_allclose(kernel.diagonal_of(P), kernel.diagonal(X), rtol=1e-6)


def test_lattice__kernels_that_share_products_have_the_bits_of_each_alone(coded):
    P = Points.for_gram(ON_LATTICE["pixels"])
    outs = [np.empty((40, 300), np.float32) for _ in KERNELS]
    blocks(KERNELS, P.rows(5, 45), P, outs)
    for kernel, out in zip(KERNELS, outs, strict=True):
        np.testing.assert_array_equal(out, kernel.block(P.rows(5, 45), P))


def test_lattice__parts_have_the_values_of_the_whole(coded):
    P, kernel = Points.for_gram(ON_LATTICE["pixels"]), RBF(0.1)
    idx = np.array([299, 3, 3, 17])
    K = kernel.block(P, P)
    assert (np.diag(K) == 1).all()
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(kernel.block(P.take(idx), P.rows(11, 290)), K[idx, 11:290])


def test_lattice__csr_rows_are_coded_unless_nearly_empty(coded):
    X = sparse.random(400, 60, 0.05, "csr", random_state=0, data_rvs=np.ones)
    assert Points.for_gram(X).on_lattice
    empty = sparse.hstack([X, sparse.csr_matrix((400, 500))], "csr")
    assert Points.for_gram(empty).is_sparse


def test_lattice__without_an_instruction_for_bytes_is_for_rows_of_0_and_1(monkeypatch):
    monkeypatch.setattr(prepared, "is_fast", lambda: False)
    bits = Points.for_gram(ON_LATTICE["one-hot"])
    assert bits.on_lattice
    assert bits.alike(ON_LATTICE["one-hot"][:7]).on_lattice
    assert bits.alike(2.0 * ON_LATTICE["one-hot"][:7]) is None
    assert not Points.for_gram(ON_LATTICE["pixels"]).on_lattice
    assert bits.on_lattice == Points.for_gram(sparse.csr_matrix(ON_LATTICE["one-hot"])).on_lattice


def test_lattice__is_not_for_float64_columns(coded):
    assert Points.for_gram(ON_LATTICE["pixels"], np.float64).form == "dense"


def test_lattice__a_fit_ends_at_the_objective_of_float32_products(monkeypatch):
    X = RNG.integers(0, 30, (3000, 8)) / 29
    codes = (X @ RNG.normal(size=8) + 0.2 * RNG.normal(size=3000) > 0.3).astype(int)
    found = []
    for fast in (True, False):
        monkeypatch.setattr(prepared, "is_fast", lambda fast=fast: fast)
        solution = train(Recipe(RBF(2.0), C=10.0), X, codes, np.arange(2)).solutions[0]
        found.append(solution.certificate.dual)
        assert solution.certificate.kkt_gap <= 1e-3
    assert found[0] == pytest.approx(found[1], rel=1e-6)


ROWS_OF_EACH_PASS = {
    "distances": RNG.integers(0, 9, (70, 6)),
    "differences": RNG.random((70, 6)),
    "products": RNG.random((70, 60)),
    "float64 products": 8 * RNG.random((70, 60)),
    "CSR": sparse.random_array((70, 500), density=0.01, rng=RNG).tocsr(),
}


@pytest.mark.parametrize("X", ROWS_OF_EACH_PASS.values(), ids=ROWS_OF_EACH_PASS.keys())
@pytest.mark.parametrize(("first", "width"), [(0, 70), (3, 60), (5, 7), (16, 32)])
def test_block__written_past_the_caches_is_the_same(coded, X, first, width):
    P, kernel = Points.for_gram(X), RBF(0.1)
    right, alone = P.rows(0, width), np.empty((70, width), np.float32)
    whole = np.full((70, 1 << 15), np.nan, np.float32)  # 9 MB from the first row to the last
    blocks([kernel], P, right, [whole[:, first : first + width]])
    blocks([kernel], P, right, [alone])
    np.testing.assert_array_equal(whole[:, first : first + width], alone)
    np.testing.assert_allclose(alone, kernel(X, X[:width]), atol=3e-6)
    assert np.isnan(whole[:, :first]).all()
    assert np.isnan(whole[:, first + width :]).all()
