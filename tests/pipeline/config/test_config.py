"""The configuration: every key, every error in one sentence, nothing lost on the way back to YAML."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.load import load_experiment
from pipeline.config.schema import Experiment
from pipeline.config.values import expand, format_bytes, parse_bytes
from svmcore.errors import InputError, SVMError, UnknownPlugin

CONFIGS = sorted((Path(__file__).parents[3] / "config").glob("*.yaml"))
IRIS = {"data": {"source": "sklearn:iris"}}

EVERY_KEY = """
name: all-of-it
seed: 3
data:
  source: ${DATA}/train.csv
  test: 0.25
  label: outcome
  header: true
  delimiter: ";"
  rows: 1000
  scale: standard
kernel: {name: sum, left: {name: rbf, gamma: 1e-2}, right: {name: scaled, kernel: {name: linear}, scale: 0.1}}
loss: squared_hinge
C: .inf
bias: penalised
class_weight: {a: 1, b: 2.5}
multiclass: ovo
solver: {name: smo, tol: 1e-07, max_iter: 100, time_limit: 600}
cache: {limit: 4GiB, disk: 500 MB}
cluster: {kind: factory, factory: dask_jobqueue.SLURMCluster, kwargs: {queue: "${QUEUE}"}, workers: 4, memory: 8GiB}
store: s3://bucket/prefix
sweep:
  grid: {C: [0.1, 1, 1e1], kernel.left.gamma: [0.01, 0.1]}
  list: [{loss: hinge}]
  folds: {column: fold}
  refit: false
"""


def written(folder, text, name="exp.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def message(config, *overrides):
    with pytest.raises(SVMError) as caught:
        load_experiment(config, overrides)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.name)
def test_every_file_in_config_loads(path):
    exp = load_experiment(path)
    assert exp.name.replace("-", "_") == path.stem
    assert load_experiment(exp.to_dict()) == exp


def test_there_are_configs():
    assert {path.name for path in CONFIGS} >= {"digits.yaml", "mnist.yaml"}


def test_a_file_needs_only_a_source(tmp_path):
    exp = load_experiment(written(tmp_path, "data: {source: 'sklearn:iris'}", "small.yaml"))
    assert (exp.name, exp.C, exp.bias, exp.loss, exp.multiclass, exp.seed) == ("small", 1.0, "free", "hinge", "ovr", 0)
    assert exp.kernel == {"name": "rbf", "gamma": "scale"}
    assert exp.solver["name"] == "auto"
    assert exp.solver_for(4).name == "smo"
    assert load_experiment(IRIS | {"kernel": "linear"}).with_solver_for(4).solver["name"] == "interior-point"
    assert load_experiment(IRIS | {"kernel": "linear"}).with_solver_for(400).solver["name"] == "auto"
    assert load_experiment(IRIS | {"kernel": "linear", "plan": "shards"}).with_solver_for(400).solver["name"] == "smo"
    assert exp.tol == 1e-3
    assert exp.data.scale == "none"


def test_a_mapping_is_named_after_its_source():
    assert load_experiment({"data": {"source": "/x/a9a.t.bz2"}}).name == "a9a.t"
    assert load_experiment(IRIS).name == "iris"


def test_every_key_is_kept_and_survives_the_way_through_yaml(tmp_path):
    exp = load_experiment(written(tmp_path, EVERY_KEY))
    assert exp.data.source == "${DATA}/train.csv"
    assert exp.kernel["left"] == {"name": "rbf", "gamma": 0.01}
    assert math.inf == exp.C
    assert exp.solver["tol"] == 1e-7
    assert exp.cache.limit == 4 * 2**30
    assert exp.cache.disk == 500_000_000
    assert exp.cluster.workers == 4
    assert exp.fold_column == "fold"
    assert exp.sweep.refit is None
    again = load_experiment(written(tmp_path, exp.to_yaml(), "again.yaml"))
    assert again == exp
    assert again.fingerprint is not None
    assert "limit: 4GiB" in exp.to_yaml()


def test_paths_are_stored_absolute_and_secrets_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUCKET_KEY", "s3cret")
    exp = load_experiment({"data": {"source": "x/train.csv", "test": "${BUCKET_KEY}/t.csv"}, "store": "out"})
    assert exp.data.source == str(tmp_path / "x/train.csv")
    assert exp.store == str(tmp_path / "out")
    assert exp.data.test == "${BUCKET_KEY}/t.csv"
    assert "s3cret" not in exp.to_yaml()
    assert expand(exp.data.test) == "s3cret/t.csv"


def test_an_unset_variable_is_named():
    with pytest.raises(InputError, match="NOT_SET_ANYWHERE"):
        expand("s3://${NOT_SET_ANYWHERE}/x")


# ---- overrides ----
def test_overrides_win_and_parse_as_yaml():
    exp = load_experiment(
        IRIS | {"C": 3}, ["C=1e2", "kernel.gamma=1e-07", "data.test=0.5", "solver.tol=1e-4", "seed=7"]
    )
    assert (exp.C, exp.kernel["gamma"], exp.data.test, exp.tol, exp.seed) == (100.0, 1e-7, 0.5, 1e-4, 7)


def test_overrides_do_not_reach_the_mapping_given():
    config = {"data": {"source": "sklearn:iris"}, "kernel": {"name": "rbf"}}
    load_experiment(config, ["kernel.gamma=3", "data.rows=10"])
    assert config == {"data": {"source": "sklearn:iris"}, "kernel": {"name": "rbf"}}


def test_a_new_kernel_name_drops_the_parameters_it_lacks():
    exp = load_experiment(IRIS | {"kernel": {"name": "rbf", "gamma": 0.5}}, ["kernel.name=linear"])
    assert exp.kernel == {"name": "linear"}
    exp = load_experiment(IRIS | {"kernel": {"name": "rbf", "gamma": 0.5}}, ["kernel.name=polynomial"])
    assert exp.kernel["gamma"] == 0.5


def test_overrides_of_labels_and_of_sweep_keys():
    exp = load_experiment(IRIS, ["class_weight.1=2", "class_weight.b=3", "sweep.grid.kernel.gamma=[0.1, 1]"])
    assert exp.class_weight == {1: 2.0, "b": 3.0}
    assert exp.sweep.grid == {"kernel.gamma": [0.1, 1]}


# ---- errors: given, accepted, remedy ----
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("C=0", ["C is 0", "positive"]),
        ("C=-1", ["C is -1"]),
        ("C=.nan", ["C is nan"]),
        ("C=abc", ["C is 'abc'"]),
        ("C=true", ["C is True"]),
        ("kernel.gamma=0", ["gamma", "0"]),
        ("kernel.gamma=-2", ["gamma", "-2"]),
        ("solver.tol=0", ["tol", "0"]),
        ("solver.tol=-1e-3", ["tol", "-0.001"]),
        ("kernel.name=rfb", ["'rfb'", "did you mean 'rbf'"]),
        ("kernel.gama=1", ["'gama'", "did you mean 'gamma'"]),
        ("solver.name=smoo", ["'smoo'", "did you mean 'smo'"]),
        ("data.sorce=x", ["'sorce'", "in 'data'", "did you mean 'source'"]),
        ("data={sorce: x}", ["'sorce'", "in 'data'", "did you mean 'source'"]),
        ("data={}", ["the key 'data.source' is missing"]),
        ("sed=1", ["'sed'", "did you mean 'seed'"]),
        ("tol=1e-3", ["'tol'", "did you mean 'solver.tol'"]),
        ("rows=5", ["'rows'", "did you mean 'data.rows'"]),
        ("data.source=sklearn:digit", ["did you mean 'digits'"]),
        ("data.test=1.5", ["data.test is 1.5", "fraction between 0 and 1"]),
        ("data.rows=1.5", ["data.rows is 1.5", "whole number"]),
        ("data.scale=standrd", ["'standrd'", "standard, minmax"]),
        ("data.scale=0", ["data.scale is 0"]),
        ("data=iris", ["data is 'iris'", "source"]),
        ("cache.limit=4XB", ["cache.limit is '4XB'", "4GiB"]),
        ("cluster.kind=slurm", ["cluster.kind is 'slurm'", "scheduler_file"]),
        ("cluster.kind=address", ["cluster.address"]),
        ("cluster.address=tcp://x:1", ["cluster.address", "local"]),
        ("class_weight=heavy", ["class_weight is 'heavy'", "balanced"]),
        ("class_weight.1=0", ["class_weight", "weight of 1 is 0"]),
        ("bias=fre", ["bias is 'fre'", "penalised"]),
        ("seed=-1", ["seed is -1"]),
        ("name=a/b", ["name is 'a/b'"]),
        ("sweep.folds=1", ["sweep.folds is 1"]),
        ("sweep.folds={colum: x}", ["{column: NAME}"]),
        ("sweep.grid.C=[1, -2]", ["sweep point {C: -2}", "positive"]),
        ("sweep.grid.kernel.gama=[1]", ["'gama'", "did you mean 'gamma'"]),
        ("sweep.grid.C=[]", ["sweep.grid.C", "empty"]),
        ("sweep.grid.C=1", ["sweep.grid.C is 1", "lists of values"]),
        ("sweep.gird={C: [1]}", ["known: grid, list, folds, refit", "did you mean 'grid'"]),
        ("sweep.list=3", ["sweep.list is 3", "a list of mappings"]),
        ("sweep.grid.store=[a, b]", ["'store'", "cannot be swept"]),
        ("sweep.list=[{c: 2}]", ["'c'", "sweep point {c: 2}"]),
        ("data.source.x=1", ["data.source.x"]),
        ("C=[1", ["--set C", "not valid YAML"]),
        ("C", ["KEY=VALUE", "'C'"]),
    ],
)
def test_an_error_is_one_sentence_that_names_what_was_given(override, words):
    text = message(IRIS, override)
    for word in words:
        assert word in text, text


@pytest.mark.parametrize("tag", ["object/apply:os.mkdir", "object/new:os.mkdir", "name:os.mkdir", "module:os"])
def test_yaml_makes_no_objects_and_runs_no_code(tmp_path, tag):
    made = tmp_path / "made"
    text = message(written(tmp_path, f"data: !!python/{tag} [{made}]"))
    assert "exp.yaml, line 1, column 7: not valid YAML: could not determine a constructor for the tag" in text
    assert not made.exists()


def test_unknown_plugins_keep_their_type():
    with pytest.raises(UnknownPlugin):
        load_experiment(IRIS | {"kernel": "spline"})


def test_errors_name_the_file(tmp_path):
    path = written(tmp_path, "data: {source: 'sklearn:iris'}\nC: -1\n")
    assert message(path).startswith(f"{path}: C is -1")
    assert str(tmp_path / "missing.yaml") in message(tmp_path / "missing.yaml")
    assert "line 2" in message(written(tmp_path, "C: 1\n  D: [\n"))
    assert "data.source" in message(written(tmp_path, "[1, 2]"))
    assert "'data'" in message({})
    assert "data.source" in message({"data": {}})


def test_a_solver_that_does_not_fit_is_refused_when_the_file_is_read(monkeypatch):
    from svmcore.solvers import SMO, Solves
    from svmcore.tasks.losses import SquaredHinge

    monkeypatch.setattr(SMO, "solves", Solves(losses=(SquaredHinge,)))
    smo = IRIS | {"solver": "smo"}
    assert "loss=hinge" in message(smo)
    assert load_experiment(smo | {"loss": "squared_hinge"}).loss == "squared_hinge"


# ---- fingerprint ----
@pytest.mark.parametrize(
    "override",
    ["C=2", "seed=1", "kernel.gamma=0.1", "data.test=0.1", "bias=none", "class_weight=balanced", "solver.tol=1e-5",
     "sweep.folds=5", "multiclass=ovo", "loss=squared_hinge", "data.source=sklearn:wine", "class_weight.1=2"],
)  # fmt: skip
def test_what_changes_the_answer_changes_the_fingerprint(override):
    assert load_experiment(IRIS, [override]).fingerprint() != load_experiment(IRIS).fingerprint()


@pytest.mark.parametrize(
    "override",
    ["name=other", "store=/tmp/elsewhere", "cluster.kind=inline", "cluster.workers=7", "cache.limit=1GiB",
     "solver.time_limit=5", "C=1", "C=1.0"],
)  # fmt: skip
def test_what_does_not_change_the_answer_keeps_the_fingerprint(override):
    assert load_experiment(IRIS, [override]).fingerprint() == load_experiment(IRIS).fingerprint()


def test_the_label_one_and_the_text_one_are_told_apart():
    number, text = (load_experiment(IRIS | {"class_weight": {label: 2}}).fingerprint() for label in (1, "1"))
    assert number != text


# ---- sweeps ----
def test_without_a_sweep_there_is_one_point():
    exp = load_experiment(IRIS)
    assert exp.points() == [({}, exp)]


def test_the_grid_comes_in_the_order_of_scikit_learn_then_the_list():
    from sklearn.model_selection import ParameterGrid

    grid = {"kernel.gamma": [0.1, 1], "C": [1, 10, 100]}
    exp = load_experiment(IRIS | {"sweep": {"grid": grid, "list": [{"kernel": {"name": "linear"}, "C": 5}]}})
    points = exp.points()
    assert [params for params, _ in points[:-1]] == list(ParameterGrid(grid))
    assert points[-1][1].kernel == {"name": "linear"}
    assert points[-1][1].C == 5.0
    assert all(point.sweep is None for _, point in points)
    assert [point.C for _, point in points[:6]] == [1, 1, 10, 10, 100, 100]


def test_a_point_keeps_the_fold_column_and_nothing_else_of_the_sweep():
    sweep = {"grid": {"C": [1, 2]}, "folds": {"column": "f"}}
    exp = load_experiment({"data": {"source": "x.csv"}, "sweep": sweep})
    for _, point in exp.points():
        assert point.fold_column == "f"
        assert point.sweep.grid == {}
        assert point.points() == [({}, point)]


def test_kernels_can_be_swept_by_name():
    exp = load_experiment(
        IRIS | {"kernel": {"name": "rbf", "gamma": 2}, "sweep": {"grid": {"kernel.name": ["rbf", "linear"]}}}
    )
    assert [point.kernel for _, point in exp.points()] == [{"name": "rbf", "gamma": 2}, {"name": "linear"}]


def test_an_experiment_cannot_be_changed():
    exp = load_experiment(IRIS)
    with pytest.raises(ValueError, match="frozen"):
        exp.C = 2.0
    assert isinstance(exp, Experiment)


# ---- sizes ----
@pytest.mark.parametrize(
    ("text", "size"),
    [("4GiB", 4 << 30), ("1 MB", 10**6), ("2k", 2048), ("1.5GiB", 3 << 29), ("12", 12), (7, 7), ("3 tib", 3 << 40)],
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "4XB", "-1", ".", "1.2.3", None, True, 1.5])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="size"):
        parse_bytes(text)


@given(st.integers(1, 2**60))
def test_a_size_is_read_back_exactly(size):
    assert parse_bytes(format_bytes(size)) == size


def test_a_config_is_json():
    assert json.loads(json.dumps(load_experiment(IRIS).to_dict()))["data"]["source"] == "sklearn:iris"


# ---- what the command line set is blamed on the command line
@pytest.mark.parametrize(
    ("overrides", "blamed"),
    [
        (["kernal.gamma=1"], "--set kernal.gamma: unknown key 'kernal'"),
        (["C=10", "solver.tool=1", "seed=1"], "--set solver.tool: solver"),
        (["C=-1"], "--set C: C is -1"),
        (["sweep.grid.C=[]"], "--set sweep.grid.C: sweep.grid.C is an empty list"),
    ],
)
def test_an_override_that_is_wrong_is_named_and_not_the_file(tmp_path, overrides, blamed):
    path = written(tmp_path, "data: {source: 'sklearn:iris'}")
    assert message(path, *overrides).startswith(blamed)


def test_a_file_that_is_wrong_is_named_whatever_is_set(tmp_path):
    path = written(tmp_path, "data: {source: 'sklearn:iris'}\nkernal: rbf")
    assert message(path, "C=10").startswith(f"{path}: unknown key 'kernal'")
    assert message(path, "C=10", "seed=-1").startswith(f"{path}: ")
