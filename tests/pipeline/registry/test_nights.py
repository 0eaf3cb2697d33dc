"""A year of nights in a store: listed, compared, pruned and drawn, fast enough to be looked at."""

import datetime
import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

from flows.cli import main
from pipeline import load_model, run
from pipeline.registry.aliases import promote
from pipeline.registry.compare import compare, mcnemar, wilcoxon
from pipeline.registry.listing import Query, listed, parameters, to_prune
from pipeline.report.index import render_index, write_index
from pipeline.storage.runs import open_store
from svmcore.errors import InputError

FIRST = datetime.datetime(2025, 11, 22, 2, tzinfo=datetime.UTC)
PER_CLASS = [{"label": k, "n_support": 40, "n_iter": 99, "status": "converged", "kkt_gap": 1e-4} for k in range(10)]


def night(k, name="digits"):
    """Key and metrics of a simulated run; every tenth fails its gate."""
    failed = [{"rule": "min.accuracy", "found": 0.9, "needed": 0.95}] if k % 10 == 9 else []
    key = f"{name}/{FIRST + datetime.timedelta(days=k):%Y%m%dT%H%M%SZ}-{k:08x}"
    metrics = {
        "run": f"store/{key}",
        "model": f"store/{key}/model.zarr",
        "config": {"name": name, "C": 1.0 + k % 3, "kernel": {"name": "rbf", "gamma": 0.1}, "store": "elsewhere"},
        "status": "max_iter" if k == 5 else "converged",
        "accuracy": 0.9 + (k % 50) / 1000,
        "train_accuracy": 0.99,
        "n_train": 1000 + k,
        "n_test": 200,
        "n_features": 64,
        "n_support": 300,
        "kkt_gap": 1e-4,
        "relative_gap": 1e-5,
        "seconds": {"total": 12.5},
        "per_class": PER_CLASS,
        "gate": {"passed": not failed, "against": None, "failed": failed},
    }
    return key, metrics


@pytest.fixture(scope="module")
def year(tmp_path_factory):
    """A folder with 365 nights, and one run of another name."""
    folder = tmp_path_factory.mktemp("year")
    store = open_store(folder)
    for key, metrics in [*map(night, range(365)), night(400, "wine")]:
        (folder / key).mkdir(parents=True)
        (folder / key / "metrics.json").write_text(json.dumps(metrics))
        (folder / key / "evaluation.json").write_text("{}")
    promote(store, night(100)[0])
    promote(store, night(200)[0], why="better")
    return store


def listed_keys(store, **query):
    return [run["key"] for run in listed(store, Query(**query))]


def test_runs__are_chosen_by_name_day_and_conditions(year):
    assert listed_keys(year, name="wine") == [night(400, "wine")[0]]
    assert listed_keys(year, name="digits", since="2026-11-20", sort="-date") == [night(k)[0] for k in (363, 364)]
    assert listed_keys(year, until="2025-11-23", sort="date") == [night(1)[0], night(0)[0]]
    assert listed_keys(year, until="2025-11-22T01:59") == []
    assert listed_keys(year, where=["status=max_iter"]) == [night(5)[0]]
    chosen = listed(year, Query(where=["accuracy>=0.949", "C<2", "kernel.gamma=0.1", "kernel=rbf"]))
    assert len(chosen) == len([k for k in range(365) if k % 50 == 49 and k % 3 == 0])
    assert all(run["params"] == {"kernel": "rbf", "kernel.gamma": 0.1, "C": 1.0} for run in chosen)


def test_runs__are_sorted_by_any_key_the_newest_first_among_equals(year):
    assert listed_keys(year, limit=2) == [night(349)[0], night(299)[0]]
    assert listed_keys(year, name="digits", sort="-n_train", limit=1) == [night(0)[0]]
    assert listed_keys(year, sort="n_train", limit=1) == [night(400, "wine")[0]]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"where": ["accuracy~1"]}, "--where 'accuracy~1': give KEY, one of >="),
        ({"where": ["acuracy>1"]}, "no run has 'acuracy'"),
        ({"sort": "speed"}, "no run has 'speed'"),
        ({"since": "yesterday"}, "--since 'yesterday': give a day such as 2026-11-22"),
    ],
)
def test_runs__what_cannot_be_asked_is_refused(year, query, said):
    with pytest.raises(InputError, match=said):
        listed(year, Query(**query))


def least_seconds(command):
    """Of three calls: others use this machine too."""
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        command()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def test_runs__of_a_year_are_listed_in_half_a_second(year, capsys):
    argv = ["runs", "--store", year.url, "--name", "digits", "--where", "accuracy>0.94"]
    assert main(argv) == 0  # what is imported once
    lines = capsys.readouterr().out.splitlines()
    assert "2026-11-06 02:00   0.9490  converged  FAILED" in lines[1]
    assert lines[2].strip() == "kernel rbf, kernel.gamma 0.1, C 2.0"
    assert least_seconds(lambda: main(argv)) < 0.5


def test_index__of_a_year_is_small_and_quick(year):
    page = render_index(year)
    assert least_seconds(lambda: render_index(year)) < 2
    assert len(page) < 2e6
    assert page.count('class="failed"') == 36 * 6  # a dot in each of the trends
    assert page.count('class="champion"') == 6
    assert page.count("/report.html") == 366 + 1
    assert "365 runs, 36 failed their gate" in page
    assert 'aria-label="accuracy of 365 runs, from 0.9 to 0.949"' in page
    assert not re.search(r"https?://(?!www.w3.org/2000/svg)", page)


def test_index__names_are_escaped(year, tmp_path):
    key, metrics = night(3)
    store = open_store(tmp_path)
    store.put_bytes(f"{key}/metrics.json", json.dumps(metrics | {"status": "<b>x"}).encode())
    write_index(store)
    page = (tmp_path / "index.html").read_text()
    assert "&lt;b&gt;x" in page
    assert "<b>x" not in page


def test_prune__keeps_the_newest_and_what_an_alias_names_or_named_before(year, tmp_path, capsys):
    gone = to_prune(year, 30, "digits")
    assert len(gone) == 365 - 30 - 2
    assert {night(100)[0], night(200)[0], night(335)[0]}.isdisjoint(gone)
    assert night(334)[0] in gone
    assert to_prune(year, 30) == gone
    with pytest.raises(InputError, match="at least 1"):
        to_prune(year, 0)
    assert main(["prune", "--keep", "364", "--store", year.url, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [night(0)[0], "1 runs would be removed"]
    assert len(listed_keys(year)) == 366
    store = open_store(tmp_path)
    for k in range(3):
        store.put_bytes(f"{night(k)[0]}/metrics.json", json.dumps(night(k)[1]).encode())
    assert main(["prune", "--keep", "1", "--store", str(tmp_path)]) == 0
    assert [run["key"] for run in store.runs()] == [night(2)[0]]
    assert night(0)[0] not in (tmp_path / "index.html").read_text()


def test_compare__says_what_differs(year, capsys):
    a, b = (year.address(night(k)[0]) for k in (1, 5))
    found = compare(a, b)
    assert found["config"] == {"C": [2.0, 3.0]}
    assert found["data"]["n_train"] == [1001, 1005]
    assert found["scores"]["accuracy"] == [0.901, 0.905]
    assert found["certificate"]["status"] == ["converged", "max_iter"]
    assert found["per_class"][3] == {"label": 3} | {
        key: [PER_CLASS[3][key]] * 2 for key in found["per_class"][3] if key != "label"
    }
    assert found["paired"] is None
    assert main(["compare", a, f"{year.url}/digits@champion"]) == 0
    assert "not tested on the same rows: no paired test" in capsys.readouterr().out
    with pytest.raises(InputError, match="no run at"):
        compare(a, f"{year.url}/digits/absent")


def test_mcnemar__is_the_binomial_test_and_close_to_its_chi_square():
    assert mcnemar(0, 0)["p_value"] == 1.0
    assert mcnemar(5, 5)["p_value"] == pytest.approx(1.0)
    assert mcnemar(0, 8)["p_value"] == pytest.approx(2 * 0.5**8)
    continuous = chi2.sf((abs(130 - 170) - 1) ** 2 / 300, 1)
    assert mcnemar(130, 170)["p_value"] == pytest.approx(continuous, abs=2e-3)


def test_run__writes_the_index_of_its_store(rows_run):
    store = Path(rows_run["run"]).parents[1]
    assert rows_run["run"].rpartition("/")[2] in (store / "index.html").read_text()


def test_compare__tests_two_runs_on_the_same_rows(rows_config, rows_run, tmp_path):
    from sklearn.model_selection import train_test_split

    data = np.genfromtxt(rows_config["data"]["source"], delimiter=",", names=True, dtype=None, encoding="utf-8")
    X, y = np.stack([data["width"], data["length"]], axis=1), data["kind"]
    _, X_test, _, y_test = train_test_split(X, y, test_size=0.2, stratify=y, random_state=0)
    weak = run(rows_config | {"class_weight": {"ant": 100}, "C": 1e-3}, store=str(tmp_path / "runs"))
    right = [load_model(record["model"]).predict(X_test) == y_test for record in (rows_run, weak)]
    found = compare(rows_run["run"], weak["run"])["paired"]
    assert found["only_a"] == (right[0] & ~right[1]).sum() > 0
    assert found["only_b"] == (right[1] & ~right[0]).sum()
    other = run(rows_config | {"data": rows_config["data"] | {"test": 0.3}}, store=str(tmp_path / "runs"))
    assert compare(rows_run["run"], other["run"])["paired"] is None


def test_compare__tests_two_regressions_on_the_same_rows(tmp_path, capsys):
    from scipy import stats
    from sklearn.model_selection import train_test_split

    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=120)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    data = {"source": str(tmp_path / "rows.npz"), "test": 0.3}
    config = {"task": "svr", "name": "sine", "data": data, "cluster": {"kind": "inline"}}
    records = [run(config | {"C": C}, store=str(tmp_path / "runs")) for C in (10, 0.01)]
    _, X_test, _, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    errors = [np.abs(load_model(record["model"]).predict(X_test) - y_test) for record in records]
    found = compare(*(record["run"] for record in records))["paired"]
    assert found["closer_a"] == (errors[0] < errors[1]).sum() > found["closer_b"]
    assert found["p_value"] == pytest.approx(stats.wilcoxon(*errors).pvalue, rel=1e-4)
    assert wilcoxon([1.0, 2.0], [2.0, 1.0])["p_value"] == 1.0
    assert main(["compare", *(record["run"] for record in records)]) == 0
    assert "Wilcoxon's signed-rank test of the errors: p = " in capsys.readouterr().out


@pytest.mark.full
def test_runs__of_a_year_on_s3_are_listed_in_three_seconds(s3, tmp_path, monkeypatch):
    """Slow beside other work: the server is in this process."""
    monkeypatch.setenv("MARGINFLOW_CACHE", str(tmp_path))
    store = open_store(f"{s3}/year")
    for k in range(365):
        key, metrics = night(k)
        for part in ("metrics.json", "model.zarr/coef/c/0", "report.html"):
            store.put_bytes(f"{key}/{part}", json.dumps(metrics).encode())
    store.put_bytes(f"{night(400)[0]}/report.html", b"of a run that is being written")
    started = time.perf_counter()
    assert len(listed(store, Query())) == 365
    assert time.perf_counter() - started < 3


@pytest.mark.parametrize(
    "text", [b"\xff", b"[]", b'{"scores": 3}', b'{"scores": {"test": 3}}', b'{"accuracy": "high"}']
)
def test_runs__one_whose_metrics_somebody_changed_is_left_out(rows_run, tmp_path, text):
    changed = Path(shutil.copytree(Path(rows_run["run"]).parent, tmp_path / "runs" / "rows"))
    kept = next(changed.iterdir())
    (Path(shutil.copytree(kept, changed / "20200101T000000Z-changed")) / "metrics.json").write_bytes(text)
    assert [run["key"] for run in open_store(str(tmp_path / "runs")).runs()] == [f"rows/{kept.name}"]


def test_parameters__of_a_sweep_are_those_of_its_best_point():
    config = {"kernel": {"name": "rbf", "gamma": "scale"}, "C": 1.0, "data": {"scale": "none"}}
    run = {"config": config, "best": {"params": {"C": 100, "kernel.gamma": 0.01, "data.scale": "standard"}}}
    assert parameters(run) == {"kernel": "rbf", "kernel.gamma": 0.01, "C": 100}
    assert parameters({"config": config, "best": None})["C"] == 1.0
    assert config["C"] == 1.0
