"""Lines of `verify` one at a time: runs of a second, and numbers made by hand."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from pipeline import run
from pipeline.model import verify as verify_module
from pipeline.model.parts import OWNER, write_model_manifest
from pipeline.model.stored import load_model
from pipeline.model.verify import verify
from svmcore.errors import InputError
from svmcore.model.probability import sigmoid

LOW_RANK = {"approximation": {"name": "nystroem", "rank": 12}, "kernel": {"name": "rbf", "gamma": 0.5}}


def rewritten(model, folder, **changed):
    """Copy of a model with other attributes or arrays, and a manifest that fits."""
    copy = Path(shutil.copytree(model, folder / "model.zarr"))
    group = zarr.open_group(str(copy), mode="r+")
    for name, value in changed.items():
        if name in group:
            group[name][...] = value
        else:
            group.attrs[name] = value
    write_model_manifest(copy)
    return copy


def differing(model, **given):
    return [difference["part"] for difference in verify(model, trust=True, **given)["differences"]]


# ---- by hand
def test_same__within_the_slack_and_a_rounding_of_large_scores():
    for stated, here, slack, same in (
        (0.5, 0.5, 0.0, True),
        (0.5, 0.5 + 0.9e-12, 0.0, True),
        (0.5, 0.5 + 1.1e-12, 0.0, False),
        (0.5, 0.5 - 1.1e-12, 0.0, False),
        (-1e6, -1e6 - 0.9e-6, 0.0, True),
        (1e6, 1e6 + 0.9e-6, 0.0, True),
        (1e6, 1e6 + 1.1e-6, 0.0, False),
        (0.5, 0.75, 0.25, True),
        (0.5, 0.76, 0.25, False),
        (None, None, 0.0, True),
        (None, 0.0, 1.0, False),
        (0.0, None, 1.0, False),
        (np.nan, 0.5, 1.0, False),
    ):
        assert verify_module._same(stated, here, slack) is same


def test_sigmoid_difference__is_of_probabilities_between_the_margins_and_beyond_tol():
    difference = verify_module._sigmoid_difference
    assert difference("s", None, None, 1e-3) == []
    for stated, fitted in ((None, [-1.0, 0.0]), ([-1.0, 0.0], None)):
        assert [(d.part, d.stored, d.recomputed) for d in difference("s", stated, fitted, 1.0)] == [
            ("s", stated, fitted)
        ]
    steep, flat = [-2.0, 0.0], [-1.0, 0.0]  # alike at 0, the furthest apart on a margin
    for f in (-1.0, 1.0):
        apart = float(abs(sigmoid(np.array([f]), *steep) - sigmoid(np.array([f]), *flat))[0])
        assert difference("s", steep, flat, 1.0001 * apart) == []
        assert len(difference("s", steep, flat, 0.9999 * apart)) == 1
    for moved in (1.0, -1.0):  # the furthest apart on one margin alone: sigmoids of 3 f + 3 and 3 f + 2.9, or mirrored
        one, other = [-3.0, 3.0 * moved], [-3.0, 2.9 * moved]
        at = np.array([moved])
        apart = float(abs(sigmoid(at, *one) - sigmoid(at, *other))[0])
        assert len(difference("s", one, other, 0.99 * apart)) == 1
        assert difference("s", one, other, 1.02 * apart) == []


def sources(config, trusted=False, source=None, test=None):
    stored = dataclasses.make_dataclass("Stored", ["metadata", "path"])({"config": {"data": config}}, "m")
    found = verify_module._with_sources(stored, source, test, trusted)["data"]
    assert stored.metadata["config"]["data"] == config  # what is given is not written into the model
    return found


def test_with_sources__follows_what_is_given_bundled_trusted_or_no_name():
    plain = {"source": "/a", "test": 0.2, "scale": "standard"}
    assert sources(plain, trusted=True) == plain
    assert sources(plain, source="/b") == plain | {"source": "/b"}
    assert sources({"source": "/a", "test": "/c"}, True, test="/d") == {"source": "/a", "test": "/d"}
    assert sources({"source": "sklearn:iris"}) == {"source": "sklearn:iris"}
    assert sources({"source": "iris", "test": None}) == {"source": "iris", "test": None}
    for theirs in ({"source": "/a"}, {"source": "sklearn:iris", "test": "/c"}, {"source": "sklearn:${SECRET}"}):
        with pytest.raises(InputError, match="did not write it"):
            sources(theirs)
    with pytest.raises(InputError, match=r"data\.test '/c' is not opened; give --test URL"):
        sources({"source": "/a", "test": "/c"}, source="/b")


# ---- runs
def test_verify__other_rows_at_the_source_that_is_given(rows_run, rows_csv, tmp_path):
    lines = rows_csv.read_text().splitlines()
    (tmp_path / "rows.csv").write_text("\n".join([*lines[:5], lines[7], *lines[6:]]))
    report = verify(rows_run["run"], source=str(tmp_path / "rows.csv"))
    assert [difference["part"] for difference in report["differences"]] == ["data"]
    assert report["per_class"] == []


def test_verify__scaled_coefficients_are_those_of_their_program(tmp_path):
    """Those of nu-SVC are divided by its rho in the model."""
    config = {"data": {"source": "sklearn:iris"}, "task": "nu-svc", "nu": 0.3, "cluster": {"kind": "inline"}}
    record = run(config | {"kernel": {"name": "rbf", "gamma": 0.5}}, store=str(tmp_path / "runs"))
    rhos = [each["rho"] for each in load_model(record["run"]).metadata["per_class"]]
    assert min(rhos) > 0.0
    assert max(abs(rho - 1.0) for rho in rhos) > 0.1
    assert differing(record["run"]) == []


@pytest.mark.parametrize(
    "kept", [{"per_class": 2}, {"tasks": 2}, {"per_class": 2, "tasks": 2}, {"per_class": 0, "tasks": 0}]
)
def test_verify__a_model_that_says_nothing_of_a_class_is_found(rows_run, tmp_path, kept):
    attrs = zarr.open_group(rows_run["model"], mode="r").attrs
    fewer = {key: attrs[key][:count] for key, count in kept.items()}
    assert differing(rewritten(rows_run["model"], tmp_path, **fewer)) == ["problems"]


def test_verify__an_older_format_knows_no_schema_and_no_scores(rows_run, tmp_path):
    stored = load_model(rows_run["model"])
    scores = stored.metadata["scores"]
    assert differing(rows_run["model"]) == []
    group = zarr.open_group(rows_run["model"], mode="r")
    old = {key: value for key, value in dict(group.attrs).items() if key != "scores"}
    old |= {"accuracy": scores["test"]["accuracy"], "train_accuracy": scores["train"]["accuracy"]}
    dataset = verify_module.datasets.ingest(
        verify_module.load_experiment(stored.metadata["config"]), tmp_path / "cache", verify_module.silent
    )
    for number in (3, 4):
        changed = dataclasses.replace(
            stored,
            metadata=old | {"format": number},
            schema=dataclasses.replace(stored.schema, names=("length", "width")),
        )
        found = [difference.part for difference in verify_module._data_differences(changed, dataset)]
        assert found == ([] if number == 3 else ["schema"])
    older = dataclasses.replace(stored, metadata=old)
    none = np.zeros((dataset.n_merged, 3))
    decision = stored.model.decision_function(dataset.X())
    assert verify_module._score_differences(older, ["accuracy"], dataset, decision, none)[1] == []
    boast = dataclasses.replace(stored, metadata=old | {"accuracy": 0.125, "train_accuracy": 0.25})
    found = verify_module._score_differences(boast, ["accuracy"], dataset, decision, none)[1]
    assert [(d.part, d.stored) for d in found] == [("train_accuracy", 0.25), ("accuracy", 0.125)]


@pytest.fixture(scope="module")
def low_rank(rows_config, tmp_path_factory):
    """A nu-SVC of two classes of the rows through twelve landmarks: coefficients and bias are divided by a margin."""
    folder = tmp_path_factory.mktemp("low")
    lines = Path(rows_config["data"]["source"]).read_text().splitlines()
    (folder / "two.csv").write_text("\n".join(line for line in lines if not line.endswith("ant")))
    given = {key: value for key, value in rows_config.items() if key != "C"} | LOW_RANK
    data = rows_config["data"] | {"source": str(folder / "two.csv")}
    return run(given | {"task": "nu-svc", "nu": 0.3, "data": data}, store=folder / "store")


def test_verify__through_landmarks_of_a_machine_with_a_margin(low_rank, tmp_path):
    assert low_rank["status"] == "converged"
    assert low_rank["per_class"][0]["rho"] != 1.0
    steps = []
    report = verify(low_rank["model"], lambda *step: steps.append(step), trust=True)
    assert report["differences"] == []
    assert [step for step in steps if step[0] == "verify"] == [("verify", 1, 1)]
    (entry,) = report["per_class"]
    assert entry["dual"] == pytest.approx(low_rank["per_class"][0]["dual"], rel=1e-6)
    assert report["train_accuracy"] == low_rank["train_accuracy"]


def test_verify__through_landmarks_names_what_was_forged(low_rank, tmp_path):
    (claim,) = low_rank["per_class"]
    stored, label = load_model(low_rank["model"]), claim["label"]

    def parts(name, **changed):
        (tmp_path / name).mkdir()
        return differing(rewritten(low_rank["model"], tmp_path / name, **changed))

    for key in ("primal", "dual"):
        wrong = claim | {"exact": claim["exact"] | {key: 1.001 * claim["exact"][key]}}
        assert parts(key, per_class=[wrong]) == [f"exact {key} of class {label}"]
    assert parts("bias", bias=stored.model.bias + 0.1) == [f"bias of class {label}"]
    assert f"infeasibility of class {label}" in parts("rho", per_class=[claim | {"rho": 2.0 * claim["rho"]}])
    alpha = stored.alpha.copy()
    alpha[0, np.abs(alpha[0]).argmax()] *= 0.5
    assert f"dual of class {label}" in parts("alpha", alpha=alpha)


@pytest.fixture(scope="module")
def low_rank_classes(rows_config, tmp_path_factory):
    return run(rows_config | LOW_RANK, store=tmp_path_factory.mktemp("classes"))


def test_verify__through_landmarks_of_classes_without_a_margin_of_their_own(low_rank_classes):
    assert "rho" not in low_rank_classes["per_class"][0]
    report = verify(low_rank_classes["model"])
    assert report["differences"] == []
    assert [entry["label"] for entry in report["per_class"]] == ["ant", "bee", "cat"]


@pytest.fixture(scope="module")
def probable(rows_config, tmp_path_factory):
    return run(rows_config | {"probability": True}, store=tmp_path_factory.mktemp("probable"))


def test_verify__fits_sigmoids_again(probable, tmp_path):
    assert verify(probable["model"])["differences"] == []
    sigmoids = load_model(probable["model"]).model.sigmoids.copy()
    sigmoids[1, 1] += 0.04  # 0.01 of a probability, twice what folds may differ
    assert differing(rewritten(probable["model"], tmp_path, sigmoids=sigmoids)) == ["sigmoid of bee"]


def test_verify__sigmoids_that_one_solution_told_are_the_same_to_tol(tmp_path):
    """Folds are solved anew and may differ by more; of these rows so many are free that none were solved."""
    data = {"source": "sklearn:breast_cancer", "scale": "standard"}
    config = {
        "data": data,
        "kernel": {"name": "rbf", "gamma": 0.05},
        "probability": True,
        "cluster": {"kind": "inline"},
    }
    model = run(config, store=tmp_path)["model"]
    assert differing(model) == []
    sigmoids = load_model(model).model.sigmoids.copy()
    sigmoids[0, 1] += 0.01  # a probability of a half changes by a quarter of it: by 2.5 tol
    assert differing(rewritten(model, tmp_path, sigmoids=sigmoids)) == ["sigmoid of 1"]


@pytest.fixture(scope="module")
def of_values(tmp_path_factory):
    """A support vector regression: two variables on a row, scores of values, none of test rows."""
    folder, rng = tmp_path_factory.mktemp("values"), np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    np.savez(folder / "rows.npz", X=X, y=X[:, 0] + 0.1 * rng.normal(size=40))
    data = {"source": str(folder / "rows.npz")}
    config = {"data": data, "task": "svr", "C": 4.0, "epsilon": 0.05, "cluster": {"kind": "inline"}}
    return run(config, store=folder / "store")


def test_verify__a_model_of_values_without_test_rows(of_values, tmp_path):
    report = verify(of_values["model"])
    assert report["differences"] == []
    stored = load_model(of_values["model"])
    assert report["scores"]["train"] == pytest.approx(stored.metadata["scores"]["train"], abs=1e-3)
    theirs = rewritten(of_values["model"], tmp_path)
    (theirs / OWNER).unlink()
    with pytest.raises(InputError, match=r"give --source URL of the same rows"):
        verify(theirs)
    assert verify(theirs, source=stored.metadata["config"]["data"]["source"])["agrees"]
