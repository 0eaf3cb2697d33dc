"""Plans against what runs then take, and refusals."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from pipeline import run
from pipeline.answers.result import read_result
from pipeline.config.load import load_experiment
from pipeline.kernel import columns
from pipeline.kernel.choose import holds_all, planned_alone
from pipeline.layout import forecast as plans
from pipeline.layout import needs, rates
from pipeline.layout.probe import MOST, Sample, Work, seconds_of, summed_seconds
from pipeline.model.verify import verify
from pipeline.running.plan import plan_of
from svmcore.errors import MemoryLimit
from svmcore.kernels import RBF
from svmcore.sources import resident_gram


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """A cache of rates of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """1,500 rows of 40 columns in three classes that overlap, a sweep of two kernels and three C."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1500)
    X = rng.normal(size=(1500, 40)) + 0.35 * rng.normal(size=(3, 40))[y]
    path = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(path, X=X, y=y)
    return {
        "name": "planned",
        "data": {"source": str(path)},
        "kernel": {"name": "rbf", "gamma": 0.02},
        "cluster": {"kind": "inline"},
        "sweep": {"grid": {"C": [0.1, 1, 10], "kernel.gamma": [0.01, 0.02]}, "folds": 4, "refit": False},
    }


def planned(config, store, *overrides):
    return plan_of(load_experiment(config, overrides), str(store))


def test_plan__bytes_are_those_on_disk_after_the_run(config, tmp_path):
    found = planned(config, tmp_path)
    metrics = run(config, store=tmp_path)
    on_disk = sum(file.stat().st_size for file in (tmp_path / ".cache").rglob("*") if file.is_file())
    assert found["disk_bytes"] == pytest.approx(on_disk, rel=0.15)
    assert found["kernel_bytes"] == 1500**2 * 4
    assert (found["points"], found["kernels"], found["problems"]) == (6, 2, metrics["problems"]["total"])
    assert {key: metrics["plan"][key] for key in ("disk_bytes", "problems", "plan")} == {
        key: found[key] for key in ("disk_bytes", "problems", "plan")
    }


def test_plan__counts_what_sharing_saves(config, tmp_path):
    found = planned(config, tmp_path)
    pairs = 1500 * 1501 // 2
    assert found["kernel_evaluations"] == 2 * pairs
    assert found["kernel_evaluations_saved"] == (72 - 2) * pairs


def test_plan__of_64_workers_divides_what_they_share_and_counts_their_messages(config, tmp_path, monkeypatch):
    steady(monkeypatch)
    given = load_experiment(config | {"plan": "shards"})
    few, many = (plan_of(given, str(tmp_path / "store"), workers=count) for count in (2, 64))
    assert few["plan"] == many["plan"] == "shards"
    assert many["alternatives"]["resident"] < few["alternatives"]["resident"]
    assert many["seconds"]["solve"] > few["seconds"]["solve"]  # 1,500 rows are not worth 64 workers


def test_plan__nothing_is_left_to_do_after_the_run(config, tmp_path):
    assert planned(config, tmp_path)["seconds"]["solve"] > 0
    run(config, store=tmp_path)
    found = planned(config, tmp_path)
    assert (found["seconds"]["kernel"], found["seconds"]["solve"]) == (0, 0)
    assert (found["kernels_found"], found["problems_found"]) == (2, 72)


# ---- one point alone
def one_point(n_merged, classes, **keys):
    """Experiment of a run without a sweep, and its data of so many different rows and classes."""
    config = {"data": {"source": "rows.csv"}, "kernel": "rbf", "cluster": {"kind": "local"}} | keys
    data = SimpleNamespace(n_merged=n_merged, n_features=8, classes=["bee", "cat", "dog", "elk"][:classes])
    return load_experiment(config), data


def alone(n_merged, classes, **keys):
    """Plan of such a run."""
    return planned_alone(*one_point(n_merged, classes, **keys)).plan


def test_plan__one_point_of_many_rows_takes_columns_and_needs_no_workers():
    assert alone(5000, 2) == alone(5000, 4) == "columns"
    assert alone(4000, 2) == alone(4000, 4) == "auto"  # K is small
    assert alone(5000, 3, multiclass="ovo", kernel="linear", solver={"name": "smo"}) == "columns"
    assert alone(5000, 0, task="svr") == alone(5000, 0, task="one-class", nu=0.1) == "columns"


def test_plan__several_problems_hold_all_columns_that_fit():
    assert holds_all(*one_point(5000, 3))
    assert holds_all(*one_point(32_768, 4))
    assert not holds_all(*one_point(32_769, 4))  # more than 4 GiB
    assert not holds_all(*one_point(5000, 4, cache={"limit": "99MB"}))
    assert holds_all(*one_point(5000, 4, cache={"limit": "101MB", "disk": "1MB"}))  # nothing is written
    assert not holds_all(*one_point(5000, 2))  # one problem needs few of them
    assert not holds_all(*one_point(5000, 4, kernel="linear", solver={"name": "interior-point"}))
    assert not holds_all(*one_point(5000, 4, cluster={"kind": "address", "address": "tcp://far:1", "insecure": True}))


@pytest.mark.parametrize(
    "keys",
    [
        {"plan": "resident"},
        {"plan": "shards"},
        {"cluster": {"kind": "address", "address": "tcp://far:1", "insecure": True}},
        {"approximation": {"name": "nystroem", "rank": 20}},
        {"cache": {"limit": "1MB"}},  # K does not fit: the forecast says so, and takes columns
    ],
)
def test_plan__stays_where_nothing_is_to_be_chosen(keys):
    assert alone(5000, 2, **keys) == keys.get("plan", "auto")


def many_rows(classes, folder, columns=3):
    """A file of so many rows that their K is not small, in stripes across two of three columns, or more."""
    X = np.random.default_rng(3).normal(size=(4200, columns)) * np.where(np.arange(columns) < 3, 1.0, 0.01)
    side = X[:, 0] + 0.3 * X[:, 1]
    np.savez(folder / "rows.npz", X=X, y=np.digitize(side, np.quantile(side, np.arange(1, classes) / classes)))
    return {"data": {"source": str(folder / "rows.npz")}, "kernel": {"name": "rbf", "gamma": 0.3}}


@pytest.mark.parametrize("classes", [2, 3])
def test_run__of_one_point_starts_no_workers_and_writes_its_plan_down(classes, tmp_path):
    told = []
    tell = lambda *step, **about: told.append(step[0])  # noqa: E731
    metrics = run(many_rows(classes, tmp_path), store=tmp_path / "store", progress=tell)
    assert metrics["status"] == "converged"
    assert metrics["plan"]["plan"] == "columns"
    assert "workers" not in told
    assert not (tmp_path / "store" / ".cache" / "gram").exists()
    assert load_experiment(yaml.safe_load((Path(metrics["run"]) / "config.yaml").read_text())).plan == "columns"


def test_run__of_several_problems_computes_k_once_for_the_optimum_that_a_mapped_one_has(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(columns, "resident_gram", lambda *of: made.append(resident_gram(*of)) or made[-1])
    config = many_rows(3, tmp_path) | {"cluster": {"kind": "inline"}}
    held, mapped = (run(config | plan, store=tmp_path / "store") for plan in ({}, {"plan": "resident"}))
    assert (held["plan"]["plan"], mapped["plan"]["plan"]) == ("columns", "resident")
    assert [gram.matrix.nbytes for gram in made] == [held["plan"]["kernel_bytes"]]
    assert held["plan"]["kernel_bytes"] < held["plan"]["memory_bytes"]
    for ours, theirs in zip(held["per_class"], mapped["per_class"], strict=True):
        assert (ours["status"], ours["kkt_gap"] <= 1.05e-3) == ("converged", True)
        assert theirs["dual"] <= ours["primal"]  # bounds of the same optimum
        assert ours["dual"] <= theirs["primal"]
    assert verify(held["model"])["agrees"]


def test_run__that_lost_an_answer_solves_that_one_to_the_same_bytes(tmp_path):
    config = many_rows(3, tmp_path)
    first = run(config, store=tmp_path / "store")
    min((tmp_path / "store" / ".cache" / "problems").glob("[!.]*")).unlink()
    again = run(config, store=tmp_path / "store")
    assert (first["problems"]["reused"], again["problems"]["reused"]) == (0, 2)
    models = [(Path(one["model"]) / "manifest.json").read_bytes() for one in (first, again)]
    assert models[0] == models[1]


def test_plan__of_held_columns_tells_k_once_and_problems_on_all_threads(tmp_path, monkeypatch):
    config = many_rows(3, tmp_path, columns=36)  # of fewer no column is kept, and those asked for cost as little
    steady(monkeypatch, threads=3)
    held, asked = (planned(config, tmp_path, *more) for more in ([], ["plan=columns", "cache.limit=70MB"]))
    n = held["n_merged"]
    assert held["seconds"]["kernel"] == pytest.approx(n**2 * (ENTRY / 6 + plans.FRESH), abs=1e-3)
    assert asked["seconds"]["kernel"] == 0
    assert held["alternatives"]["columns"] == pytest.approx(
        held["seconds"]["kernel"] + held["seconds"]["solve"], abs=2e-3
    )
    assert held["alternatives"]["columns"] < asked["alternatives"]["columns"]
    assert held["seconds"]["solve"] < asked["seconds"]["solve"] / 3
    assert "this process holds" in held["why"]
    assert "this process holds" not in asked["why"]


@pytest.mark.full
def test_plan__of_a_run_that_finds_everything_counts_the_start_the_check_and_the_report(config, tmp_path):
    """It was 2 ms for 5 s: a process has to start, to check what it finds, and to draw a report."""
    run(config, store=tmp_path / "runs")
    (tmp_path / "config.json").write_text(json.dumps(config | {"store": str(tmp_path / "runs")}))
    told, taken = (json.loads(marginflow(*words, tmp_path / "config.json", "--json")) for words in COMMANDS)
    assert taken["problems"]["reused"] == told["problems_found"] == 72
    assert sum(told["seconds"].values()) == pytest.approx(2 * told["seconds"]["total"], abs=0.01)
    assert told["seconds"]["start"] > plans.REPORT_SECONDS + 0.1  # no process imports all of it in less
    assert told["seconds"]["ingest"] > 0 == told["seconds"]["kernel"]


COMMANDS = (["plan"], ["run", "--no-prefect"])


def marginflow(*argv):
    argv = [sys.executable, "-m", "flows.cli", *map(str, argv)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def test_sample__foretells_support_vectors_and_steps_of_all_rows(config, tmp_path):
    part, dataset = part_of(config, tmp_path)
    whole, foretold = (Sample(dataset, part.group.kernel, rows) for rows in (1500, 700))
    for chain in part.chains[:3]:
        ours, truth = foretold.work(chain), whole.work(chain)
        assert sum(ours.support) == pytest.approx(sum(truth.support), rel=0.25)
        assert truth.steps / 2 < ours.steps < 2 * truth.steps


def part_of(config, store):
    from pipeline.rows.dataset import open_dataset
    from pipeline.running.batch import lay_out
    from pipeline.running.session import check_inputs, open_session

    exp = load_experiment(config)
    with open_session(exp, check_inputs(exp, str(store))) as session:
        part = lay_out(session).parts[0]
    return part, open_dataset(part.data.path)


@pytest.mark.parametrize(("landmarks", "each"), [("uniform", 0.0), ("kmeans", 3e-4), (None, 0.0)])
def test_factor__landmarks_that_are_chosen_take_seconds(landmarks, each, config, tmp_path):
    given = config | {"approximation": {"name": "nystroem", "rank": 20, "landmarks": landmarks or "uniform"}}
    part, _ = part_of(given, tmp_path)
    about = {"name": "of another package", "rank": 20} if landmarks is None else part.plan.approximation
    part = dataclasses.replace(part, plan=dataclasses.replace(part.plan, approximation=about))
    found = plans._factor_seconds(part, 1, 1, (0.0, 0.0), dataclasses.replace(STEADY, strip=0.0), 10.0, 10.0)
    made = plans.SOLVED * 20**2 * part.data.n_merged
    assert found["kernel"] == pytest.approx(plans.LOADED + 20 * each + made)


def test_rates__are_measured_once_a_day(monkeypatch):
    first = rates.rates()
    assert all(value >= 0 for value in (first.entry, first.step, first.strip))
    monkeypatch.setattr(rates, "measure", lambda: pytest.fail("measured again"))
    assert rates.rates() == first
    now = time.time()
    monkeypatch.setattr(rates, "measure", lambda: first)
    monkeypatch.setattr(rates.time, "time", lambda: now + 2 * rates.VALID_SECONDS)
    assert rates.rates() == first


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["cluster={kind: local, workers: 1, memory: 64MiB}"], r"a worker needs .*iB.* cluster.memory is 64.*raise"),
        (["cache.limit=8KiB"], r"two columns of K need 11.* cache.limit is 8.*raise cache.limit"),
    ],
)
def test_refused__with_both_numbers_before_any_kernel(config, tmp_path, overrides, message):
    started = time.monotonic()
    for attempt in (plan_of, lambda exp, store: run(exp.to_dict(), store=store)):
        with pytest.raises(MemoryLimit, match=message):
            attempt(load_experiment(config, overrides), str(tmp_path))
    assert time.monotonic() - started < 10
    assert not (tmp_path / ".cache" / "gram").exists()


def test_refused__what_the_disk_or_the_machine_cannot_hold(config, tmp_path, monkeypatch):
    disk = SimpleNamespace(f_bavail=17, f_frsize=1_000_000)
    monkeypatch.setattr(needs.os, "statvfs", lambda path: disk)
    with pytest.raises(
        MemoryLimit, match=r"kernel matrices need 17.2 MiB on disk, and .* has 16.2 MiB free; free space"
    ):
        planned(config, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=1 << 26, available=1 << 26))
    with pytest.raises(MemoryLimit, match=r"this machine has 64 MiB; lower cache.limit"):
        planned(config, tmp_path)


STEADY = rates.Rates(entry=2e-10, step=1e-6, step_entry=1e-9, strip=1e-9, fault=5e-11)
ENTRY = 4e-10  # seconds of a kernel value


def steady(monkeypatch, threads=1):
    """Plan for a machine of a known speed."""
    monkeypatch.setattr(plans, "rates", lambda: STEADY)
    monkeypatch.setattr(plans, "block_seconds", lambda dataset, kernels, dtype: ENTRY * len(kernels))
    monkeypatch.setattr(plans, "exact_seconds", lambda dataset, kernel: ENTRY)
    monkeypatch.setattr(plans, "summed_seconds", lambda dataset, kernel: ENTRY)
    monkeypatch.setattr(plans, "_slowdown", lambda threads: 1.0)
    monkeypatch.setattr(plans, "n_threads", lambda: threads)


@pytest.mark.parametrize("rows", [3000, pytest.param(6000, marks=pytest.mark.full)])
def test_plan__seconds_are_those_of_the_work_that_the_run_then_counts(rows, config, tmp_path, monkeypatch):
    """On a machine of a known speed: support vectors and steps of the run's own answers, within a factor of two."""
    steady(monkeypatch)
    rng = np.random.default_rng(1)
    y = rng.integers(0, 6, rows)
    X = rng.normal(size=(rows, 200)) + 0.3 * rng.normal(size=(6, 200))[y]
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    given = config | {"data": {"source": str(tmp_path / "rows.npz")}, "kernel": {"name": "rbf", "gamma": 0.003}}
    given |= {"sweep": {"grid": {"C": [1, 10]}, "folds": 3, "refit": False}}
    part, _ = part_of(given, tmp_path / "runs")
    foretold = run(given, store=tmp_path / "runs")["plan"]["seconds"]
    assert foretold["kernel"] == pytest.approx(0.4 + rows**2 * (2e-9 + 0.8 * ENTRY + 0.6e-9), abs=1e-3)
    done = [[read_result(task) for task in chain] for chain in part.chains]
    works = [Work(tuple(len(one.rows) for one in chain), sum(one.n_iter for one in chain)) for chain in done]
    counted = sum(seconds_of(work, rows, STEADY, ENTRY) for work in works)
    assert abs(np.log2(foretold["solve"] / counted)) < 1


def test_plan__values_that_are_never_stored_have_a_rate_of_their_own(dataset, config, tmp_path, monkeypatch):
    """Of few features; columns that are stored, of 40 features, do not ask for it."""
    assert summed_seconds(dataset, RBF(gamma=0.1)) > 0.0
    steady(monkeypatch)
    rng = np.random.default_rng(1)
    columns_of = {}
    for width in (5, 40):
        X = rng.normal(size=(6000, width))
        np.savez(tmp_path / f"{width}.npz", X=X, y=X[:, 0] + rng.normal(size=6000) > 0.0)
        given = {"data": {"source": str(tmp_path / f"{width}.npz")}, "cache": {"limit": "20MB"}, "plan": "columns"}
        for rate in (ENTRY, 10.0 * ENTRY):
            monkeypatch.setattr(plans, "summed_seconds", lambda dataset, kernel, rate=rate: rate)
            columns_of[width, rate] = planned(given, tmp_path / "runs")["alternatives"]["columns"]
    assert columns_of[5, 10.0 * ENTRY] > 2.0 * columns_of[5, ENTRY]
    assert columns_of[40, 10.0 * ENTRY] == columns_of[40, ENTRY]


def test_seconds__of_a_kernel_on_whose_rows_steps_begin_are_fewer():
    work = Work((2000.0,), 10_000.0)
    assert seconds_of(work, MOST, STEADY, ENTRY) < 0.8 * seconds_of(work, MOST + 1, STEADY, ENTRY)
