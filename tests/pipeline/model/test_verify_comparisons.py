"""What `verify` compares and how closely: rows, problems, labels in doubt, scores and roundings, without a run."""

import dataclasses

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from pipeline.kinds.classification import Classification
from pipeline.model import verify as verify_module
from pipeline.model.stored import load_model


def test_equal_rows__of_any_container():
    X = np.array([[1.0, 0.0], [2.0, 3.0]])
    other, sparse_X = np.array([[1.0, 1e-12], [2.0, 3.0]]), csr_matrix(X)
    for a, b, equal in (
        (X, X.copy(), True),
        (X, other, False),
        (X, X[:1], False),
        (X[:1], X[[0, 0]], False),
        (sparse_X, sparse_X.copy(), True),
        (sparse_X, X, True),
        (X, sparse_X, True),
        (sparse_X, csr_matrix(other), False),
        (sparse_X, other, False),
        (sparse_X, sparse_X[:1], False),
    ):
        assert verify_module._equal_rows(a, b) is equal


def test_stated__of_an_older_format_has_the_one_machine_that_there_was():
    assert verify_module._stated({"C": 2.0, "machine": {"name": "svr"}}) == {"C": 2.0, "machine": {"name": "svr"}}
    found = verify_module._stated({"C": 2.0, "loss": {"name": "squared_hinge"}, "bias": "none"})
    assert found["C"] == 2.0
    assert found["machine"] == {"name": "svc", "loss": {"name": "squared_hinge"}, "bias": "none"}


def test_doubtful__rows_whose_label_hangs_on_less_than_their_doubt():
    def doubtful(decision, doubts):
        """Which rows count: each in turn has all the copies."""
        rows = np.eye(len(decision))
        slack = Classification().score_slack
        return [slack(np.zeros(len(decision)), decision, doubts, copies)["accuracy"] == 1.0 for copies in rows]

    one = np.array([[0.5], [-0.5], [0.25], [-0.25], [0.0]])
    doubts = np.full((5, 1), 0.25)
    np.testing.assert_array_equal(doubtful(one, doubts), [False, False, True, True, True])
    # a value that could be of the other sign, a lead of at most two doubts, and none of both
    three = np.array([[0.1, 2.0, -2.0], [1.0, 1.5, -2.0], [1.0, 1.625, -2.0], [-3.0, -1.0, -2.0], [-9.0, -2.5, -2.0]])
    doubts = np.full((5, 3), 0.25)
    np.testing.assert_array_equal(doubtful(three, doubts), [True, True, False, False, True])
    doubts[3, 0] = 0.5  # the largest of a row counts
    doubts[0] = 0.05
    np.testing.assert_array_equal(doubtful(three, doubts), [False, True, False, True, True])
    pair = np.array([[1.0, 1.5], [1.5, 1.0], [-1.0, 1.0]])
    np.testing.assert_array_equal(doubtful(pair, np.full((3, 2), 0.25)), [True, True, False])


@pytest.fixture(scope="module")
def recomputed(rows_run, tmp_path_factory):
    """(model, data set, decision values (m, 3)) of the finished run."""
    stored = load_model(rows_run["run"])
    dataset = verify_module.datasets.ingest(
        verify_module.load_experiment(stored.metadata["config"]), tmp_path_factory.mktemp("again"), verify_module.silent
    )
    exp = verify_module.load_experiment(stored.metadata["config"])
    tasks = verify_module._problems_asked(exp, dataset, tmp_path_factory.mktemp("root"))
    found = list(verify_module._found(stored, dataset, tasks, verify_module.silent))
    return stored, dataset, np.stack([part.decision for _, _, part, _ in found], axis=1)


def test_accuracies__may_be_off_by_the_copies_of_doubtful_rows_and_no_more(recomputed):
    stored, dataset, decision = recomputed
    counts, n = dataset.counts(), dataset.n_train
    none, two = np.zeros_like(decision), np.zeros_like(decision)
    rows = np.flatnonzero(counts == 2)[:2]  # copies count
    two[rows] = 100.0
    test, true = (stored.metadata["scores"][which]["accuracy"] for which in ("test", "train"))

    def parts(doubts, accuracy=test, train_accuracy=true):
        claimed = {"test": {"accuracy": accuracy}, "train": {"accuracy": train_accuracy}}
        changed = dataclasses.replace(stored, metadata=stored.metadata | {"scores": claimed})
        return [d.part for d in verify_module._score_differences(changed, ["accuracy"], dataset, decision, doubts)[1]]

    assert counts[rows].sum() == 4
    assert parts(none) == parts(two) == []
    for sign in (1, -1):
        assert parts(none, train_accuracy=true + sign / n) == ["train_accuracy"]
        assert parts(two, train_accuracy=true + sign * 4 / n) == []
        assert parts(two, train_accuracy=true + sign * 5 / n) == ["train_accuracy"]
        assert parts(two, accuracy=test + sign * 1e-9) == ["accuracy"]
        assert parts(two, accuracy=test + sign * 1e-13) == []
    assert parts(none, accuracy=None) == ["accuracy"]
    scores, differences = verify_module._score_differences(stored, ["accuracy"], dataset, decision, none)
    assert (scores["accuracy"], scores["train_accuracy"], differences) == (test, true, [])


def test_verify__decisions_and_bias_are_those_of_the_model(recomputed):
    stored, dataset, decision = recomputed
    expected = stored.model.decision_function(dataset.X())
    np.testing.assert_allclose(decision, expected, atol=2e-4)  # the bias is known to the gap


def test_served_rounding__is_of_the_type_that_the_solver_was_served(recomputed):
    stored, dataset, _ = recomputed
    double = dataclasses.replace(stored, metadata=stored.metadata | {"dtype": "float64"})
    single = dataclasses.replace(stored, metadata=stored.metadata | {"dtype": "float32"})
    machine = verify_module.Task.create({"name": "svc"})
    bounds = [verify_module._served_rounding(model, dataset, machine).within(1.0) for model in (single, double)]
    assert 2.0**-24 <= bounds[0] < 1e-4
    assert 2.0**-53 <= bounds[1] < 1e-12
