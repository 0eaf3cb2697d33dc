"""Tables of any shape: columns found by name, gaps filled, texts coded; judged by scikit-learn's own transformers."""

import functools
import itertools
import json

import numpy as np
import onnxruntime
import pandas as pd
import polars
import pyarrow as pa
import pytest
import zarr
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from flows.cli import main
from pipeline import load_model, run
from pipeline.model.predict import predict_to_file
from pipeline.model.verify import verify
from svmcore.errors import InputError


def table(n=120, seed=0):
    """Three features on very different scales, and a label that hangs on all of them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.uniform(20, 80, n), "pay": rng.uniform(1e3, 9e3, n), "debt": rng.normal(size=n)})
    score = (frame["age"] - 50) / 15 + (frame["pay"] - 5000) / 2000 + frame["debt"]
    return frame.round(3).assign(kind=np.where(score > 0, "good", "bad"))


def mixed(n=160):
    """Numbers with gaps and two columns of text, one of which has gaps."""
    rng = np.random.default_rng(1)
    frame = table(n, 1)
    frame["colour"] = rng.choice(["red", "green", "blue"], n)
    frame["town"] = rng.choice(["Ulm", "Bern"], n)
    frame.loc[rng.random(n) < 0.2, "age"] = np.nan
    frame.loc[rng.random(n) < 0.2, "pay"] = np.nan
    frame.loc[rng.random(n) < 0.1, "colour"] = None
    return frame[["colour", "age", "town", "pay", "debt", "kind"]]


def saved(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
    return path


def config(source, **data):
    return {
        "data": {"source": str(source), "scale": "standard", "label": "kind", **data},
        "kernel": {"name": "rbf", "gamma": 0.5},
        "solver": {"name": "smo", "tol": 1e-6},
        "cluster": {"kind": "inline"},
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schema")
    return run(config(saved(table(), folder / "rows.csv")), store=folder / "runs")["model"]


@pytest.fixture(scope="module", params=["mean", "median"])
def filled(request, tmp_path_factory):
    """(kind of filling, model) of the mixed table."""
    folder = tmp_path_factory.mktemp("mixed")
    source = saved(mixed(), folder / "rows.csv")
    return request.param, run(config(source, missing=request.param, categories="onehot"), store=folder / "runs")


def predicted(model, path, capsys, *options):
    assert main(["predict", model, str(path), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.bz2", "parquet"])
@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_predict__finds_columns_by_name_in_any_order(trained, tmp_path, capsys, order, ending):
    rows = table(40, 5)
    expected = load_model(trained).decision_function(rows[["age", "pay", "debt"]].to_numpy())
    moved = rows[["kind", *(rows.columns[j] for j in order)]]  # the label is first, and last where it was trained
    found = predicted(trained, saved(moved, tmp_path / f"rows.{ending}"), capsys)
    np.testing.assert_allclose(found["decision"], expected, rtol=1e-12)
    assert found["accuracy"] > 0.85


def unnamed(rows, path):
    """The features alone, in a format that has no names of columns."""
    X = rows[["age", "pay", "debt"]].to_numpy()
    if path.suffix == ".npz":
        np.savez(path, X=X)
    elif path.suffix == ".zarr":
        zarr.save_group(str(path), X=X)
    else:
        path.write_text("".join(f"0 1:{a!r} 2:{b!r} 3:{c!r}\n" for a, b, c in X.tolist()))
    return path


@pytest.mark.parametrize("ending", ["npz", "zarr", "libsvm"])
def test_predict__of_formats_without_names_is_that_of_a_table(trained, tmp_path, capsys, ending):
    rows = table(40, 5)
    expected = predicted(trained, saved(rows, tmp_path / "rows.csv"), capsys)
    found = predicted(trained, unnamed(rows, tmp_path / f"rows.{ending}"), capsys)
    assert found["labels"] == expected["labels"]
    np.testing.assert_allclose(found["decision"], expected["decision"], rtol=1e-12)


def test_predict__of_a_sparse_array_is_that_of_a_dense_one(trained):
    """The zeros of a row are no zeros once the mean is taken off."""
    stored, X = load_model(trained), table(40, 5)[["age", "pay", "debt"]].to_numpy(copy=True)
    X[::3, 2] = 0
    np.testing.assert_allclose(stored.decision_function(sparse.csr_array(X)), stored.decision_function(X), rtol=1e-12)


FRAMES = {
    "pandas": pd.DataFrame,
    "polars": polars.from_pandas,
    "pyarrow": pa.Table.from_pandas,
    "batch": pa.RecordBatch.from_pandas,
}


@pytest.mark.parametrize("library", [*FRAMES.values()], ids=[*FRAMES])
def test_predict__takes_data_frames_in_any_order(trained, library):
    stored, rows = load_model(trained), table(40, 5)[["debt", "kind", "pay", "age"]]
    expected = stored.decision_function(rows[["age", "pay", "debt"]].to_numpy())
    np.testing.assert_array_equal(stored.decision_function(library(rows)), expected)
    assert stored.predict(library(rows)).tolist() == stored.predict(rows[["age", "pay", "debt"]].to_numpy()).tolist()


def test_predict__an_index_of_pandas_is_no_column(trained):
    rows = table(40, 5)
    stored = load_model(trained)
    by_name = rows.set_index(pd.Index([f"r{i}" for i in range(40)], name="who"))
    assert stored.predict(by_name).tolist() == stored.predict(rows).tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.rename(columns={"debt": "debts"}), "no column 'debt', which the training data has.*'debts'"),
        (
            lambda t: t[["kind", "age"]],
            "no column 'pay', 'debt', which the training data has; its columns: 'kind', 'age'",
        ),
        (lambda t: t.assign(height=1.0), "the training data has no column 'height'"),
    ],
    ids=["renamed", "missing", "extra"],
)
@pytest.mark.parametrize("ending", ["csv", "parquet", None])
def test_predict__refuses_other_columns_by_name(trained, tmp_path, change, said, ending):
    rows = change(table(10))
    given = rows if ending is None else str(saved(rows, tmp_path / f"rows.{ending}"))
    work = load_model(trained).predict if ending is None else functools.partial(predict_to_file, trained)
    with pytest.raises(InputError, match=said):
        work(given)


def test_predict__refuses_a_column_that_is_there_twice(trained, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("age,pay,debt,age\n1,2,3,4\n")
    with pytest.raises(InputError, match="'age' is there twice"):
        predict_to_file(trained, str(path))
    path.write_text("age,pay,age,kind\n1,2,3,a\n1,2,3,b\n")
    with pytest.raises(InputError, match="'age' is there twice"):
        run(config(path), store=tmp_path / "runs")


def test_predict__leaves_out_extra_columns_if_told(trained, tmp_path, capsys):
    rows = table(40, 5)
    path = saved(rows.assign(height=1.0)[["height", "debt", "pay", "age"]], tmp_path / "wide.csv")
    found = predicted(trained, path, capsys, "--ignore-extra")
    stored = load_model(trained)
    assert found["labels"] == stored.predict(rows).tolist()
    assert stored.predict(rows.assign(height=1.0), ignore_extra=True).tolist() == found["labels"]


def test_predict__without_a_header_goes_by_position(trained, tmp_path, capsys):
    rows = table(40, 5)
    path = tmp_path / "bare.csv"
    rows[["age", "pay", "debt"]].to_csv(path, index=False, header=False)
    found = predicted(trained, path, capsys)
    assert (found["n"], found["labels"]) == (40, load_model(trained).predict(rows).tolist())


def test_test_rows__are_matched_by_name(tmp_path):
    source, other = saved(table(), tmp_path / "rows.csv"), table(60, 5)
    straight = run(config(source, test=str(saved(other, tmp_path / "a.csv"))), store=tmp_path / "runs")
    moved = saved(other[["kind", "debt", "age", "pay"]], tmp_path / "b.parquet")
    turned = run(config(source, test=str(moved)), store=tmp_path / "runs")
    assert straight["accuracy"] == turned["accuracy"] > 0.85
    with pytest.raises(InputError, match="no column 'pay'"):
        run(config(source, test=str(saved(other.drop(columns="pay"), tmp_path / "c.csv"))), store=tmp_path / "runs")


def test_schema__names_kinds_and_ranges_are_in_the_model(trained, filled):
    rows = table()
    features = [*load_model(trained).schema.features()]
    assert [(f.name, f.kind) for f in features] == [("age", "number"), ("pay", "number"), ("debt", "number")]
    assert [f.least for f in features] == pytest.approx(rows[["age", "pay", "debt"]].min().tolist())
    assert [f.largest for f in features] == pytest.approx(rows[["age", "pay", "debt"]].max().tolist())
    kind, record = filled
    found, rows = {f.name: f for f in load_model(record["model"]).schema.features()}, mixed()
    assert found["colour"].categories == ("blue", "green", "red")
    assert found["town"].categories == ("Bern", "Ulm")
    assert found["age"].fill == pytest.approx(getattr(rows["age"], kind)())
    assert (found["pay"].least, found["pay"].largest) == (rows["pay"].min(), rows["pay"].max())


def test_id__drop_and_features__choose_columns(tmp_path, capsys):
    rows = table().assign(who=[f"p{i}" for i in range(120)], note="x", month=3)
    source = saved(rows[["who", "note", "age", "pay", "debt", "month", "kind"]], tmp_path / "rows.csv")
    plain = load_model(run(config(saved(table(), tmp_path / "plain.csv")), store=tmp_path / "runs")["model"])
    dropped = run(config(source, id="who", drop=["note", "month"]), store=tmp_path / "runs")["model"]
    chosen = run(config(source, id="who", features=["age", "pay", "debt"]), store=tmp_path / "runs")["model"]
    new = table(30, 7).assign(who=range(100, 130))
    path = saved(new[["kind", "debt", "who", "pay", "age"]], tmp_path / "new.csv")
    for model in (dropped, chosen):
        found = predicted(model, path, capsys)
        assert found["ids"] == [str(name) for name in new["who"]]
        assert found["labels"] == plain.predict(new[["age", "pay", "debt"]]).tolist()
    assert load_model(chosen).predict(rows.assign(new=1)).tolist() == plain.predict(table()).tolist()
    with pytest.raises(InputError, match="has no column 'new'"):
        load_model(dropped).predict(rows.assign(new=1))


@pytest.mark.parametrize("ending", ["csv", "parquet", "json"])
def test_id__passes_through_to_every_output(tmp_path, ending, capsys):
    rows = table().assign(who=range(120))
    model = run(config(saved(rows, tmp_path / "rows.parquet"), id="who"), store=tmp_path / "runs")["model"]
    output = tmp_path / f"out.{ending}"
    assert main(["predict", model, str(tmp_path / "rows.parquet"), "--output", str(output)]) == 0
    capsys.readouterr()
    if ending == "json":
        assert json.loads(output.read_text())["ids"] == [*range(120)]
    else:
        found = pd.read_csv(output) if ending == "csv" else pd.read_parquet(output)
        assert list(found.columns) == ["who", "label", "decision"]
        assert found["who"].tolist() == [*range(120)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"id": "nobody"}, "no id column 'nobody'"),
        ({"drop": ["ages"]}, "no data.drop column 'ages'.*did you mean 'age'"),
        ({"id": "age", "drop": ["age"]}, "'age' cannot be both id and data.drop"),
        ({"features": ["age", "kind"]}, "'kind' cannot be both label and data.features"),
        ({"features": []}, "data.features"),
        ({"missing": "mode"}, "data.missing is 'mode'; accepted: refuse, mean or median"),
        ({"categories": "dummy"}, "data.categories is 'dummy'; accepted: refuse or onehot"),
    ],
)
def test_config__columns_that_cannot_be_are_refused(tmp_path, data, said):
    with pytest.raises(InputError, match=said):
        run(config(saved(table(), tmp_path / "rows.csv"), **data), store=tmp_path / "runs")


def test_source__gaps_and_texts_are_refused_unless_asked_for(tmp_path):
    rows = mixed()
    with pytest.raises(InputError, match=r"'(red|green|blue)' is not a number.*data.categories: onehot"):
        run(config(saved(rows.dropna(), tmp_path / "a.csv")), store=tmp_path / "runs")
    numbers = rows.drop(columns=["colour", "town"])
    with pytest.raises(InputError, match=r"an empty cell.*data.missing: mean or median"):
        run(config(saved(numbers, tmp_path / "b.csv")), store=tmp_path / "runs")
    with pytest.raises(InputError, match=r"column 'colour': a missing value.*data.missing"):
        run(config(saved(rows, tmp_path / "c.parquet"), categories="onehot"), store=tmp_path / "runs")
    with pytest.raises(InputError, match=r"has type .*string.*data.categories: onehot"):
        run(config(saved(rows, tmp_path / "d.parquet"), missing="mean"), store=tmp_path / "runs")


def judge(kind, rows):
    """scikit-learn's pipeline of the same steps: impute, code, standardise, fit."""
    numbers, texts = ["age", "pay", "debt"], ["colour", "town"]
    coder = OneHotEncoder(
        categories=[["blue", "green", "red"], ["Bern", "Ulm"]], handle_unknown="ignore", sparse_output=False
    )
    steps = ColumnTransformer([("numbers", SimpleImputer(strategy=kind), numbers), ("texts", coder, texts)])
    model = make_pipeline(steps, StandardScaler(), SVC(kernel="rbf", gamma=0.5, tol=1e-6))
    return model.fit(rows.assign(colour=rows["colour"].fillna("")), rows["kind"])


def test_filled__decisions_are_those_of_sklearns_pipeline(filled):
    kind, record = filled
    new = mixed().sample(80, random_state=2)
    new.iloc[0, new.columns.get_loc("colour")] = "violet"
    found = load_model(record["model"]).decision_function(new).ravel()
    expected = judge(kind, mixed()).decision_function(new.assign(colour=new["colour"].fillna("")))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_filled__csv_parquet_and_frames_agree(filled, tmp_path, capsys):
    _, record = filled
    new = mixed()[["kind", "town", "debt", "pay", "colour", "age"]]
    expected = load_model(record["model"]).decision_function(new)
    for ending in ("csv", "parquet"):
        found = predicted(record["model"], saved(new, tmp_path / f"new.{ending}"), capsys)
        np.testing.assert_allclose(found["decision"], expected, rtol=1e-12)
    for library in (polars.from_pandas, pa.Table.from_pandas):
        np.testing.assert_array_equal(load_model(record["model"]).decision_function(library(new)), expected)


def test_filled__is_verified_and_a_changed_filling_is_found(filled, tmp_path):
    assert verify(filled[1]["model"])["agrees"]


def test_filled__is_exported_to_onnx(filled, tmp_path):
    _, record = filled
    stored, path = load_model(record["model"]), tmp_path / "model.onnx"
    assert main(["export", record["model"], str(path)]) == 0
    session = onnxruntime.InferenceSession(path.read_bytes())
    new = mixed()
    new.iloc[3, 0] = "violet"
    feeds = {
        f.name: new[[f.name]].fillna("").to_numpy(object) if f.categories else new[[f.name]].to_numpy(float)
        for f in stored.schema.features()
    }
    label, decision = session.run(["label", "decision"], feeds)
    np.testing.assert_allclose(decision, stored.decision_function(new), atol=1e-9)
    assert label.tolist() == stored.predict(new).tolist()
    assert main(["export", record["model"], str(tmp_path / "model.libsvm")]) == 2


def test_missing__of_numbers_alone_is_exported_with_one_input(tmp_path):
    rows = mixed().drop(columns=["colour", "town"])
    model = run(config(saved(rows, tmp_path / "rows.csv"), missing="mean"), store=tmp_path / "runs")["model"]
    assert main(["export", model, str(tmp_path / "m.onnx")]) == 0
    X = rows[["age", "pay", "debt"]].to_numpy()
    decision = onnxruntime.InferenceSession((tmp_path / "m.onnx").read_bytes()).run(["decision"], {"X": X})[0]
    np.testing.assert_allclose(decision, load_model(model).decision_function(X), atol=1e-9)


def test_filling__is_fitted_on_training_rows_alone(tmp_path):
    rows = mixed(200)
    record = run(
        config(saved(rows, tmp_path / "rows.csv"), missing="mean", categories="onehot", test=0.5),
        store=tmp_path / "runs",
    )
    kept, _ = train_test_split(np.arange(200), test_size=0.5, stratify=rows["kind"], random_state=0)
    found = {f.name: f for f in load_model(record["model"]).schema.features()}
    assert found["age"].fill == pytest.approx(rows["age"].iloc[kept].mean())
    assert found["pay"].largest == rows["pay"].iloc[kept].max()


def test_model__of_a_lost_or_added_column_of_text_is_refused(filled):
    stored = load_model(filled[1]["model"])
    with pytest.raises(InputError, match=r"columns of text.*give a data frame"):
        stored.predict(np.zeros((2, 5)))
    with pytest.raises(InputError, match=r"the column 'age' has type .*string"):
        stored.predict(mixed().assign(age="old"))


def test_kinds__are_told_by_every_line_of_a_csv(tmp_path):
    lines = [f"{i},{i % 3},{'ab'[i % 2]}" for i in range(300)]
    lines[250] = "7,seven,a"
    (tmp_path / "rows.csv").write_text("x,y,kind\n" + "\n".join(lines) + "\n")
    record = run(config(tmp_path / "rows.csv", categories="onehot"), store=tmp_path / "runs")
    found = {f.name: f.categories for f in load_model(record["model"]).schema.features()}
    assert found == {"x": None, "y": ("0", "1", "2", "seven")}


def test_categories__too_many_texts_are_refused(tmp_path):
    frame = pd.DataFrame(
        {"x": range(1200), "who": [f"n{i}" for i in range(1200)], "kind": [i % 2 for i in range(1200)]}
    )
    with pytest.raises(InputError, match=r"'who' has 1,200 different texts.*data.drop.*data.id"):
        run(config(saved(frame, tmp_path / "rows.csv"), categories="onehot"), store=tmp_path / "runs")
