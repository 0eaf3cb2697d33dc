"""Runs and models that are verified: whole ones agree, and what was damaged or forged is named."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline import run
from pipeline.model.parts import write_model_manifest
from pipeline.model.verify import verify
from pipeline.report.page import rewrite_report
from pipeline.storage.manifest import Damaged
from pipeline.storage.runs import check_run, seal_run
from svmcore.errors import InputError
from svmcore.solvers import SMO, base
from svmcore.status import Status


@pytest.fixture
def copied(rows_run, tmp_path):
    """A copy of the run that may be damaged."""
    return Path(shutil.copytree(rows_run["run"], tmp_path / "run"))


def differing(folder):
    report = verify(folder, trust=True)
    assert report["agrees"] == (not report["differences"])
    return [difference["part"] for difference in report["differences"]]


@pytest.mark.parametrize("what", ["run", "model"])
def test_verify__agrees_and_recomputes_every_certificate(rows_run, what):
    report = verify(rows_run[what])
    assert report["agrees"]
    assert report["differences"] == []
    assert report["accuracy"] == rows_run["accuracy"]
    for ours, stored in zip(report["per_class"], rows_run["per_class"], strict=True):
        assert abs(ours["dual"] - stored["dual"]) <= stored["bar"] + ours["bar"] <= 1e-6 * stored["dual"]
        assert ours["kkt_gap"] + ours["uncertainty"] <= 1.05e-4


def test_verify__one_flipped_byte_names_the_part(copied):
    part = copied / "model.zarr" / "coef" / "c" / "0" / "0"
    whole = bytearray(part.read_bytes())
    whole[5] ^= 4
    part.write_bytes(whole)
    assert differing(copied) == ["coef/c/0/0"]


def test_run__a_file_that_was_changed_added_or_lost_is_named(copied):
    whole = (copied / "metrics.json").read_text()
    (copied / "metrics.json").write_text(whole.replace('"accuracy": 0', '"accuracy": 1'))
    assert differing(copied) == ["metrics.json"]
    assert differing(copied / "model.zarr") == []
    (copied / "metrics.json").write_text(whole)
    (copied / "notes.txt").write_text("mine")
    assert differing(copied) == ["notes.txt"]
    (copied / "notes.txt").unlink()
    (copied / "config.yaml").unlink()
    with pytest.raises(Damaged, match=r"config\.yaml is missing"):
        check_run(copied)


def test_run__whose_model_was_put_there_from_another_is_not_that_run(copied, rows_run, tmp_path):
    other = run(rows_run["config"] | {"C": 3.0}, store=tmp_path / "other")
    shutil.rmtree(copied / "model.zarr")
    shutil.copytree(other["model"], copied / "model.zarr")
    assert "model.zarr/manifest.json" in differing(copied)


def test_run__its_report_may_be_written_again(copied):
    page = copied / "report.html"
    page.write_text("no report")
    assert differing(copied) == ["report.html"]
    rewrite_report(copied)
    assert differing(copied) == []


def rewritten(folder, change):
    """Change the model's arrays or attributes and make the manifest fit again: only the recomputation can tell."""
    import zarr

    group = zarr.open_group(str(folder / "model.zarr"), mode="r+")
    change(group)
    (folder / "model.zarr" / "manifest.json").unlink()
    write_model_manifest(folder / "model.zarr")
    seal_run(folder)
    return folder


def halve_one(group):
    coef = group["coef"][...]
    coef[0, np.abs(coef[0]).argmax()] /= 2
    group["coef"][...] = coef


def shift_bias(group):
    group["bias"][...] = group["bias"][...] + [0.0, 0.1, 0.0]


def boast(group):
    entries = group.attrs["per_class"]
    entries[2]["dual"] *= 1.001
    group.attrs["per_class"] = entries


def better(group):
    group.attrs["scores"] = {"test": {"accuracy": 1.0}, "train": {"accuracy": 0.5}}


def silent_of_scores(group):
    group.attrs["scores"] = {"test": None, "train": {}}


def of_another_problem(**changed):
    """Change what the problems say that they were, but not the config."""

    def change(group):
        group.attrs["tasks"] = [task | changed for task in group.attrs["tasks"]]

    return change


def with_another_kernel(group):
    group.attrs["kernel"] = group.attrs["kernel"] | {"gamma": 2.0 * group.attrs["kernel"]["gamma"]}


def numbers_for_problems(group):
    group.attrs["tasks"] = [1 for _ in group.attrs["tasks"]]


def problems_without_solvers(group):
    group.attrs["tasks"] = [
        {k: v for k, v in task.items() if k not in ("solver", "C")} for task in group.attrs["tasks"]
    ]


def other_rows(group):
    group["support_vectors"][...] = group["support_vectors"][...] * 1.001


def boast_of_a_wide_proof(group):
    entries = group.attrs["per_class"]
    entries[1] |= {"uncertainty": 1e-5, "bar": 1e-3}
    group.attrs["per_class"] = entries


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (halve_one, ["dual of class ant", "primal of class ant", "kkt_gap of class ant"]),
        (shift_bias, ["bias of class bee"]),
        (boast, ["dual of class cat", "coefficients of class cat"]),
        (boast_of_a_wide_proof, ["uncertainty of class bee", "bar of class bee"]),
        (better, ["train_accuracy"]),
        (other_rows, ["support_vectors"]),
        (silent_of_scores, ["accuracy"]),
        (of_another_problem(solver={"name": "smo", "tol": 10.0}), ["solver of problem 0", "solver of problem 2"]),
        (of_another_problem(C=2.0), ["C of problem 0"]),
        (of_another_problem(multiclass="ovo"), ["multiclass of problem 1"]),
        (of_another_problem(class_weight="balanced"), ["class_weight of problem 1"]),
        (of_another_problem(machine={"name": "svc", "loss": "squared_hinge"}), ["machine of problem 0"]),
        (of_another_problem(kernel={"name": "linear"}), ["kernel of problem 2"]),
        (of_another_problem(target=99), ["target of problem 0", "target of problem 1"]),
        (of_another_problem(fold=[3, 0, 1]), ["fold of problem 1"]),
        (of_another_problem(solver="smo"), ["solver of problem 2"]),
        (with_another_kernel, ["kernel"]),
    ],
)
def test_verify__a_forged_claim_with_fitting_hashes_is_found(copied, change, parts):
    assert set(parts) <= set(differing(rewritten(copied, change)))


def test_verify__of_a_model_whose_problems_are_numbers_says_so_in_one_line(copied):
    path = rewritten(copied, numbers_for_problems)
    with pytest.raises(InputError, match=r"its hashes fit, but it states no problems .*; restore it or train again"):
        verify(path, trust=True)


def test_verify__judges_by_the_config_what_a_model_says_less_of(copied):
    assert differing(rewritten(copied, problems_without_solvers)) == []


def a_little_more(pick):
    """Of one coefficient of the second class, that with the largest or smallest size."""

    def change(group):
        coef = group["coef"][...]
        sizes = np.abs(coef[1])
        coef[1, pick(np.where(sizes > 0, sizes, np.nan))] *= 1.001
        group["coef"][...] = coef

    return change


@pytest.mark.parametrize("pick", [np.nanargmax, np.nanargmin])
def test_verify__a_coefficient_off_by_a_thousandth_is_found(copied, pick):
    found = differing(rewritten(copied, a_little_more(pick)))
    assert "coefficients of class bee" in found
    assert all(part.endswith("of class bee") for part in found)


@pytest.mark.parametrize("pick", [np.nanargmax, np.nanargmin])
@pytest.mark.parametrize("given", [["bias=penalised"], ["bias=none"], ["loss=squared_hinge"]])
def test_verify__a_coefficient_off_by_a_thousandth_is_found_in_every_program(rows_config, tmp_path, given, pick):
    found = run(rows_config, given, store=tmp_path)
    assert "coefficients of class bee" in differing(rewritten(Path(found["run"]), a_little_more(pick)))


OWN_SOLVE, OWN_EVALUATE = SMO._solve, base.evaluate


def stop_early(solver, *args):
    found = OWN_SOLVE(dataclasses.replace(solver, tol=0.5), *args)
    return dataclasses.replace(found, status=Status.CONVERGED)


def lie(qp, beta, resolution=0.0, **more):
    found = OWN_EVALUATE(qp, beta, resolution, **more)
    better = dataclasses.replace(found.certificate, kkt_gap=0.0, uncertainty=0.0)
    return dataclasses.replace(found, certificate=better)


def test_verify__a_model_trained_without_a_proof_is_found(rows_config, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(SMO, "_solve", stop_early)
        patch.setattr(base, "evaluate", lie)
        found = run(rows_config, store=tmp_path)
    assert (found["status"], found["kkt_gap"]) == ("converged", 0.0)
    assert {"status of class ant", "kkt_gap of class ant"} <= set(differing(found["run"]))


def test_verify__rows_far_from_the_origin(tmp_path):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(3000, 5))
    y = Z[:, 0] + Z[:, 1] + 0.15 * rng.normal(size=3000) > 0
    accuracy = []
    for shift in (0.0, 1e4):
        np.savez(tmp_path / "rows.npz", X=Z + shift, y=y.astype(int))
        config = {"data": {"source": str(tmp_path / "rows.npz"), "test": 0.2}, "kernel": "linear"}
        found = run(config | {"cluster": {"kind": "inline"}}, store=tmp_path / "runs")
        report = verify(found["run"])
        assert report["agrees"], json.dumps(report["differences"])
        assert found["status"] == "converged"
        accuracy.append(found["accuracy"])
    assert accuracy[1] == pytest.approx(accuracy[0], abs=0.002)
    assert accuracy[1] > 0.95


def of_two_blobs(path, far):
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(size=(60, 3)) + far, rng.normal(size=(60, 3)) - far])
    np.savez(path, X=X, y=np.repeat([0, 1], 60))
    return {"data": {"source": str(path), "test": 0.2}, "cluster": {"kind": "inline"}}


@pytest.mark.parametrize(
    ("status", "given"),
    [
        ("converged", ["C=1e4"]),
        ("converged", ["solver.tol=1e-7"]),
        ("converged", ["kernel.name=tanh"]),
        ("converged", ["kernel.name=polynomial", "loss=squared_hinge", "bias=none"]),
        ("converged", ["kernel=linear", "solver.name=interior-point"]),
        ("converged", ["loss=squared_hinge", "solver.name=primal-newton"]),
        ("converged", ["cache.limit=64kB"]),
        ("max_iter", ["solver.max_iter=20", "C=100"]),
        ("max_iter", ["kernel=linear", "bias=penalised", "solver.name=perceptron", "solver.max_iter=5"]),
        ("infeasible", ["kernel=linear", "C=.inf"]),
    ],
)
def test_verify__agrees_however_a_solver_ended(tmp_path, status, given):
    found = run(of_two_blobs(tmp_path / "rows.npz", 0.5), given, store=tmp_path / "runs")
    report = verify(found["run"])
    assert found["status"] == status
    assert report["agrees"], json.dumps(report["differences"])


def test_verify__a_hard_margin(tmp_path):
    found = run(of_two_blobs(tmp_path / "rows.npz", 4.0), ["C=.inf"], store=tmp_path / "runs")
    report = verify(found["run"])
    assert found["status"] == "converged"
    assert report["agrees"], json.dumps(report["differences"])


def test_verify__other_data_at_the_source_is_found(rows_config, tmp_path):
    text = Path(rows_config["data"]["source"]).read_text().splitlines()
    (tmp_path / "rows.csv").write_text("\n".join(text))
    config = rows_config | {"data": rows_config["data"] | {"source": str(tmp_path / "rows.csv")}}
    found = run(config, store=tmp_path / "runs")
    text[5] = text[7]
    (tmp_path / "rows.csv").write_text("\n".join(text))
    assert differing(found["run"]) == ["data"]
    (tmp_path / "rows.csv").unlink()
    with pytest.raises(InputError, match=r"rows\.csv"):
        verify(found["run"])


def test_verify__sparse_squared_hinge_with_folds_of_copies(tmp_path):
    rng = np.random.default_rng(5)
    X = (rng.random((120, 8)) < 0.3).astype(int)
    y = np.where(X[:, 0] + X[:, 1] > 0, 1, -1)
    lines = [f"{label} " + " ".join(f"{j + 1}:1" for j in np.flatnonzero(x)) for x, label in zip(X, y, strict=True)]
    (tmp_path / "rows.libsvm").write_text("\n".join(lines) + "\n")
    config = {"data": {"source": str(tmp_path / "rows.libsvm")}, "loss": "squared_hinge", "cluster": {"kind": "inline"}}
    found = run(config, ["bias=penalised", "class_weight=balanced", "kernel.name=polynomial"], store=tmp_path / "runs")
    assert found["plan"]["n_merged"] < found["n_train"]
    report = verify(found["run"])
    assert report["agrees"], json.dumps(report["differences"])


# ---- by hand, without a run of their own
def a_row_more(group):
    for name in ("shift", "factor"):
        group[name][...] = group[name][...] + [0.0, 1e-9]


def other_classes(group):
    group.attrs["classes"] = ["ant", "bee", "dog"]


def another_scaling(group):
    group.attrs["scaling"] = "minmax"


@pytest.mark.parametrize(
    ("change", "parts"),
    [(a_row_more, ["scaling"]), (other_classes, ["classes"]), (another_scaling, ["scaling"])],
)
def test_verify__facts_of_the_rows_that_are_not_theirs_are_named_and_nothing_else(copied, change, parts):
    report = verify(rewritten(copied, change), trust=True)
    assert [difference["part"] for difference in report["differences"]] == parts
    assert report["per_class"] == []
    assert not report["agrees"]
    assert "accuracy" not in report


def test_verify__a_report_names_the_model_its_parts_and_its_progress(rows_run, copied):
    steps = []
    report = verify(copied, progress=lambda *step: steps.append(step), trust=True)
    assert Path(report["model"]) == copied / "model.zarr"
    assert [step for step in steps if step[0] == "verify"] == [("verify", k, 3) for k in (1, 2, 3)]
    keys = {"label", "primal", "dual", "kkt_gap", "relative_gap", "infeasibility", "uncertainty", "bar"}
    assert [(entry["label"], set(entry)) for entry in report["per_class"]] == [(c, keys) for c in ("ant", "bee", "cat")]
    assert report["train_accuracy"] == rows_run["train_accuracy"]
    halved = verify(rewritten(copied, halve_one), trust=True)
    for difference in halved["differences"]:
        assert set(difference) == {"part", "stored", "recomputed"}
        assert difference["stored"] != difference["recomputed"]
