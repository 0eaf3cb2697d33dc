"""Kernel values from the rows as they came: right in float64, sums with the same bits on any number of threads."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from svmcore import RBF, Kernel, Linear, Points, Polynomial
from svmcore.kernels import Precomputed
from svmcore.kernels.exact import ExactKernel
from svmcore.passes.kernel.kernel_sums import sums_of_products
from svmcore.passes.kernel.kernel_tiles import GRAIN, ROWS, WIDTH
from svmcore.points import prepared

from ..exact_values import FORMS, KERNELS, exact, rows

RNG = np.random.default_rng(0)


def exact_kernel(kernel, X, fast=True):
    """As training would build it: like the rows that it serves in float32."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "is_fast", lambda: fast)
        return ExactKernel(kernel, X, like=Points.for_gram(X))


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(sorted(KERNELS)),
    form=st.sampled_from(FORMS),
    p=st.sampled_from([1, 3, 17, 60]),
    seed=st.integers(0, 10**6),
    shift=st.sampled_from([0.0, 1.0, -1e4]),
    gamma=st.sampled_from([1e-6, 1e-2, 0.5, 30.0]),
    fast=st.booleans(),
)
def test_exact__values_are_within_their_unit(name, form, p, seed, shift, gamma, fast):
    kernel, X = KERNELS[name](gamma), rows(form, 24, p, seed, shift, 1.0)
    K, found = exact(kernel, X), exact_kernel(kernel, X, fast)
    idx = np.array([3, 23, 0])
    unit, slack = found.unit, 1e-18 * np.abs(K).max()
    if not np.isfinite(unit).all():
        assert name == "normalise"
        return
    sizes = np.abs(K) * unit.relative + unit.absolute
    if found.is_direct:  # its sums are made in twice the digits, its values are not
        block = found.kernel.rounding(found.prepared(slice(None)), dtype=np.float64)
        sizes = np.abs(K) * block.relative + block.absolute
    assert (np.abs(found.block(idx, np.arange(24)) - K[idx]) <= sizes[idx] + slack).all()
    coef = np.random.default_rng(seed).normal(size=24)
    limit = (sizes + found.summation(24) * np.abs(K)) @ np.abs(coef) + slack
    if found.is_direct:
        limit = 2.0**-52 * np.abs(K @ coef) + unit.relative * found.sizes(coef) + 1e-17 * np.abs(K) @ np.abs(coef)
    assert (np.abs(found.product(np.arange(24), np.arange(24), coef) - K @ coef) <= limit).all()
    assert (np.abs(found.symmetric_product(np.arange(24), coef) - K @ coef) <= limit).all()
    if not found.is_direct:
        assert (np.abs(found.diagonal() - np.diag(K)) <= 1e-9 * np.abs(np.diag(K)) + slack + 1e-300).all()


CASES = {
    "lattice": (RBF(0.05), RNG.integers(0, 4, (1000, 12))),
    "products": (RBF(0.05), RNG.normal(size=(1000, 12))),
    "CSR": (RBF(0.05), sparse.random_array((1000, 300), density=0.02, rng=RNG).tocsr()),
    "blocks": (Polynomial(2, 0.1, 1.0), RNG.normal(size=(1000, 12))),
    "weights": (Linear(), RNG.normal(size=(1000, 12))),
    "sparse weights": (Linear(), sparse.random_array((1000, 300), density=0.02, rng=RNG).tocsr()),
}


@pytest.mark.parametrize(("kernel", "X"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("several", [False, True])
def test_exact__sums_are_those_of_the_matrix(kernel, X, several):
    E = exact_kernel(kernel, X)
    K = kernel(X, X)
    idx, jdx = RNG.permutation(1000)[:900], RNG.permutation(1000)[: 2 * GRAIN + 7]
    shape = (900, 3) if several else (900,)
    coef = RNG.normal(size=shape)
    np.testing.assert_allclose(E.block(idx[:5], jdx), K[np.ix_(idx[:5], jdx)], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(E.product(jdx, idx, coef), K[np.ix_(jdx, idx)] @ coef, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(E.symmetric_product(idx, coef), K[np.ix_(idx, idx)] @ coef, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(E.diagonal(), np.diag(K), rtol=1e-13)
    part = E.take(idx)
    np.testing.assert_allclose(
        part.product(np.arange(9), np.arange(900), coef), E.product(idx[:9], idx, coef), rtol=1e-12, atol=1e-12
    )
    assert len(part) == 900
    np.testing.assert_array_equal(part.centre, E.centre)


def test_exact__prepared_rows_stand_for_their_indices():
    E = exact_kernel(*CASES["lattice"])
    idx, coef = np.arange(0, 1000, 3), RNG.normal(size=334)
    P = E.prepared(idx)
    assert P.on_lattice
    np.testing.assert_array_equal(E.product(np.arange(9), P, coef), E.product(np.arange(9), idx, coef))
    np.testing.assert_array_equal(E.symmetric_product(P, coef), E.symmetric_product(idx, coef))
    assert E.points().form == "dense"


TABLES = {
    "dense": lambda n: np.linspace(0, 3, n)[:, None],
    "lattice": lambda n: np.arange(n)[:, None] * 7 % 11 / 4.0,
    "near a lattice": lambda n: (np.arange(n)[:, None] * 7 % 11 / np.float32(10)).astype(np.float32),
}


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("n", [0, 1, 2, ROWS + 1, WIDTH, WIDTH + 1, 32 * GRAIN + 5])
def test_exact__sums_of_any_number_of_rows(n, form):
    kernel, X = RBF(0.3), TABLES[form](n)
    E, coef = exact_kernel(kernel, X), np.cos(np.arange(n))
    rows, some = np.arange(n), slice(None, None, max(1, n // 50))
    expected = kernel(X[some], X) @ coef
    np.testing.assert_allclose(E.product(rows, rows, coef)[some], expected, atol=1e-9)
    np.testing.assert_allclose(E.symmetric_product(rows, coef)[some], expected, atol=1e-9)
    np.testing.assert_allclose(E.product(rows[:2], rows, coef), (kernel(X[:2], X) @ coef), atol=1e-9)


def test_exact__a_rough_lattice_is_not_taken_for_the_rows():
    X = (RNG.integers(0, 256, (300, 20)) / np.float32(255)).astype(np.float32)
    E = exact_kernel(RBF(1.0), X)
    assert E._given.on_lattice
    assert E.prepared([0, 1]).form == "near a lattice"
    np.testing.assert_allclose(
        E.block([0], np.arange(300)), RBF(1.0)(X[:1], X), rtol=E.unit.relative, atol=E.unit.absolute
    )
    assert E.unit.relative < 1e-10


def test_exact__given_values_and_kernels_of_values_alone():
    class Absolute(Kernel):
        def __call__(self, X, Z):
            return np.exp(-np.abs(X[:, None] - Z).sum(axis=-1))

    X = RNG.normal(size=(50, 3))
    K, coef = Absolute()(X, X), RNG.normal(size=20)
    for E in (ExactKernel(Absolute(), X), ExactKernel(Precomputed(), K)):
        idx = np.arange(0, 40, 2)
        np.testing.assert_array_equal(E.block([3, 1], idx), K[np.ix_([3, 1], idx)])
        np.testing.assert_allclose(E.symmetric_product(idx, coef), K[np.ix_(idx, idx)] @ coef, rtol=1e-12)
        np.testing.assert_allclose(E.product([0], idx, coef), K[:1, idx] @ coef, rtol=1e-12)
        np.testing.assert_array_equal(E.diagonal(), np.diag(K))
        assert E.unit.relative < 1e-13


def test_sums__exp_is_within_two_units():
    x = -np.concatenate([RNG.random(5000), 707 * RNG.random(5000), np.logspace(-20, 2.8, 5000), [0.0]])
    out = np.zeros(len(x))
    G = np.ascontiguousarray(x[:, None])
    sums_of_products(G, np.zeros(len(x)), np.zeros(1), 1.0, np.ones(1), np.empty(0), (out, np.empty(0)))
    assert np.abs(out / np.exp(x.astype(np.longdouble)) - 1).max() <= 2.0**-52


def test_exact__has_the_same_bits_on_any_number_of_threads():
    code = (
        "import sys, hashlib, numpy as np; sys.path.insert(0, '.')\n"
        "from tests.svmcore.test_exact import CASES, ExactKernel\n"
        "for kernel, X in CASES.values():\n"
        "    E, all, coef = ExactKernel(kernel, X), np.arange(1000), np.cos(np.arange(1000))\n"
        "    found = [E.product(all[:50], all, coef), E.product(all, all[:90], coef[:90])]\n"
        "    found += [E.symmetric_product(all, coef)]\n"
        "    print(hashlib.sha256(b''.join(part.tobytes() for part in found)).hexdigest())\n"
    )
    seen = set()
    for threads in ("1", "2", "4"):
        environment = os.environ | {"OMP_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        seen.add(done.stdout)
    assert len(seen) == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", sorted(KERNELS))
def test_exact__of_some_rows_has_the_bits_of_a_copy_of_them(name, form):
    kernel, X = KERNELS[name](0.5), rows(form, 40, 7, 3, 1.0, 1.0)
    at = np.random.default_rng(1).permutation(40)[:24]
    copied = exact_kernel(kernel, X[at])
    viewed = ExactKernel(kernel, X, like=copied._given, at=at)
    some, coef = np.array([5, 0, 23, 11]), np.random.default_rng(2).normal(size=4)
    for own, other in ((copied, viewed), (copied.take(some), viewed.take(some))):
        every = np.arange(len(own))
        assert len(own) == len(other)
        for back in (every, every[::-1]):
            np.testing.assert_array_equal(other.product(back, every[:4], coef), own.product(back, every[:4], coef))
        symmetric = (each.symmetric_product(every[:4], coef) for each in (own, other))
        np.testing.assert_array_equal(*symmetric)
        np.testing.assert_array_equal(other.block(every, every), own.block(every, every))
        np.testing.assert_array_equal(other.diagonal(), own.diagonal())
        np.testing.assert_array_equal(other.sizes(np.ones(len(own))), own.sizes(np.ones(len(own))))
        assert other.unit == own.unit
        if own.can_refine(4):
            np.testing.assert_array_equal(other.finest(every, every[:4], coef), own.finest(every, every[:4], coef))


def test_exact_kernel__asks_for_no_row_of_a_lattice():
    """Products of its integers are exact: rows that would be 63 MB of floats in each worker are never made."""
    X = np.random.default_rng(2).integers(0, 256, (90, 8)) / 255.0
    like = Points.for_gram(X, np.float32)
    if not like.on_lattice:
        pytest.skip("this processor has no instruction for products of bytes")

    def never():
        raise AssertionError("rows were asked for")

    exact, told = ExactKernel(RBF(0.5), never, like=like), ExactKernel(RBF(0.5), X, like=like)
    rows, coef = np.arange(0, 90, 3), np.linspace(-1.0, 1.0, 30)
    assert np.array_equal(exact.product(np.arange(90), rows, coef), told.product(np.arange(90), rows, coef))
    assert np.array_equal(exact.symmetric_product(rows, coef), told.symmetric_product(rows, coef))
    assert np.array_equal(exact.take(rows).diagonal(), told.take(rows).diagonal())
    assert len(exact) == 90
    assert not exact.can_refine(10**9)
    late = ExactKernel(RBF(0.5), lambda: X, like=like)
    assert np.array_equal(late.finest(rows, rows, coef), told.finest(rows, rows, coef))
