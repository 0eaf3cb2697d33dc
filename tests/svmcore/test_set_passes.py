"""Passes over all variables of a program, against their definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svmcore.passes.steps.working_set import count_free, extremes, hidden, how_far, moving, violators

SCORES = st.one_of(st.floats(-3.0, 3.0), st.sampled_from([0.0, -0.0, 1.0, np.nan]))
VARIABLE = st.tuples(SCORES, st.sampled_from(["free", "low", "high", "fixed"]), st.booleans(), st.integers(-1, 1))


def arrays(variables):
    """S, beta, lo, hi, outside, codes."""
    s = np.array([score for score, *_ in variables], dtype=np.float64)
    lo, hi = np.full(len(s), -1.0), np.full(len(s), 2.0)
    where = [kind for _, kind, *_ in variables]
    beta = np.array([{"free": 0.5, "low": -1.0, "high": 2.0, "fixed": -1.0}[kind] for kind in where])
    hi[[kind == "fixed" for kind in where]] = -1.0
    outside = np.array([out for *_, out, _ in variables], dtype=bool)
    codes = np.array([code for *_, code in variables], dtype=np.int8)
    return s, beta, lo, hi, outside, codes


@settings(deadline=None)  # the first example may compile
@given(st.lists(VARIABLE, max_size=70))
def test_passes__are_what_they_say(variables):
    s, beta, lo, hi, outside, _ = arrays(variables)
    known, grows, shrinks = ~np.isnan(s), beta < hi, beta > lo
    most = max(s[known & grows], default=-np.inf)
    least = min(s[known & shrinks], default=np.inf)
    assert extremes(s, beta, lo, hi) == (most, least)
    up, down = violators(s, beta, lo, hi, outside, 0.5, -0.5)
    np.testing.assert_array_equal(up, np.flatnonzero(outside & grows & (s > -0.5)))
    np.testing.assert_array_equal(down, np.flatnonzero(outside & shrinks & (s < 0.5)))
    reach = np.flatnonzero((grows & (s > -0.25)) | (shrinks & (s < 0.25)))
    np.testing.assert_array_equal(moving(s, beta, lo, hi, 0.25), reach)
    assert count_free(beta, lo, hi) == np.count_nonzero(grows & shrinks)


@settings(deadline=None)  # the first example may compile
@given(st.lists(VARIABLE, max_size=70))
def test_distances_from_moving__by_the_group_of_each(variables):
    s, beta, lo, hi, _, codes = arrays(variables)
    centres, ends = np.array([0.5, -1.0, 0.0]), np.array([[1.0, -1.0], [2.0, 0.5], [0.0, 0.0]])
    far, worth = how_far(s, beta, lo, hi, codes, centres), hidden(s, beta, lo, hi, codes, ends)
    for i, (_, kind, _, g) in enumerate(variables):
        x, (m, low) = s[i] - centres[g], ends[g]
        expected = {
            "free": (-np.inf, np.inf),
            "low": (-x, s[i] - low),
            "high": (x, m - s[i]),
            "fixed": (np.inf, -np.inf),
        }
        assert (far[i], worth[i]) == pytest.approx(expected[kind], abs=0.0, nan_ok=True)
