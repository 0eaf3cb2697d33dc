"""The model of rows in shards: what is divided among workers, and what is not."""

import pytest

from pipeline.layout.probe import Work
from pipeline.layout.rates import Rates
from pipeline.layout.shards import (
    BANDWIDTH,
    MERGED,
    MESSAGE,
    MESSAGES,
    ROUND_TRIP,
    TOLD_BYTES,
    Layout,
    solve_seconds,
)

RATE = Rates(entry=1e-10, step=1e-6, step_entry=1e-9, strip=1e-9, fault=1e-10)
ENTRY, EXACT = 1e-8, 4e-8


def seconds(workers, n=100_000, p=20, support=3000.0, chains=10, cores=4, steps=1e5):
    works = [Work((support,), steps)]
    return solve_seconds(Layout(n, p, workers, cores), works, chains, 2 * support, ENTRY, EXACT, RATE)


def test_solve__columns_and_proofs_are_divided_and_messages_are_not():
    one, two, many = seconds(1), seconds(2), seconds(1000)
    columns = 1.5 * 6000 * 100_000 * ENTRY
    assert one > columns
    assert two == pytest.approx(one / 2, rel=0.35)
    assert many > 0.02 * one
    assert seconds(1000) > seconds(100)  # each worker is sent the rows of all newcomers


def test_solve__a_round_costs_its_messages_however_many_rows():
    idle = seconds(1, n=1000, support=1.0, chains=1, steps=1.0)
    assert 6 * 2 * ROUND_TRIP < idle < 6 * 2 * ROUND_TRIP + 0.02


def test_solve__messages_to_many_workers_are_the_drivers_own():
    """Rounds of next to no work: the client's pauses to few workers, its own time for each of many."""
    assert seconds(8, n=1000, support=1.0) == pytest.approx(seconds(1, n=1000, support=1.0), rel=0.15)
    few, many = seconds(500, n=1000, support=1.0), seconds(1000, n=1000, support=1.0)
    told = 500 * 60 * (TOLD_BYTES / BANDWIDTH + MESSAGES * MESSAGE / MERGED)
    assert many - few == pytest.approx(told, rel=0.05)


def test_solve__wide_rows_cost_their_transfer():
    narrow, wide = seconds(16, p=10), seconds(16, p=10_010)
    assert wide - narrow == pytest.approx(1.5 * 6000 * 10_000 * 8 * 16 / BANDWIDTH)


def test_solve__grows_with_what_there_is_to_do():
    assert seconds(4, n=200_000) > seconds(4)
    assert seconds(4, support=6000.0) > seconds(4)
    assert seconds(4, chains=20) > seconds(4)
