"""Batches against scikit-learn's GridSearchCV, against problems solved one by one, and against themselves resumed."""

import csv
import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC

from pipeline import run
from pipeline.answers import problem as problems
from pipeline.answers.problem import bounds, target_of
from pipeline.answers.result import read_answer, read_result
from pipeline.answers.solve import solve_chain, solve_problem
from pipeline.config.load import load_experiment
from pipeline.running import batch as batches
from pipeline.running.session import check_inputs, open_session

from ..stored_numbers import numbers
from .digits_sweep import CS, FOLDS, GAMMAS, SEED, N


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    """(metrics, folder of the run, store) of the whole sweep, solved in this process."""
    store = tmp_path_factory.mktemp("store")
    metrics = run(config, store=store)
    return metrics, Path(metrics["run"]), store


def rows_of(folder):
    return list(csv.DictReader((Path(folder) / "results.csv").read_text().splitlines()))


def results(metrics):
    return (Path(metrics["run"]) / "results.csv").read_bytes()


def laid_out(config, store, overrides=()):
    """The batch's layout, its kernels computed."""
    exp = load_experiment(config, overrides)
    with open_session(exp, check_inputs(exp, str(store))) as session:
        return batches.lay_out(session)


# --- scores ---------------------------------------------------------------------------------------------------------
def test_scores__are_those_of_grid_search_over_one_vs_rest(finished, digits):
    _, X, y = digits
    search = GridSearchCV(
        OneVsRestClassifier(SVC(tol=1e-5)),
        {"estimator__C": list(CS), "estimator__gamma": list(GAMMAS)},
        cv=StratifiedKFold(FOLDS, shuffle=True, random_state=SEED),
        refit=False,
    ).fit(X, y)
    found = {(p["params"]["C"], p["params"]["kernel.gamma"]): p for p in finished[0]["points"]}
    for k, params in enumerate(search.cv_results_["params"]):
        ours = found[params["estimator__C"], params["estimator__gamma"]]
        theirs = [search.cv_results_[f"split{fold}_test_score"][k] for fold in range(FOLDS)]
        assert np.abs(np.array(ours["fold_scores"]) - theirs).max() <= 1.001 * FOLDS / N  # one row of a fold
        assert ours["mean_score"] == pytest.approx(np.mean(ours["fold_scores"]))
        assert ours["std_score"] == pytest.approx(np.std(ours["fold_scores"]))


def test_scores__every_fit_is_certified_and_counted(finished):
    metrics = finished[0]
    assert metrics["status"] == "converged"
    assert metrics["problems"] == {"total": 10 * (len(CS) * len(GAMMAS) * FOLDS + 1), "reused": 0}
    assert all(point["n_fits"] == 10 * FOLDS for point in metrics["points"])
    assert metrics["kkt_gap"] == max(e["kkt_gap"] for e in [*metrics["points"], *metrics["per_class"]]) <= 1.05e-4
    assert metrics["scored_on"] == "folds"


# --- problems -------------------------------------------------------------------------------------------------------
def test_fold__is_training_without_its_rows(config, digits, finished):
    _, X, y = digits
    part = laid_out(config, finished[2]).parts[0]
    gamma = part.plan.kernel["gamma"]
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(X, y))
    for tasks in part.tasks.values():
        for fold in (0, 2):
            task, train = tasks[fold][7], folds[fold][0]
            peer = SVC(C=task.C, gamma=gamma, tol=1e-7).fit(X[train], y[train] == 7)
            coef = peer.dual_coef_[0]
            K = rbf_kernel(X[train][peer.support_], gamma=gamma)
            dual = np.abs(coef).sum() - 0.5 * coef @ K @ coef
            assert read_result(task).certificate["dual"] == pytest.approx(dual, rel=1e-5)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_chain__warm_starts_reach_the_objective_of_cold_ones(config, finished, tmp_path, loss):
    batch = laid_out(config, finished[2], [f"loss={loss}"])
    chain = [dataclasses.replace(task, root=str(tmp_path)) for task in batch.parts[0].chains[3]]
    assert [task.C for task in chain] == list(CS)
    assert [step.status for step in solve_chain(chain)] == ["converged"] * 3
    warm = [read_result(task) for task in chain]
    cold = [solve_problem(dataclasses.replace(task, warm=None)) for task in chain]
    for one, other in zip(warm, cold, strict=True):
        assert one.certificate["dual"] == pytest.approx(other.certificate["dual"], rel=1e-6)
        assert one.certificate["kkt_gap"] <= 1.05e-4


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_chain__cut_anywhere_goes_on_to_the_same_bytes(config, finished, tmp_path, loss):
    batch = laid_out(config, finished[2], [f"loss={loss}"])

    def chain_in(folder):
        return [dataclasses.replace(task, root=str(tmp_path / folder)) for task in batch.parts[0].chains[3]]

    whole = chain_in("whole")
    solve_chain(whole)
    for cut in (1, 2):
        resumed = chain_in(f"cut{cut}")
        solve_chain(resumed[:cut])
        solve_chain(batch.parts[0].chains[5])  # something else on the same thread in between
        problems._resident.cache_clear()
        assert [step.reused for step in solve_chain(resumed)] == [True] * cut + [False] * (3 - cut)
        for ours, theirs in zip(resumed, whole, strict=True):
            assert numbers(ours) == numbers(theirs)
            assert read_result(ours).certificate == read_result(theirs).certificate


def test_chain__a_lost_answer_in_the_middle_is_made_again(config, finished, tmp_path):
    chain = [dataclasses.replace(task, root=str(tmp_path)) for task in laid_out(config, finished[2]).parts[0].chains[0]]
    solve_chain(chain)
    before = numbers(chain[1])
    chain[1].file.unlink()
    assert [step.reused for step in solve_chain(chain)] == [True, False, True]
    assert numbers(chain[1]) == before


def test_task__weights_are_of_the_folds_training_rows(config, digits, finished):
    _, X, y = digits
    task = laid_out(config, finished[2], ["class_weight=balanced"]).parts[0].chains[0][1]
    (train, _), *_ = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(X, y)
    codes = np.flatnonzero(target_of(task).y == 1)
    total = bounds(task)[codes].sum()
    assert total == pytest.approx(task.C * len(train) / 10)  # n / (k n_c) for each of the n_c rows


# --- one answer whatever computes it --------------------------------------------------------------------------------
@pytest.mark.full  # the same of a run is in test_run.py
def test_results__are_the_same_bytes_on_worker_processes(config, finished, address_of_two_workers, tmp_path):
    two = run(config | {"cluster": address_of_two_workers}, store=tmp_path / "two")
    one = run(config | {"cluster": {"kind": "local", "workers": 1}}, store=tmp_path / "one")
    assert results(two) == results(one) == results(finished[0])
    manifests = [(Path(found["model"]) / "manifest.json").read_bytes() for found in (one, two, finished[0])]
    assert manifests[0] == manifests[1] == manifests[2]
    strips = one["blocks"]["total"]
    assert two["blocks"] == one["blocks"] == {"total": strips, "reused": 0}


def test_kernels__of_the_next_bundle_are_computed_while_this_one_is_solved(
    config, finished, address_of_two_workers, tmp_path
):
    events = []

    def tell(stage, done, total, **info):
        events.append((stage, done))

    limits = ["cache.limit=1500KiB"]  # room for one K: a bundle each
    found = run(config | {"cluster": address_of_two_workers}, limits, store=tmp_path, progress=tell)
    assert results(found) == results(finished[0])
    second_kernel = [i for i, event in enumerate(events) if event == ("kernel", 1)][1]
    first_solved = next(i for i, event in enumerate(events) if event == ("solve", 90))
    assert second_kernel < first_solved


def test_results__again_from_the_cache(config, finished):
    again = run(config, store=finished[2])
    assert again["problems"] == {"total": 190, "reused": 190}
    assert results(again) == results(finished[0])
    assert again["run"] != finished[0]["run"]
    assert again["blocks"]["reused"] == again["blocks"]["total"]


def test_results__after_a_failure_on_the_way(config, finished, tmp_path, monkeypatch):
    started, solved = [], []

    def failing(chain, live=None, source=None):
        started.append(chain)
        if len(started) > 4:
            raise OSError(28, "No space left on device")
        steps = solve_chain(chain, live, source)
        solved.extend(step for step in steps if step.status == "converged")
        return steps

    monkeypatch.setattr("pipeline.answers.solve.solve_chain", failing)
    with pytest.raises(OSError, match="No space"):
        run(config, store=tmp_path)
    monkeypatch.undo()
    found = run(config, store=tmp_path)
    assert found["problems"]["reused"] == len(solved) > 0
    assert results(found) == results(finished[0])
    assert [file for file in tmp_path.rglob("*") if ".drafts" in file.parts or "live" in file.parts] == []


def test_results__after_a_kill_on_the_way(config, finished, tmp_path):
    script = "import json, sys; from pipeline import run; run(json.loads(sys.argv[1]), store=sys.argv[2])"
    with subprocess.Popen([sys.executable, "-c", script, json.dumps(config), str(tmp_path)]) as process:
        while len(list(tmp_path.glob(".cache/problems/[!.]*"))) < 40:
            assert process.poll() is None
            time.sleep(0.005)
        process.kill()
    kept = {file: file.stat().st_ino for file in tmp_path.glob(".cache/problems/[!.]*")}
    assert len(kept) < 180
    found = run(config, store=tmp_path)
    assert found["problems"]["reused"] == len(kept)
    assert all(file.stat().st_ino == before for file, before in kept.items())
    assert results(found) == results(finished[0])


def test_results__columns_on_demand_give_the_same_scores(config, finished, tmp_path):
    given = config | {"sweep": {"grid": {"C": [5.0], "kernel.gamma": [0.02]}, "folds": FOLDS, "refit": False}}
    found = run(given, ["cache.limit=1MiB"], store=tmp_path)
    resident = next(p for p in finished[0]["points"] if p["params"] == {"C": 5.0, "kernel.gamma": 0.02})
    assert found["blocks"]["total"] == 0
    assert found["points"][0]["fold_scores"] == resident["fold_scores"]


def test_results__hold_scores_and_counts_and_no_times(finished):
    metrics, folder, _ = finished
    rows = rows_of(folder)
    folds = [f"fold_{k}_score" for k in range(FOLDS)]
    counts = ["n_support", "kkt_gap", "n_fits", "status"]
    assert list(rows[0]) == ["C", "kernel.gamma", "mean_score", "std_score", *folds, *counts]
    for row, point in zip(rows, metrics["points"], strict=True):
        assert {key: float(row[key]) for key in ("C", "kernel.gamma")} == point["params"]
        assert [float(row[fold]) for fold in folds] == point["fold_scores"]
        assert float(row["mean_score"]) == point["mean_score"]
        assert float(row["n_support"]) == point["n_support"]
    means = [float(row["mean_score"]) for row in rows]
    assert means == sorted(means, reverse=True)
    assert metrics["best"] == metrics["points"][0]
    assert {"results.csv", "report.html", "metrics.json", "config.yaml", "model.zarr"} <= {
        p.name for p in folder.iterdir()
    }
    assert json.loads((folder / "metrics.json").read_text()) == metrics


# --- what is shared -------------------------------------------------------------------------------------------------
def test_kernels__of_one_dataset_come_from_one_pass_and_other_scales_from_another(config, tmp_path, monkeypatch):
    calls = []
    compute = batches.compute_grams

    def spy(dataset, kernels, *rest):
        calls.append((str(dataset.path), [kernel.spec()["name"] for kernel in kernels]))
        return compute(dataset, kernels, *rest)

    monkeypatch.setattr(batches, "compute_grams", spy)
    sweep = {
        "grid": {"kernel.gamma": [0.02, 0.08], "C": [1.0], "data.scale": ["none", "standard"]},
        "list": [{"kernel": {"name": "polynomial", "degree": 2}}],
        "folds": 2,
        "refit": False,
    }
    found = run(config | {"sweep": sweep}, store=tmp_path)
    assert [names for _, names in calls] == [["rbf", "rbf", "centred-polynomial"], ["rbf", "rbf"]]
    assert calls[0][0] != calls[1][0]
    assert len(found["points"]) == 5
    assert next(row for row in rows_of(found["run"]) if row["kernel"])["kernel.gamma"] == ""


def test_kernels__beyond_the_disk_budget_leave_when_their_problems_are_solved(config, finished, tmp_path):
    budget = ["sweep.grid={kernel.gamma: [0.01, 0.02, 0.08], C: [5.0]}", "cache.disk=3MiB"]  # two of three kernels
    found = run(config, budget, store=tmp_path)
    kept = [folder for folder in tmp_path.glob(".cache/gram/*")]
    assert len(kept) <= 2
    resident = {p["params"]["kernel.gamma"]: p["fold_scores"] for p in finished[0]["points"] if p["params"]["C"] == 5.0}
    ours = {p["params"]["kernel.gamma"]: p["fold_scores"] for p in found["points"]}
    assert {gamma: ours[gamma] for gamma in resident} == resident
    assert run(config, budget, store=tmp_path)["problems"] == {"total": 100, "reused": 100}


def test_points__a_time_limit_is_no_part_of_them(config, finished):
    again = run(config, ["solver.time_limit=900"], store=finished[2])
    assert again["problems"] == {"total": 190, "reused": 190}


def test_refit__is_the_run_of_the_best_point_alone(config, finished, tmp_path):
    metrics = finished[0]
    best = metrics["best"]["params"]
    alone = run(config | {"sweep": None, "C": best["C"]}, [f"kernel.gamma={best['kernel.gamma']}"], store=tmp_path)
    manifests = [(Path(found["model"]) / "manifest.json").read_bytes() for found in (metrics, alone)]
    assert manifests[0] == manifests[1]
    assert metrics["train_accuracy"] == alone["train_accuracy"]
    assert metrics["n_support"] == alone["n_support"]


def test_answers__of_a_fold_are_small(config, finished):
    task = laid_out(config, finished[2]).parts[0].chains[0][0]
    result, decision = read_answer(task)
    assert len(decision) == N / FOLDS
    rows = 16 * len(result.support) + 8 * N / FOLDS + 8 * N  # coefficients, decision values, residual
    assert task.file.stat().st_size < rows + 8192


def test_batch__a_free_bias_has_a_K_of_its_own_where_centring_changes_it(config, tmp_path):
    given = config | {"kernel": "linear", "sweep": {"grid": {"bias": ["free", "none"], "C": [1, 2]}, "refit": False}}
    batch = laid_out(given, str(tmp_path))
    assert [part.group.kernel.name for part in batch.parts] == ["centred-linear", "linear"]
    found = run(given | {"cluster": {"kind": "inline"}}, store=tmp_path)
    assert {point["status"] for point in found["points"]} == {"converged"}
    assert len(list((tmp_path / ".cache" / "gram").iterdir())) == 2
