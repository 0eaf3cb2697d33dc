"""Where `verify` draws its lines: claims just inside and just outside of what is allowed, by numbers made by hand."""

import dataclasses
import math

import numpy as np
import pytest

from pipeline.model.claims import Difference, Found, differences_of
from svmcore import ResidentGram, SignedQP
from svmcore.certificate import Certificate, Evaluation
from svmcore.kernels.rounding import Rounding
from svmcore.qp import NO_GROUPS, Groups
from svmcore.solvers import Solver
from svmcore.status import Status

EPS = 2.0**-52
TOL = 1e-3
BETA = np.array([0.5, -0.25, -0.25, 0.0])
RIDGE = np.array([0.5, 0.0, 0.0, 0.0])
NORM2 = 0.375  # K = I
LINEAR = 1.0 - 0.0625  # p'beta - ridge beta^2 / 2
DUAL = LINEAR - 0.5 * NORM2
PROOF = Certificate(
    primal=0.7503, dual=DUAL, kkt_gap=5e-4, infeasibility=0.0, relative_gap=4e-4, uncertainty=5e-6, bar=2e-7
)
ROUNDING = EPS * (3 / 8 + 8)  # of three support vectors


class Off(ResidentGram):
    """A source whose bias is that of another by 2 beta_0."""

    def offset(self, coef):
        return 2.0 * float(coef[0])


def found(proof=PROOF, source=None, groups=None, solver=None, hi=None, **changes):
    """What was recomputed of a program of four variables, the last of which is no support vector."""
    qp = SignedQP(
        ResidentGram(np.eye(4)) if source is None else source,
        np.array([1.0, -1.0, -1.0, 1.0]),
        np.array([0.0, -1.0, -0.25, 0.0]),
        np.array([1.0, 0.0, 0.0, 1.0]) if hi is None else hi,
        RIDGE,
        Groups((0.0,)) if groups is None else groups,
        shift=changes.pop("shift", 0.0),
    )
    multipliers = np.array([0.25, -0.125][: len(qp.groups.sums)])
    evaluation = Evaluation(proof, BETA.copy(), np.zeros(4), multipliers, NORM2)
    solver = Solver.create({"name": "smo", "tol": TOL} if solver is None else solver)
    given = {"counts": np.array([2, 3, 1, 7]), "anchor": np.zeros(4)} | changes
    return Found(qp, BETA, evaluation, solver, **given)


def claim_of(here, **changes):
    """An honest one."""
    record = here.record | {"label": "ant", "status": "converged", "norm2": NORM2, "n_support": 6, "n_bounded": 1}
    return record | {"bias": here.bias} | changes


def parts(here, bias=None, **changes):
    """Names of what differs."""
    claim = claim_of(here, **changes)
    differences = differences_of(claim, claim["bias"] if bias is None else bias, here)
    assert all(difference.part.endswith(" of class ant") for difference in differences)
    return [difference.part.removesuffix(" of class ant") for difference in differences]


def test_differences_of__an_honest_claim_has_none():
    assert parts(found()) == []


def test_difference__names_part_and_both_numbers():
    claim = claim_of(found(), n_support=5)
    (difference,) = differences_of(claim, claim["bias"], found())
    assert difference == Difference("n_support of class ant", 5, 6)
    assert str(difference) == "n_support of class ant: stored 5, recomputed 6"


# ---- the certificate
BARS = 2 * 2e-7  # of both
EDGES = {
    "primal": BARS,
    "dual": BARS,
    "relative_gap": 4 * BARS / 0.7503 + 1e-12,
    "kkt_gap": 2 * 5e-6 + 0.02 * TOL,
    "infeasibility": 1e-12,
}


@pytest.mark.parametrize("key", EDGES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_certificate__of_a_claim_is_within_what_both_leave_open(key, sign):
    for share, differs in ((0.99, False), (1.01, True)):
        changed = {key: getattr(PROOF, key) + sign * share * EDGES[key]}
        if key == "dual":
            changed["norm2"] = NORM2 - 2 * sign * share * EDGES[key]  # coefficients as they were: dual + ||w||^2 / 2
        assert parts(found(), **changed) == [key] * differs + ["norm2"] * (differs and key == "dual")


def test_certificate__what_is_stated_widens_what_is_allowed():
    wide = {"uncertainty": 1.5e-5, "bar": 7e-7}
    assert parts(found(), kkt_gap=5e-4 + 3.9e-5, **wide) == []
    assert parts(found(), kkt_gap=5e-4 + 4.1e-5, **wide) == ["kkt_gap"]
    assert parts(found(), primal=0.7503 + 8.9e-7, **wide) == []
    assert parts(found(), primal=0.7503 + 9.1e-7, **wide) == ["primal"]


@pytest.mark.parametrize("key", ["primal", "dual", "relative_gap", "kkt_gap", "infeasibility"])
def test_certificate__none_is_none_alone(key):
    stated = {key: None} | ({"norm2": 0.0} if key == "dual" else {})
    claim = claim_of(found(), **stated)
    claim.pop("norm2")
    assert [d.part for d in differences_of(claim, claim["bias"], found())] == [f"{key} of class ant"]
    none = found(dataclasses.replace(PROOF, **{key: math.inf if key != "relative_gap" else None}))
    if key in ("primal", "relative_gap"):
        changed = {"status": "max_iter"}
        assert none.record[key] is None
        assert parts(none, **changed) == []
        assert parts(none, **changed | {key: 1.0}) == [key]


def test_certificate__objectives_of_nothing_have_no_relative_gap():
    nothing = found(dataclasses.replace(PROOF, primal=0.0, dual=0.0, relative_gap=0.0, bar=0.0))
    claim = claim_of(nothing, bar=0.0)
    claim.pop("norm2")
    assert differences_of(claim, claim["bias"], nothing) == []
    claim["relative_gap"] = 1e-13  # not even that
    assert [d.part for d in differences_of(claim, claim["bias"], nothing)] == ["relative_gap of class ant"]


def test_certificate__the_larger_objective_counts_by_its_size():
    below = found(dataclasses.replace(PROOF, primal=-0.25, dual=-1.0, relative_gap=0.75))
    claim = claim_of(below, relative_gap=0.75 + 3.99 * BARS)
    claim.pop("norm2")
    assert differences_of(claim, claim["bias"], below) == []
    claim["relative_gap"] = 0.75 + 4.01 * BARS
    assert [d.part for d in differences_of(claim, claim["bias"], below)] == ["relative_gap of class ant"]


@pytest.mark.parametrize(("off", "expected"), [(0.9e-12, []), (1.1e-12, ["relative_gap"])])
def test_certificate__without_bars_a_relative_gap_is_known_to_its_rounding(off, expected):
    here = found(dataclasses.replace(PROOF, bar=0.0))
    for sign in (1.0, -1.0):
        assert parts(here, relative_gap=4e-4 + sign * off) == expected


def test_certificate__of_a_solver_of_another_objective_has_no_relative_gap():
    here = found(solver={"name": "sgd", "tol": TOL}, groups=NO_GROUPS)
    assert here.solver.solves.bounds == (here.record["relative_gap"] is not None)
    perceptron = found(solver="perceptron", groups=NO_GROUPS)
    assert perceptron.certificate.relative_gap is None
    assert perceptron.certificate.primal == PROOF.primal
    assert found().certificate is PROOF


# ---- the coefficients
@pytest.mark.parametrize("bar", [2e-7, 0.0])
def test_norm2__is_within_both_bars_twice(bar):
    here = found(dataclasses.replace(PROOF, bar=bar))
    for sign in (1.0, -1.0):
        for share, differs in ((0.99, False), (1.01, True)):
            off = sign * share * (4.0 * bar + ROUNDING * NORM2)
            claim = claim_of(here, norm2=NORM2 + off, dual=DUAL - 0.5 * off)
            names = [difference.part for difference in differences_of(claim, claim["bias"], here)]
            assert ("norm2 of class ant" in names) == differs


def test_coefficients__are_known_to_rounding_by_what_dual_and_norm2_leave():
    allowed = 4.0 * ROUNDING * (1.0 + DUAL + NORM2)
    for sign in (1.0, -1.0):
        for share, expected in ((0.98, []), (1.02, ["coefficients"])):
            assert parts(found(), dual=DUAL + sign * share * allowed) == expected
            assert parts(found(), norm2=NORM2 + 2.0 * sign * share * allowed) == expected
    off = 3e-7  # within the bars, one against the other: only their sum is known so well
    assert parts(found(), dual=DUAL + off, norm2=NORM2 - 2.0 * off) == []
    assert parts(found(), dual=DUAL + off) == ["coefficients"]
    old = claim_of(found(), dual=DUAL + off)
    old.pop("norm2")  # of a format that does not state it
    assert differences_of(old, old["bias"], found()) == []


# ---- the status
@pytest.mark.parametrize(
    ("gap", "uncertainty", "status", "expected"),
    [
        (1.04e-3, 9e-6, "converged", []),
        (1.04e-3, 11e-6, "converged", ["status"]),
        (1.051e-3, 0.0, "converged", ["status"]),
        (0.1, 0.0, "converged", ["status"]),  # a hundred times tol
        (0.1, 0.0, "max_iter", []),
        (0.1, 0.0, "stalled", []),
        (0.1, 0.0, "infeasible", ["status"]),  # every variable has a bound
        (0.0, 0.0, "infeasible", ["status"]),
    ],
)
def test_status__is_earned(gap, uncertainty, status, expected):
    here = found(dataclasses.replace(PROOF, kkt_gap=gap, uncertainty=uncertainty))
    assert parts(here, status=status, kkt_gap=gap, uncertainty=uncertainty) == expected


def test_status__infeasible_needs_a_variable_without_a_bound():
    here = found(hi=np.array([1.0, 0.0, 0.0, np.inf]))
    assert parts(here, status="infeasible") == []


def test_status__of_the_same_numbers_is_another_one():
    here = found(dataclasses.replace(PROOF, kkt_gap=1.1e-3))
    claim = claim_of(here)
    (difference,) = differences_of(claim, claim["bias"], here)
    assert (difference.part, difference.stored) == ("status of class ant", Status.CONVERGED)
    assert difference.recomputed == "kkt_gap 0.0011 +- 5e-06, tol 0.001"


@pytest.mark.parametrize(("size", "expected"), [(0.99e-12, []), (1.01e-12, ["status"])])
def test_status__converged_is_feasible(size, expected):
    here = found(dataclasses.replace(PROOF, infeasibility=size))
    assert here.length == 1.0
    assert parts(here) == expected
    assert parts(here, status="stopped") == []


@pytest.mark.parametrize(("size", "expected"), [(3.9e-12, []), (4.1e-12, ["infeasibility"])])
def test_infeasibility__is_by_the_length_of_the_coefficients(size, expected):
    here = dataclasses.replace(found(), beta=4.0 * BETA)
    claim = claim_of(here, infeasibility=size, status="max_iter", n_bounded=6)
    claim.pop("norm2")
    assert here.length == 4.0
    assert [d.part.removesuffix(" of class ant") for d in differences_of(claim, claim["bias"], here)] == expected
    wrong = dataclasses.replace(
        here,
        evaluation=dataclasses.replace(here.evaluation, certificate=dataclasses.replace(PROOF, infeasibility=size)),
    )
    claim |= {"infeasibility": size, "status": "converged"}
    named = [d.part.removesuffix(" of class ant") for d in differences_of(claim, claim["bias"], wrong)]
    assert named == ["status"] * len(expected)


@pytest.mark.parametrize(("bar", "expected"), [(2.9e-20, []), (3.1e-20, ["bar"])])
def test_status__of_objectives_that_are_0_a_bar_is_as_wide_as_the_recomputed_one(bar, expected):
    here = found(dataclasses.replace(PROOF, primal=1e-20, dual=-2e-20, relative_gap=1.5, bar=3e-20))
    claim = claim_of(here, bar=bar)
    claim.pop("norm2")
    assert [d.part.removesuffix(" of class ant") for d in differences_of(claim, claim["bias"], here)] == expected


def test_status__says_what_would_be_right():
    claim = claim_of(found(), uncertainty=3e-5, bar=1e-6)
    said = {d.part: d.recomputed for d in differences_of(claim, claim["bias"], found())}
    assert said == {"uncertainty of class ant": "at most 2e-05", "bar of class ant": "at most 7.503e-07"}


def test_status__converged_states_no_wide_bounds():
    for status in ("converged", "time_limit"):
        wide = status == "converged"
        assert parts(found(), status=status, uncertainty=1.99e-5) == []
        assert parts(found(), status=status, uncertainty=2.01e-5) == ["uncertainty"] * wide
        assert parts(found(), status=status, uncertainty=None) == ["uncertainty"] * wide
        assert parts(found(), status=status, bar=7.502e-7) == []
        assert parts(found(), status=status, bar=7.504e-7) == ["bar"] * wide
        assert parts(found(), status=status, bar=None) == ["bar"] * wide
    larger = found(dataclasses.replace(PROOF, primal=0.5, dual=-2.0, relative_gap=1.25))
    claim = claim_of(larger, bar=1.99e-6)
    claim.pop("norm2")
    assert differences_of(claim, claim["bias"], larger) == []
    claim["bar"] = 2.01e-6
    assert [d.part for d in differences_of(claim, claim["bias"], larger)] == ["bar of class ant"]
    old = claim_of(found())
    del old["uncertainty"], old["bar"]  # of a format that states none
    assert differences_of(old, old["bias"], found()) == []
    assert [d.part for d in differences_of(old | {"kkt_gap": 5.26e-4}, old["bias"], found())] == [
        "kkt_gap of class ant"
    ]


# ---- counts
@pytest.mark.parametrize(("key", "right"), [("n_support", 6), ("n_bounded", 1)])
def test_counts__are_of_the_copies(key, right):
    assert parts(found(), **{key: right}) == []
    for wrong in (right - 1, right + 1):
        assert parts(found(), **{key: wrong}) == [key]


def test_counts__bounded_from_either_side_and_only_support():
    upper = found(hi=np.array([0.5, 0.0, 0.0, 0.0]))  # the first is at hi, the third at lo, the last is 0 = hi
    assert parts(upper, n_bounded=3) == []


# ---- the bias
def test_bias__is_within_the_gap_and_what_is_uncertain():
    allowed = 5e-4 + 2 * 5e-6 + 0.02 * TOL + ROUNDING * 0.25
    for sign in (1.0, -1.0):
        for share, expected in ((0.99, []), (1.01, ["bias"])):
            here = found()
            assert here.bias == 0.25
            assert parts(here, bias=0.25 + sign * share * allowed, **{"label": "ant"}) == ["bias"]  # not what is stated
            claim = claim_of(here, bias=0.25 + sign * share * allowed)
            assert [d.part for d in differences_of(claim, claim["bias"], here)] == [
                f"{e} of class ant" for e in expected
            ]
    wider = {"kkt_gap": 7e-4, "uncertainty": 6e-6}  # of both gaps the larger
    here = found(dataclasses.replace(PROOF, kkt_gap=6.9e-4))
    assert here.bias_slack(claim_of(here, **wider)) == pytest.approx(7e-4 + 1.1e-5 + 2e-5, rel=1e-9, abs=0.0)
    assert here.bias_slack(claim_of(here, kkt_gap=1e-4)) == pytest.approx(6.9e-4 + 1e-5 + 2e-5, rel=1e-9, abs=0.0)


def test_bias__rounding_counts_by_what_centring_put_into_it():
    here = found(anchor=np.array([4.0, 0.0, -8.0, 100.0]))
    plain = found()
    assert here.bias_slack(claim_of(here)) - plain.bias_slack(claim_of(plain)) == pytest.approx(
        ROUNDING * 4.0, rel=1e-3, abs=0.0
    )


def test_bias__is_that_of_the_kernel_as_it_is():
    codes = np.array([0, 1, 1, 0], np.int8)
    two = found(groups=Groups((0.5, -0.5), codes))
    assert two.multiplier == 0.5 * (0.25 - 0.125)
    shifted = found(groups=NO_GROUPS, shift=3.0)
    assert (shifted.multiplier, shifted.bias) == (0.0, 3.0 * BETA.sum())
    moved = dataclasses.replace(shifted, beta=BETA + np.array([0.0, 0.0, 0.0, 1.0]))
    assert moved.bias == 3.0
    assert found(source=Off(np.eye(4))).bias == 0.25 - 1.0
    np.testing.assert_array_equal(found().decision, BETA + 0.25)


def test_bias__without_a_group_is_known_to_rounding():
    here = found(groups=NO_GROUPS, shift=1.0, anchor=np.array([0.0, 8.0, 0.0, 0.0]))
    allowed = ROUNDING * (0.0 + 0.25 * 8.0 + 1.0)
    assert here.bias_slack(claim_of(here)) == pytest.approx(allowed, rel=1e-12, abs=0.0)
    longer = dataclasses.replace(here, beta=4.0 * BETA)
    assert longer.bias_slack(claim_of(longer)) == pytest.approx(4.0 * allowed, rel=1e-12, abs=0.0)
    for share, expected in ((0.99, []), (1.01, ["bias"])):
        assert parts(here, bias=share * allowed) == ["bias"]
        claim = claim_of(here, bias=share * allowed)
        assert [d.part for d in differences_of(claim, claim["bias"], here)] == [f"{e} of class ant" for e in expected]


# ---- scores
def test_doubts__are_what_served_values_may_be_off_and_the_bias():
    K = np.array([[1.0, -0.5, 0.0, 0.0], [-0.5, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.5], [0.0, 0.0, 0.5, 1.0]])
    here = found(source=ResidentGram(K))
    claim = claim_of(here)
    sizes = np.abs(K) @ np.abs(BETA)
    slack = here.bias_slack(claim)
    served = Rounding(1e-4, 1e-5)
    np.testing.assert_allclose(here.doubts(served, claim), 1e-4 * sizes + 1e-5 + ROUNDING * sizes + slack, rtol=1e-15)
    exact = here.doubts(Rounding(0.0, 0.0), claim) - slack
    np.testing.assert_allclose(exact, ROUNDING * sizes, rtol=1e-3)
    half = dataclasses.replace(here, beta=0.5 * BETA)
    np.testing.assert_allclose(half.doubts(served, claim) - half.bias_slack(claim), 5e-5 * sizes + 5e-6, rtol=1e-9)
    nothing = dataclasses.replace(here, beta=np.zeros(4))  # of a model without support vectors nothing is doubtful
    np.testing.assert_array_equal(nothing.doubts(Rounding(1.0, np.inf), claim), nothing.bias_slack(claim))


def test_record__is_json():
    record = found(dataclasses.replace(PROOF, primal=math.inf, uncertainty=math.inf, relative_gap=None)).record
    assert record == {
        "primal": None,
        "dual": DUAL,
        "relative_gap": None,
        "kkt_gap": 5e-4,
        "infeasibility": 0.0,
        "uncertainty": None,
        "bar": 2e-7,
    }


def test_found__and_differences_are_values_that_nobody_changes():
    for value, name in ((found(), "beta"), (Difference("a", 1, 2), "stored")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, None)
    assert len({found(), found()}) == 2  # known by identity: arrays do not compare
    assert Difference("a", 1, 2) == Difference("a", 1, 2)


def test_found__rounding_is_that_of_a_sum_over_the_support():
    assert found().rounding == ROUNDING
    assert found().uncertainty(claim_of(found(), uncertainty=3e-6)) == pytest.approx(8e-6)
    assert found().bar(claim_of(found(), bar=3e-7)) == pytest.approx(5e-7)
    assert found().bar({}) == 2e-7
    assert found().bar({"bar": None}) == math.inf
