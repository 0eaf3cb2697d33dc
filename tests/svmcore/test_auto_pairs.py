"""What `auto` gives to pairs first: enough steps for small linear problems, of which most end in them."""

import numpy as np
import pytest

from svmcore import SVC, ComputedColumns, Linear, Solver, certify
from svmcore.kernels.exact import ExactKernel
from svmcore.solvers.auto import PATIENCE, TRIES
from svmcore.sources import resident_gram


def linear_program(m, p, C, seed):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(m) < 0.5, 1.0, -1.0)
    X = rng.normal(size=(m, p)) + 0.3 * y[:, None]
    kernel = Linear().centred()
    points = kernel.prepare_gram(X, np.float64)
    K = resident_gram(ComputedColumns(kernel, points, np.float64, ExactKernel(kernel, X, like=points)))
    return SVC().program(K, y, C), X, y


@pytest.mark.parametrize("seed", range(4))
def test_auto__of_few_variables_lets_pairs_go_on_and_proves_the_same_optimum(seed):
    """The dual optimum is one number, whoever finds it: that of the interior point alone."""
    qp, _, _ = linear_program(60, 6, 30.0, seed)
    found, other = (Solver.create({"name": name, "tol": 1e-4}).solve(qp) for name in ("auto", "interior-point"))
    assert found.status == other.status == "converged"
    assert certify(qp, found.beta).proves(1e-4)
    assert found.certificate.dual == pytest.approx(other.certificate.dual, rel=1e-4)


def test_auto__crawling_pairs_give_way():
    """A large C of classes that overlap: pairs would need far more steps than are worth it."""
    qp, _, _ = linear_program(60, 6, 1e5, 0)
    found = Solver.create({"name": "auto", "tol": 1e-4}).solve(qp)
    assert found.status == "converged"
    assert found.n_iter <= max(TRIES * 60, PATIENCE // (60 + 256)) + 500
    assert certify(qp, found.beta).proves(1e-4)
