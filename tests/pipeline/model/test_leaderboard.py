import csv
import json

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

from pipeline.model.leaderboard import Entry, ranked, results_csv
from pipeline.rows.folds import stratified_folds


def entry(index, scores, n_support=10.0, **params):
    return Entry(index, params, {"accuracy": tuple(scores)}, n_support, 1e-4, None, "converged", 5, 0.1 * index)


def test_ranked__by_mean_then_support_vectors_then_order():
    entries = [
        entry(0, [0.9, 0.7], 20.0),
        entry(1, [0.8, 0.8], 10.0),
        entry(2, [0.95, 0.95], 90.0),
        entry(3, [0.7, 0.9], 10.0),
        entry(4, [0.1, 0.2], 1.0),
    ]
    assert [e.index for e in ranked(entries)] == [2, 1, 3, 0, 4]


def test_ranked__means_that_differ_by_rounding_tie():
    scores = [0.1, 0.2, 0.3]
    assert sum(scores) / 3 != sum(reversed(scores)) / 3
    assert [e.index for e in ranked([entry(0, scores, 5.0), entry(1, scores[::-1], 4.0)])] == [1, 0]
    assert [e.index for e in ranked([entry(0, scores[::-1], 5.0), entry(1, scores, 4.0)])] == [1, 0]


def test_results_csv__has_a_column_for_every_parameter_and_fold():
    kernel = {"name": "rbf", "gamma": 0.1}
    text = results_csv([entry(1, [0.9], kernel=kernel), entry(0, [0.5, 0.25], C=0.1)])
    first, second = csv.DictReader(text.splitlines())
    assert list(first)[:2] == ["C", "kernel"]
    assert (json.loads(first["kernel"]), first["C"], second["kernel"], second["C"]) == (kernel, "", "", "0.1")
    assert (second["mean_score"], second["fold_1_score"], second["kkt_gap"]) == ("0.375", "0.25", "0.0001")
    assert "0.1\n" not in text  # seconds of entry 1


@pytest.mark.filterwarnings("ignore:The least populated class")
@pytest.mark.parametrize("seed", range(6))
def test_stratified_folds__are_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    y = rng.choice(5, 211, p=[0.5, 0.3, 0.1, 0.07, 0.03])
    splitter = StratifiedKFold(2 + seed, shuffle=True, random_state=seed)
    ours = stratified_folds(y, 2 + seed, seed)
    for index, (_, test) in enumerate(splitter.split(y, y)):
        assert np.array_equal(np.flatnonzero(ours == index), test)
