import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from sklearn.metrics.pairwise import rbf_kernel

from flows.cli import main
from pipeline import load_model, run
from pipeline.rows.drift import Sample, drift_of, mmd_test, stability
from svmcore.kernels import Kernel

RBF = Kernel.create({"name": "rbf", "gamma": 0.2})


def table(folder, name, rng, n=240, move=0.0):
    """Three columns, of which the second may have moved, and a label."""
    X = rng.normal(loc=[0, move, 5], size=(n, 3))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, "up", "down")
    lines = ["a,b,c,kind", *(",".join([*(f"{v:.6f}" for v in row), label]) for row, label in zip(X, y, strict=True))]
    (folder / name).write_text("\n".join(lines) + "\n")
    return X


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("drift"), np.random.default_rng(0)
    X = table(folder, "train.csv", rng, 400)
    table(folder, "alike.csv", rng)
    table(folder, "moved.csv", rng, move=1.0)
    config = {"name": "nights", "data": {"source": str(folder / "train.csv"), "scale": "standard"}}
    config |= {"cluster": {"kind": "inline"}, "store": str(folder / "runs"), "promote": "champion"}
    return folder, config, run(config), X


def test_mmd__is_the_distance_of_the_means_in_the_kernels_space():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(30, 4)), rng.normal(size=(20, 4)) + 1.0
    means = [rbf_kernel(a, b, gamma=0.2).mean() for a, b in ((x, x), (z, z), (x, z))]
    found, p_value = mmd_test(RBF, x, z)
    assert found == pytest.approx(means[0] + means[1] - 2 * means[2], abs=1e-12)
    assert p_value <= 0.01
    apart = mmd_test(RBF, sparse.csr_matrix(x), sparse.csr_matrix(z))
    assert apart == (pytest.approx(found, abs=1e-9), pytest.approx(p_value, abs=2e-3))


def test_mmd__is_seldom_sure_where_nothing_has_moved():
    """p-values of equal distributions are uniform: 200 of them, each bound five standard deviations wide."""
    rng = np.random.default_rng(1)
    p_values = np.array([mmd_test(RBF, *rng.normal(size=(2, 25, 3)), exchanges=99)[1] for _ in range(200)])
    for level in (0.05, 0.2, 0.5):
        assert abs((p_values <= level).mean() - level) < 5 * np.sqrt(level * (1 - level) / 200)


def test_mmd__of_equal_rows_is_0():
    x = np.random.default_rng(0).normal(size=(20, 2))
    found, p_value = mmd_test(RBF, x, x)
    assert found == pytest.approx(0.0, abs=1e-12)
    assert p_value > 0.9


def test_stability__is_its_formula():
    before, now = np.repeat([1.0, 2.0], [50, 50]), np.repeat([1.0, 2.0], [80, 20])
    edges = np.quantile(before, np.linspace(0, 1, 11))
    assert stability(before, before, edges) == 0.0
    assert stability(before, now, edges) == pytest.approx(0.3 * np.log(0.8 / 0.5) + -0.3 * np.log(0.2 / 0.5))
    assert np.isfinite(stability(before, np.full(10, 7.0), edges))


def test_sample__keeps_every_row_with_the_same_chance():
    seen = np.zeros(60)
    for seed in range(400):
        sample = Sample(10)
        sample.random = np.random.default_rng(seed)
        for rows in np.array_split(np.arange(60.0)[:, None], 7):
            sample.add(rows)
        kept = sample.rows()[:, 0].astype(int)
        assert len({*kept.tolist()}) == 10
        seen[kept] += 1
    assert abs(seen - 400 / 6).max() < 5 * np.sqrt(400 * (1 / 6) * (5 / 6))


def test_model__knows_its_training_rows(trained):
    _, _, record, X = trained
    summary = load_model(record["model"]).summary
    drawn = np.unique(np.random.default_rng(0).integers(0, 400, 400))
    assert summary.quantiles[5] == pytest.approx(np.median(X, axis=0), abs=0.15)
    assert summary.quantiles[10] == pytest.approx(X.max(axis=0), abs=0.6)
    assert summary.rows.shape == (len(drawn), 3)
    assert sum(summary.shares) == pytest.approx(1.0)
    raw = load_model(record["model"]).scaling.undo(summary.rows)
    assert abs(raw[:, None] - X).max(axis=2).min(axis=1).max() < 1e-5  # each is one of them


@pytest.mark.parametrize(("name", "unlike"), [("alike.csv", False), ("moved.csv", True)])
def test_predict__says_whether_the_rows_have_moved(trained, name, unlike, capsys, tmp_path):
    folder, _, record, _ = trained
    assert main(["predict", record["model"], str(folder / name), "--drift", "--json"]) == 0
    drift = json.loads(capsys.readouterr().out)["drift"]
    assert (drift["p_value"] < 0.01) is unlike
    assert [one["name"] for one in drift["features"] if one["shifted"]] == ["b"] * unlike
    assert sum(one["share"][1] for one in drift["classes"]) == pytest.approx(1.0)
    assert main(["predict", record["model"], str(folder / name), "--drift", "--output", str(tmp_path / "o.csv")]) == 0
    told = capsys.readouterr().err
    assert f"the rows are {'unlike' if unlike else 'like'} those of training" in told
    assert ("  b: median" in told) is unlike


def test_run__is_compared_with_the_rows_of_the_champion(trained, capsys):
    folder, config, first, _ = trained
    assert first["drift"] is None
    moved = config | {"data": config["data"] | {"source": str(folder / "moved.csv")}, "gate": {"drift_p": 0.01}}
    record = run(moved)
    assert record["drift"]["p_value"] < 0.01
    assert record["drift"]["features"][0]["name"] == "b"
    assert record["gate"]["failed"] == [{"rule": "drift_p", "found": record["drift"]["p_value"], "needed": 0.01}]
    page = (Path(record["run"]) / "report.html").read_text()
    assert "The rows are unlike the champion" in page
    alike = run(moved | {"data": config["data"] | {"source": str(folder / "alike.csv")}})
    assert alike["gate"]["passed"]
    assert alike["drift"]["shifted"] == 0


def test_drift__of_sparse_rows_is_of_the_whole_alone(tmp_path):
    rng = np.random.default_rng(0)
    X = sparse.random(200, 50, 0.1, random_state=0, format="csr")
    dump_svmlight_file(X, rng.integers(2, size=200), str(tmp_path / "rows.libsvm"), zero_based=False)
    data = {"source": str(tmp_path / "rows.libsvm")}
    record = run({"name": "sparse", "data": data, "cluster": {"kind": "inline"}}, store=str(tmp_path / "runs"))
    stored = load_model(record["model"])
    found = drift_of(stored, stored.prepared(X[:100]))
    assert (found["features"], found["n_features"]) == ([], 0)
    assert found["p_value"] > 0.01
    assert drift_of(stored, stored.prepared(X[:100] * 30.0))["p_value"] < 0.01
