"""Certificates from outputs that somebody has computed, and of a beta of which nothing can be said; by hand."""

import dataclasses

import numpy as np
import pytest

from svmcore import ResidentGram
from svmcore.certificate import certify, evaluate
from svmcore.qp import Groups

from ..small_programs import program, small, truth

INF = np.inf
EPS = 2.0**-52


class Direct(ResidentGram):
    """Outputs without columns, each off by at most 1/16."""

    def direct_outputs(self, coef):
        return self.matrix @ coef, np.full(self.n, 0.0625)

    def outputs(self, coef):
        raise AssertionError("a column was asked for")


@pytest.mark.parametrize("kind", ["none", "one", "two and none", "rows", "shift"])
def test_evaluate__outputs_that_are_known_are_judged_as_those_of_columns(kind):
    for seed in range(4):
        qp, beta = small(kind, seed)
        values = qp.source.matrix @ qp.at_rows(beta)
        found, true = evaluate(qp, beta, known=(values, np.zeros(qp.source.n))), truth(qp, beta)
        np.testing.assert_array_equal(found.outputs, [float(u) for u in true.outputs])
        certificate = found.certificate
        assert (certificate.dual, certificate.kkt_gap, found.norm2) == (true.dual, true.gap, true.norm2)
        assert certificate.exact == qp.source.n


def test_evaluate__errors_of_known_outputs_are_in_the_uncertainty_and_the_bars():
    """Scores 1 and -1 in one group, each output off by 1/16: the gap of 2 by 1/8, the dual by half of it."""
    qp = program(np.zeros((2, 2)), [1.0, -1.0], [-1, -1], [1, 1], Groups((0.0,)))
    known = np.zeros(2), np.full(2, 0.0625)
    found = evaluate(qp, np.zeros(2), known=known).certificate
    assert (found.kkt_gap, found.uncertainty) == (2.0, 0.125)
    asked = dataclasses.replace(qp, source=Direct(np.zeros((2, 2))))
    assert evaluate(asked, np.zeros(2)).certificate == found  # of a source that has them without columns


@pytest.mark.parametrize("shift", [1.0, 4.0])
def test_evaluate__a_shift_of_known_outputs_is_rounded_by_the_sum_of_the_coefficients(shift):
    """||beta||_1 = 5, so that each output is off by as many last digits of the shift; the gap is between two."""
    beta, apart = np.array([3.0, -2.0]), 2.0**-40
    qp = program(np.zeros((2, 2)), [shift + apart, shift - apart], [-9, -9], [9, 9], Groups((1.0,)), shift=shift)
    found = evaluate(qp, beta, known=(np.zeros(2), np.zeros(2)))
    np.testing.assert_array_equal(found.outputs, [shift, shift])
    assert found.certificate.kkt_gap == 2.0 * apart
    assert found.certificate.uncertainty == pytest.approx(2.0 * EPS * shift * 5.0, rel=1e-3, abs=0.0)


@pytest.mark.parametrize("size", [1e200, 1e308, INF, np.nan])
def test_certify__of_a_beta_whose_objective_overflows_nothing_is_claimed(size):
    """At 1e200 scores are numbers, and ||w||^2 is none."""
    qp = program(np.eye(2), [1.0, -1.0], [-INF, -INF], [INF, INF], Groups((0.0,)))
    with np.errstate(all="ignore"):
        found = certify(qp, np.array([size, -size]))
    assert found.kkt_gap == found.primal == found.infeasibility == found.uncertainty == found.bar == INF
    assert found.dual == -INF
    assert found.relative_gap is None
    assert not found.proves(1e-3)
