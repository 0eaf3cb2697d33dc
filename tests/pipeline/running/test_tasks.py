"""Every machine from a config to a verified model: against scikit-learn's, which shares no code with ours."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from sklearn.metrics import get_scorer, max_error, mean_absolute_error, r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.svm import SVR, NuSVC, NuSVR, OneClassSVM

from pipeline import load_model, run
from pipeline.answers.problem import fold_codes
from pipeline.answers.result import find_result
from pipeline.config.load import load_experiment
from pipeline.model.parts import write_model_manifest
from pipeline.model.predict import predict_to_file
from pipeline.model.verify import verify
from pipeline.rows.dataset import open_dataset
from pipeline.running.batch import lay_out
from pipeline.running.plan import plan_of
from pipeline.running.session import open_session
from pipeline.storage.runs import open_store
from svmcore.errors import InputError, InvalidProblem
from svmcore.export import export_model

GAMMA, TOL = 0.2, 1e-7
RBF = {"kernel": {"name": "rbf", "gamma": GAMMA}, "solver": {"name": "smo", "tol": TOL}, "cluster": {"kind": "inline"}}
MACHINES = {
    "svr": ({"C": 5.0, "epsilon": 0.1}, SVR),
    "nu-svr": ({"C": 5.0, "nu": 0.4}, NuSVR),
    "nu-svc": ({"nu": 0.3}, NuSVC),
    "one-class": ({"nu": 0.15}, OneClassSVM),
}
PEER = {"svr": "values", "nu-svr": "values", "nu-svc": "classes", "one-class": "novelty"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """160 rows, ten of them twice: values that float32 does not hold, two classes, and some rows far outside."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 3))
    values = np.sin(X[:, 0]) + X[:, 1] ** 2 / 3.0 + 0.2 * rng.normal(size=150)
    far = rng.random(150) < 0.1
    targets = {"values": values, "classes": np.where(values > 0.3, 1, -1), "novelty": np.where(far, -1, 1)}
    folder, found = tmp_path_factory.mktemp("sources"), {}
    for name, y in targets.items():
        rows = np.where(far[:, None], 4.0 * X, X) if name == "novelty" else X
        rows, y = np.concatenate([rows, rows[:10]]), np.concatenate([y, y[:10]])
        np.savez(folder / f"{name}.npz", X=rows, y=y)
        found[name] = (folder / f"{name}.npz", rows, y)
    return found


@pytest.fixture(scope="module", params=MACHINES)
def trained(request, sources, tmp_path_factory):
    """(task, metrics, training rows and targets, scikit-learn's model)."""
    keys, peer = MACHINES[request.param]
    path, X, y = sources[PEER[request.param]]
    config = RBF | {"name": "it", "data": {"source": str(path)}, "task": request.param} | keys
    record = run(config, store=tmp_path_factory.mktemp("store"))
    fitted = peer(gamma=GAMMA, tol=1e-9, **keys).fit(X, y)
    return request.param, record, X, y, fitted


def clear(task, peer, X):
    """Rows (n,) that are not on the very margin: support vectors of one class are, and may be on either side."""
    return np.ones(len(X), bool) if task.endswith("svr") else np.abs(peer.decision_function(X)) > 1e-5


def test_run__is_scikit_learns_model(trained):
    task, record, X, _, peer = trained
    assert record["task"] == task
    assert record["status"] == "converged"
    ours = load_model(record["model"])
    decide = peer.predict if task.endswith("svr") else peer.decision_function
    np.testing.assert_allclose(ours.decision_function(X)[:, 0], decide(X), atol=1e-5)
    told = clear(task, peer, X)
    np.testing.assert_allclose(ours.predict(X)[told], peer.predict(X)[told], atol=1e-5)
    (entry,) = record["per_class"]
    assert entry["kkt_gap"] <= 1.05 * TOL
    rows_of_peer = np.zeros(len(X), bool)
    rows_of_peer[peer.support_] = True
    assert abs(entry["n_support"] - rows_of_peer.sum()) <= 2  # a row on the very margin may be either


def test_verify__agrees_and_names_what_was_forged(trained, tmp_path):
    task, record, *_ = trained
    assert verify(record["run"])["agrees"]

    def differing(change):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        shutil.copytree(record["model"], folder / "model.zarr")
        group = zarr.open_group(str(folder / "model.zarr"), mode="r+")
        change(group)
        (folder / "model.zarr" / "manifest.json").unlink()
        write_model_manifest(folder / "model.zarr")
        return [difference["part"] for difference in verify(folder, trust=True)["differences"]]

    def halve_one(group):
        coef = group["coef"][...]
        coef[0, np.abs(coef[0]).argmax()] /= 2
        group["coef"][...] = coef

    def shift_bias(group):
        group["bias"][...] = group["bias"][...] + 0.01

    def claim(key, value):
        def change(group):
            entries = group.attrs["per_class"]
            entries[0][key] = value
            group.attrs["per_class"] = entries

        return change

    def boast(group):
        scores = group.attrs["scores"]
        name = next(iter(scores["train"]))
        scores["train"][name] += 0.5  # rows on the very margin may be on either side
        group.attrs["scores"] = scores

    label = record["per_class"][0]["label"]
    assert f"dual of class {label}" in differing(halve_one)
    assert differing(shift_bias) == [f"bias of class {label}"]
    assert differing(boast) == [f"train_{next(iter(record['scores']['train']))}"]
    if task == "nu-svr":
        epsilon = record["per_class"][0]["epsilon"]
        assert differing(claim("epsilon", epsilon + 0.01)) == [f"epsilon of class {label}"]
        assert differing(claim("epsilon", None)) == [f"epsilon of class {label}"]
    if task == "nu-svc":
        assert f"infeasibility of class {label}" in differing(claim("rho", 2.0 * record["per_class"][0]["rho"]))


def test_predict__writes_the_same_in_every_form_and_scores_it(trained, sources, tmp_path):
    task, record, X, y, peer = trained
    path = sources[PEER[task]][0]
    said = "values" if task.endswith("svr") else "labels"
    found = predict_to_file(record["run"], str(path))
    told = clear(task, peer, X)
    np.testing.assert_allclose(np.array(found[said])[told], peer.predict(X)[told], atol=1e-5)
    assert ("decision" in found) == (said == "labels")
    for name in ("said.csv", "said.parquet", "said.json"):
        predict_to_file(record["run"], str(path), tmp_path / name)
    import pandas

    for table in (pandas.read_csv(tmp_path / "said.csv"), pandas.read_parquet(tmp_path / "said.parquet")):
        assert table[said[:-1]].tolist() == found[said]
        assert ("decision" in table) == (said == "labels")
    assert json.loads((tmp_path / "said.json").read_text())[said] == found[said]
    if said == "values":
        assert found["r2"] == pytest.approx(r2_score(y, found["values"]))
        assert found["mae"] == pytest.approx(mean_absolute_error(y, found["values"]))
        assert found["max_error"] == pytest.approx(max_error(y, found["values"]))
    if task == "one-class":
        assert found["rejected"] == np.mean(np.array(found["labels"]) == -1)
        assert found["roc_auc"] == pytest.approx(roc_auc_score(y, np.ravel(found["decision"])))
    if task == "nu-svc":
        assert found["accuracy"] == pytest.approx(peer.score(X, y), abs=2 / 160)


def test_export__onnx_says_the_same(trained, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    task, record, X, _, peer = trained
    stored = load_model(record["model"])
    export_model(stored.model, tmp_path / "model.onnx", stored.scaling.shift, stored.scaling.factor)
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    name = "value" if task.endswith("svr") else "label"
    told = clear(task, peer, X)
    np.testing.assert_allclose(np.ravel(session.run([name], {"X": X})[0])[told], peer.predict(X)[told], atol=1e-5)


def test_report__shows_what_the_task_is_about(trained):
    task, record, *_ = trained
    page = (Path(record["run"]) / "report.html").read_text()
    shown = {"Predicted against true": task.endswith("svr"), "Residuals": task.endswith("svr")}
    shown |= {"Decision values": task == "one-class", "Furthest outside": task == "one-class"}
    shown |= {"Confusion matrix": task == "nu-svc", "ROC curve": task == "nu-svc"}
    assert {name: name in page for name in shown} == shown


# --- targets --------------------------------------------------------------------------------------------------------
def written(folder, kind, X, y):
    """A source of the format."""
    path = folder / f"rows.{kind}"
    if kind == "npz":
        np.savez(path, X=X, y=y)
    elif kind == "zarr":
        group = zarr.create_group(str(path))
        group["X"], group["y"] = X, y
    elif kind == "parquet":
        import pandas

        pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "target": y}).to_parquet(path)
    elif kind == "csv":
        lines = [",".join(map(repr, [*x.tolist(), t])) for x, t in zip(X, y.tolist(), strict=True)]
        path.write_text("\n".join(["a,b,c,target", *lines]) + "\n")
    else:
        entries = [" ".join(f"{j + 1}:{v!r}" for j, v in enumerate(x.tolist())) for x in X]
        path.write_text("\n".join(f"{t!r} {e}" for t, e in zip(y.tolist(), entries, strict=True)) + "\n")
    return path


def data_of(config, tmp_path):
    with open_session(load_experiment(RBF | config), open_store(str(tmp_path / "store"))) as session:
        batch = lay_out(session)
    return open_dataset(batch.parts[0].data.path), batch


@pytest.mark.parametrize("kind", ["npz", "zarr", "parquet", "csv", "libsvm"])
def test_targets__of_every_format_are_the_float64_that_was_written(kind, sources, tmp_path):
    _, X, y = sources["values"]
    dataset, _ = data_of({"data": {"source": str(written(tmp_path, kind, X, y))}, "task": "svr"}, tmp_path)
    assert dataset.targets().dtype == np.float64
    assert np.array_equal(dataset.targets()[dataset.inverse()], y)
    assert dataset.classes == []
    assert dataset.counts().sum() == 160
    assert dataset.n_merged == 150  # copies with equal targets


@pytest.mark.parametrize(
    ("cell", "said"), [("oops", "row 3: the target is 'oops'"), ("inf", "row 3: the target is inf")]
)
def test_targets__that_are_no_numbers_name_the_row(cell, said, tmp_path):
    (tmp_path / "rows.csv").write_text(f"a,t\n1,0.5\n2,1.5\n3,{cell}\n4,2\n")
    with pytest.raises(InputError, match=f"{said}.*finite numbers"):
        data_of({"data": {"source": str(tmp_path / "rows.csv")}, "task": "svr"}, tmp_path)


def test_split_and_folds__of_values_are_scikit_learns_without_strata(sources, tmp_path):
    path, _, y = sources["values"]
    config = {"data": {"source": str(path), "test": 0.25}, "task": "svr", "seed": 3, "sweep": {"folds": 4}}
    dataset, batch = data_of(config, tmp_path)
    kept, held_out = train_test_split(np.arange(160), test_size=0.25, random_state=3)
    assert np.array_equal(dataset.test_targets(), y[np.sort(held_out)])
    assert np.array_equal(dataset.targets()[dataset.inverse()], y[np.sort(kept)])
    fold = fold_codes(batch.parts[0].data.path, 4, 3)
    for k, (_, test) in enumerate(KFold(4, shuffle=True, random_state=3).split(np.zeros(120))):
        assert np.array_equal(np.flatnonzero(fold == k), test)


def test_one_class__the_most_frequent_label_is_inside_and_labels_are_not_needed(sources, tmp_path):
    path, X, y = sources["novelty"]
    dataset, _ = data_of({"data": {"source": str(path)}, "task": "one-class"}, tmp_path)
    assert dataset.classes == [1, -1]
    assert np.array_equal(dataset.targets()[dataset.inverse()], (y == -1).astype(int))
    np.savez(tmp_path / "bare.npz", X=X)
    given = {"source": str(tmp_path / "bare.npz"), "label": None}
    config = RBF | {"name": "bare", "data": given, "task": "one-class", "nu": 0.2}
    record = run(config, store=tmp_path / "store")
    assert record["classes"] == []
    assert record["scores"]["train"] == {"rejected": pytest.approx(0.2, abs=0.05), "roc_auc": None}
    assert verify(record["run"])["agrees"]
    with pytest.raises(InputError, match="has no labels; accepted: rejected"):
        run(config | {"scoring": "roc_auc"}, store=tmp_path / "store")


# --- sweeps ---------------------------------------------------------------------------------------------------------
def test_sweep__scores_are_those_of_grid_search(sources, tmp_path):
    path, X, y = sources["values"]
    names = ["neg_mean_absolute_error", "r2"]
    config = RBF | {"name": "grid", "data": {"source": str(path)}, "task": "svr", "scoring": names}
    grid = {"C": [1.0, 10.0], "epsilon": [0.05, 0.3]}
    record = run(config | {"sweep": {"grid": grid, "folds": 3, "refit": "r2"}}, store=tmp_path)
    cv = KFold(3, shuffle=True, random_state=0)
    peer = GridSearchCV(SVR(gamma=GAMMA, tol=1e-9), grid, scoring=names, refit="r2", cv=cv).fit(X, y)
    assert record["best"]["params"] == peer.best_params_
    assert record["scored_by"] == "r2"
    for point in record["points"]:
        at = peer.cv_results_["params"].index(point["params"])
        assert point["mean_score"] == pytest.approx(peer.cv_results_["mean_test_r2"][at], abs=1e-5)
        assert point["std_score"] == pytest.approx(peer.cv_results_["std_test_r2"][at], abs=1e-5)
        other = peer.cv_results_["mean_test_neg_mean_absolute_error"][at]
        assert point["scores"]["neg_mean_absolute_error"]["mean"] == pytest.approx(other, abs=1e-5)
    header = (Path(record["run"]) / "results.csv").read_text().split("\n")[0]
    assert "mean_score,std_score,fold_0_score,fold_1_score,fold_2_score,mean_neg_mean_absolute_error" in header
    assert verify(record["run"])["agrees"]


@pytest.mark.usefixtures("here_without_figures")
@pytest.mark.parametrize(
    ("task", "grid"),
    [
        ("svr", {"C": [1, 10], "epsilon": [0.0, 0.1, 0.3]}),
        ("nu-svr", {"C": [1, 10], "nu": [0.2, 0.5]}),
        ("nu-svc", {"nu": [0.1, 0.2, 0.4]}),
        ("one-class", {"nu": [0.05, 0.1, 0.4]}),
    ],
)
def test_chains__go_through_all_points_and_end_where_cold_starts_do(task, grid, sources, tmp_path):
    config = {"data": {"source": str(sources[PEER[task]][0])}, "task": task, "sweep": {"grid": grid, "refit": False}}
    _, batch = data_of(config, tmp_path)
    (part,) = batch.parts
    (chain,) = part.chains
    assert len(chain) == np.prod([len(values) for values in grid.values()])
    assert [task.warm for task in chain[1:]] == [task.fingerprint for task in chain[:-1]]
    record = run(RBF | config | {"name": "chain"}, store=tmp_path / "store")
    assert record["status"] == "converged"
    answers = [find_result(task) for task in chain]
    for point in record["points"]:
        alone = run(
            RBF | config | {"name": "alone", "sweep": None} | point["params"],
            store=tmp_path / "cold",
        )
        (entry,) = alone["per_class"]
        (warm,) = [a for a, t in zip(answers, chain, strict=True) if matches(t, point["params"])]
        assert warm.certificate["dual"] == pytest.approx(entry["dual"], rel=1e-6)
        assert warm.bias / warm.scale == pytest.approx(entry["bias"], abs=1e-4)


def matches(task, params):
    return all((task.C if key == "C" else task.machine[key]) == value for key, value in params.items())


# --- what cannot work -----------------------------------------------------------------------------------------------
def test_nu__that_is_infeasible_is_refused_before_any_kernel(tmp_path):
    config = RBF | {"name": "no", "data": {"source": "sklearn:digits", "rows": 200}, "task": "nu-svc", "nu": 0.5}
    with pytest.raises(
        InvalidProblem, match=r"specified nu is infeasible: 0\.5 was given; at most .* \(class 0 against"
    ):
        run(config, store=tmp_path)
    assert not list(tmp_path.rglob("gram"))
    pairs = {"sweep": {"folds": 3}, "class_weight": {1: 0.01}, "multiclass": "ovo"}
    with pytest.raises(InvalidProblem, match=r"classes 0 and \d.*without fold"):
        run(config | pairs, store=tmp_path)


def test_plan__of_a_regression(sources, tmp_path):
    path = sources["values"][0]
    config = RBF | {"name": "plan", "data": {"source": str(path)}, "task": "svr", "sweep": {"grid": {"C": [1, 2]}}}
    plan = plan_of(load_experiment(config), str(tmp_path))
    assert (plan["points"], plan["problems"], plan["n_merged"]) == (2, 3, 150)
    assert plan["seconds"]["total"] > 0


def test_scores__are_scikit_learns_of_original_rows(sources, tmp_path):
    path, X, y = sources["classes"]
    names = ["balanced_accuracy", "f1", "roc_auc", "average_precision", "accuracy"]
    config = RBF | {"name": "many", "data": {"source": str(path)}, "C": 2, "scoring": names}
    record = run(config, store=tmp_path)
    stored = load_model(record["model"])
    f = stored.decision_function(X)[:, 0]
    expected = {
        "roc_auc": roc_auc_score(y, f),
        "accuracy": float(np.mean(np.where(f >= 0, 1, -1) == y)),
    }
    assert list(record["scores"]["train"]) == names
    for name, value in expected.items():
        assert record["scores"]["train"][name] == pytest.approx(value, abs=1e-9)
    for name in ("f1", "balanced_accuracy"):
        score = get_scorer(name)._score_func
        assert record["scores"]["train"][name] == pytest.approx(score(y, np.where(f >= 0, 1, -1)))
