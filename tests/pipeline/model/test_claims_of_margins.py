"""Claims of machines with a margin of their own, through landmarks, or with two variables on a row; by hand."""

import dataclasses

import numpy as np
import pytest

from pipeline.model.claims import Found, LowRankFound, bound_differences, differences_of, variables_of
from svmcore import ResidentGram, SignedQP
from svmcore.approximation import ExactBound
from svmcore.kernels.rounding import Rounding

from .test_claims import claim_of, found

ERRORS = np.array([0.0, 0.125, 0.25, 1.0])


def test_scale__divides_decision_values_and_their_doubts():
    one, four = found(), found(scale=4.0)
    np.testing.assert_array_equal(four.decision, 0.25 * one.decision)
    claim, served = claim_of(one), Rounding(1e-3, 1e-4)
    np.testing.assert_array_equal(four.doubts(served, claim), 0.25 * one.doubts(served, claim))


def test_scale__a_bias_is_what_the_model_divides_by_it_and_a_margin_is_claimed():
    def told(here, bias):
        return [d.part for d in differences_of(claim_of(here) | {"bias": bias}, bias, here)]

    four = found(scale=4.0)
    assert told(four, 0.25 * four.bias) == ["rho of class ant"]  # an SVC has a margin of 1
    assert told(four, four.bias) == ["bias of class ant", "rho of class ant"]
    wrong, *_ = differences_of(claim_of(four), four.bias, four)
    assert (wrong.stored, wrong.recomputed) == (four.bias, 0.25 * four.bias)
    near = found(scale=1.0 + 1e-4)  # within the gap
    assert told(near, near.bias / near.scale) == []


def through_landmarks(**changes):
    """The same as of a model over landmarks."""
    here = found(**changes)
    fields = {field.name: getattr(here, field.name) for field in dataclasses.fields(Found)}
    return LowRankFound(**fields, errors=ERRORS, exact=ExactBound(8.0, -2.0, 1.25))


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_low_rank__doubts_are_the_errors_of_both_and_what_the_bias_leaves(scale):
    here = through_landmarks(scale=scale)
    claim = claim_of(here)
    slack = here.bias_slack(claim)
    assert slack > 1e-4
    assert len({here, dataclasses.replace(here)}) == 2  # known by identity: arrays do not compare
    np.testing.assert_allclose(here.doubts(None, claim), (2.0 * ERRORS + slack) / scale, rtol=1e-14)


@pytest.mark.parametrize("name", ["primal", "dual"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_bound_differences__bounds_of_the_exact_optimum_are_known_to_both_bars_and_a_billionth(name, sign):
    here = through_landmarks()
    true = {"primal": 8.0, "dual": -2.0}
    claim = claim_of(here) | {"exact": true}
    allowed = here.bar(claim) + 1e-9 * abs(true[name])
    for part, differs in ((0.0, False), (0.99, False), (1.01, True), (1e7, True)):
        stated = true | {name: true[name] + sign * part * allowed}
        told = bound_differences(claim | {"exact": stated}, here)
        expected = [(f"exact {name} of class ant", stated[name], true[name])] if differs else []
        assert [(d.part, d.stored, d.recomputed) for d in told] == expected


def test_variables_of__both_variables_of_a_row_have_what_is_doubled():
    """Those that may be above 0 have it more, those that may not less; who is next to a bound was on it."""
    lo, hi = np.array([0.0, 0.0, -1.0, -1.0]), np.array([0.5, 1.0, 0.0, 0.0])
    qp = SignedQP(ResidentGram(np.eye(2)), np.ones(4), lo, hi, rows=np.array([0, 1, 0, 1]))
    beta = np.array([0.25, 0.0, 0.0, -0.5])
    np.testing.assert_array_equal(variables_of(qp, beta, []), beta)
    np.testing.assert_array_equal(variables_of(qp, beta, [[1, 0.125]]), [0.25, 0.125, 0.0, -0.625])
    near = 0.25 * (1.0 - 1e-13)
    np.testing.assert_array_equal(variables_of(qp, beta, [[0, near], [1, 0.125]]), [0.5, 0.125, -near, -0.625])
