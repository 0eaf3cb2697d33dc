"""Gates: which runs may be promoted, and what a run that may not leaves behind."""

import json
from pathlib import Path

import pytest

from flows.cli import main
from pipeline import run
from pipeline.config.load import load_experiment
from pipeline.registry.aliases import current
from pipeline.registry.gate import judged
from pipeline.storage.runs import open_store
from svmcore.errors import InputError

RECORD = {"accuracy": 0.93, "train_accuracy": 0.99, "kkt_gap": 2e-3, "status": "converged"}


class Champion:
    """A store in which the alias names one run."""

    def __init__(self, **metrics):
        self.metrics = metrics

    def keys(self, prefix):
        return [f"{prefix}/00000001.json"] if self.metrics else []

    def get_bytes(self, key):
        entry = {"alias": "champion", "run": "rows/r1", "at": "", "who": "", "why": "", "before": None}
        return json.dumps(self.metrics if key == "rows/r1/metrics.json" else entry).encode()

    def address(self, key):
        return f"store/{key}"


def gate(store=None, strict=False, record=RECORD, **keys):
    exp = load_experiment({"name": "rows", "data": {"source": "sklearn:iris", "test": 0.2}, "gate": keys})
    found = judged(exp, strict, record, store or Champion())
    return [(one["rule"], one["found"], one["needed"]) for one in found["failed"]]


def test_gate__least_scores():
    assert gate(min={"accuracy": 0.93}) == []
    assert gate(min={"accuracy": 0.94, "train_accuracy": 0.9}) == [("min.accuracy", 0.93, 0.94)]
    assert gate(min={"accuracy": 0.5}, record=RECORD | {"accuracy": None}) == [("min.accuracy", None, 0.5)]


def test_gate__a_drop_is_measured_from_the_champion():
    assert gate(Champion(accuracy=0.935), drop={"accuracy": 0.01}) == []
    assert gate(Champion(accuracy=0.94), drop={"accuracy": 0.01}) == []
    assert gate(Champion(accuracy=0.95), drop={"accuracy": 0.01}) == [("drop.accuracy", 0.93, pytest.approx(0.94))]
    assert gate(drop={"accuracy": 0.01}) == []  # there is no champion yet


def test_gate__bounds_the_kkt_gap():
    assert gate(max_kkt_gap=2e-3) == []
    assert gate(max_kkt_gap=1e-3) == [("max_kkt_gap", 2e-3, 1e-3)]
    assert gate(max_kkt_gap=1e-3, record=RECORD | {"kkt_gap": None}) == [("max_kkt_gap", None, 1e-3)]


def test_strict__asks_for_converged():
    assert gate(strict=True) == []
    assert gate(strict=True, record=RECORD | {"status": "time_limit"}) == [("--strict", "time_limit", "converged")]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"gate": {"min": {"accuracy": 0.9}}}, "accuracy needs test rows; set data.test"),
        ({"gate": {"min": {"acuracy": 0.9}}}, "unknown score 'acuracy'.*did you mean 'accuracy'"),
        ({"gate": {"drop": {"mean_score": 0.9}}}, "mean_score is of a sweep"),
        ({"gate": {"mni": {}}}, "unknown key 'mni' in 'gate'.*did you mean 'min'"),
        ({"gate": {"max_kkt_gap": 0}}, "gate.max_kkt_gap is 0; accepted: a positive number"),
        ({"promote": "no/good"}, "promote is 'no/good'; accepted: an alias"),
        ({"promote": "champion", "sweep": {"grid": {"C": [1]}, "refit": False}}, "gate and promote need a model"),
        ({"sweep": {"grid": {"gate.max_kkt_gap": [1]}}}, "'gate.max_kkt_gap' cannot be swept"),
    ],
)
def test_config__a_gate_that_cannot_be_judged_is_refused(keys, said):
    with pytest.raises(InputError, match=said):
        load_experiment({"data": {"source": "sklearn:iris"}, **keys})


def test_config__a_gate_changes_no_fingerprint(rows_config):
    plain = load_experiment(rows_config)
    assert load_experiment(rows_config | {"promote": "champion", "gate": {"min": {"accuracy": 0.5}}}).fingerprint() == (
        plain.fingerprint()
    )


@pytest.fixture(scope="module")
def nights(rows_config, tmp_path_factory):
    """(store, records): a first run, one that fails its gate, one that passes it."""
    store = tmp_path_factory.mktemp("nights") / "runs"
    base = rows_config | {"promote": "champion", "gate": {"min": {"accuracy": 0.5}, "drop": {"accuracy": 0.02}}}
    bad = base | {"kernel": {"name": "rbf", "gamma": 1e-6}, "C": 1e-3, "class_weight": {"ant": 100}}
    return store, [run(config, store=str(store)) for config in (base, bad, base)]


def test_run__is_promoted_where_its_gate_agrees(nights):
    store, (first, bad, last) = nights
    assert first["gate"] == {"passed": True, "against": None, "failed": []}
    assert bad["gate"]["against"] == first["run"]
    assert not bad["gate"]["passed"]
    assert last["gate"] == {"passed": True, "against": first["run"], "failed": []}
    move = current(open_store(store), "rows", "champion")
    assert (move.run, move.before) == tuple("/".join(r["run"].split("/")[-2:]) for r in (last, first))
    assert len(open_store(store).runs()) == 3


def test_run__equal_models_are_equal_bytes_whatever_their_gate(nights, rows_config, tmp_path):
    plain = run(rows_config, store=str(tmp_path / "runs"))
    first, second = (json.loads((Path(r["model"]) / "manifest.json").read_text()) for r in (plain, nights[1][0]))
    assert first == second


def test_command__exits_3_where_a_gate_says_no_and_the_old_champion_answers(nights, rows_config, tmp_path, capsys):
    store, records = nights
    config = tmp_path / "rows.yaml"
    config.write_text(json.dumps(rows_config | {"promote": "champion", "gate": {"min": {"accuracy": 1.1}}}))
    assert main(["run", str(config), "--store", str(store), "--no-prefect", "--json"]) == 3
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert "not promoted: min.accuracy is " in captured.err
    assert record["gate"]["passed"] is False
    assert current(open_store(store), "rows", "champion").run in records[2]["run"]


def test_command__strict_exits_3_unless_certified(rows_config, tmp_path, capsys):
    config, store = tmp_path / "rows.yaml", str(tmp_path / "runs")
    stopped = rows_config | {"promote": "champion", "solver": {"name": "smo", "tol": 1e-4, "max_iter": 1}}
    config.write_text(json.dumps(stopped))
    assert main(["run", str(config), "--store", store, "--no-prefect", "--strict"]) == 3
    assert "--strict is max_iter, needed converged" in capsys.readouterr().err
    assert current(open_store(store), "rows", "champion") is None
    assert main(["run", str(config), "--store", store, "--no-prefect"]) == 0
    assert current(open_store(store), "rows", "champion") is not None
