"""The command line: runs, refusals of one line, progress, signals and exit codes."""

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows.cli import main
from flows.console import progress_display

from .refusals import refused

LIBSVM = "1 1:0.5 2:1\n-1 1:1\n1 2:0.25\n-1 1:2 2:2\n"


@pytest.fixture
def config(tmp_path):
    """Write a config over rows of a given file name and content; returns the arguments of `run`."""

    def written(text="", name="rows.libsvm", content=LIBSVM, extra=()):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        file = tmp_path / "config.yaml"
        file.write_text(f"data: {{source: {path}, test: 0.5}}\ncluster: {{kind: inline}}\n{text}")
        return ["run", str(file), "--no-prefect", "--store", str(tmp_path / "runs"), *extra]

    return written


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kernl: {name: rbf}", ["kernl", "kernel"]),
        ("solver: {toll: 1}", ["toll", "tol"]),
        ("C: many", ["C", "many"]),
        ("C: 0", ["C", "0"]),
        ("C: -1", ["C", "-1"]),
        ("kernel: {name: rbf, gamma: 0}", ["gamma", "0"]),
        ("solver: {name: smo, tol: 0}", ["tol", "0"]),
        ("kernel: {name: rfb}", ["rfb", "did you mean 'rbf'"]),
        ("solver: {name: smoo}", ["smoo", "smo"]),
        ("data: [1", ["YAML"]),
        ("multiclass: one", ["multiclass", "ovr"]),
    ],
)
def test_run__a_config_that_cannot_be_used_is_refused(config, capsys, tmp_path, text, said):
    line = refused(config(text), capsys)
    assert all(part in line for part in said), line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("absent.libsvm", None, ["absent.libsvm"]),
        ("empty.libsvm", "", ["empty.libsvm", "empty"]),
        ("bad.libsvm", "1 1:1\n-1 2:x\n", ["bad.libsvm", "line 2"]),
        ("cut.libsvm.gz", b"\x1f\x8b\x08\x00\x00\x00", ["cut.libsvm.gz"]),
        ("none.npz", b"PK\x03\x04 nothing", ["none.npz"]),
        ("cell.csv", "a,b,kind\n1,2,x\n1,oops,y\n", ["cell.csv", "row 2", "'b'", "oops"]),
        ("ragged.csv", "a,b,kind\n1,2,x\n1,y\n", ["ragged.csv", "line 3", "2 cells"]),
        ("nan.csv", "a,b,kind\n1,2,x\n1,nan,y\n", ["nan.csv", "row 2", "'b'", "NaN"]),
        ("inf.csv", "a,b,kind\ninf,2,x\n1,1,y\n", ["inf.csv", "row 1", "'a'", "infinity"]),
        ("one.csv", "a,kind\n1,x\n2,x\n", ["one.csv", "a single class", "'x'"]),
        ("lone.csv", "a,kind\n1,x\n2,x\n3,y\n4,x\n", ["'y'", "one row"]),
        ("none.csv", "a,kind\n1,x\n2,NaN\n3,x\n4,y\n5,y\n", ["line 3", "'NaN'"]),
        ("mark.csv", "a,kind\n1,0\n2,?\n3,?\n4,1\n5,1\n6,0\n", ["'?' among numbers"]),
    ],
)
def test_run__data_that_cannot_be_used_is_refused(config, capsys, tmp_path, name, content, said):
    line = refused(config(name=name, content=content), capsys)
    assert all(part in line for part in said), line
    assert not (tmp_path / "runs").exists()


def test_run__a_label_column_that_is_not_there_is_refused(config, capsys, tmp_path):
    argv = config(name="rows.csv", content="a,b\n1,2\n", extra=["--set", "data.label=kind"])
    line = refused(argv, capsys)
    assert "kind" in line
    assert not (tmp_path / "runs").exists()


def test_run__test_rows_of_another_width_are_refused(config, capsys, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("1,2,3,x\n")
    argv = config(name="rows.csv", content="1,2,x\n3,4,y\n", extra=["--set", f"data.test={other}"])
    line = refused(argv, capsys)
    assert "other.csv" in line
    assert not (tmp_path / "runs").exists()


def test_run__a_store_under_a_plain_file_is_refused_before_any_work(config, capsys, tmp_path):
    argv = config(content=None)
    argv[argv.index("--store") + 1] = str(tmp_path / "config.yaml" / "runs")
    assert "config.yaml is a file" in refused(argv, capsys)


def test_run__what_cannot_fit_is_refused_without_waiting_for_a_server(config, capsys, monkeypatch, tmp_path):
    (tmp_path / "uvicorn.py").write_text("import time\ntime.sleep(600)\n")  # a server that never comes up
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.setenv("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "600")
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    argv = config(extra=["--set", "cache.limit=4", "--set", "cache.disk=4"])
    argv.remove("--no-prefect")
    started = time.monotonic()
    assert "two columns of K need" in refused(argv, capsys)
    assert time.monotonic() - started < 60


@pytest.fixture
def closed_folder(tmp_path):
    """A folder that takes no file: without rights, or where not even root can write."""
    if os.geteuid() == 0:
        return Path("/proc")
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    return folder


def test_outputs__in_a_folder_that_takes_no_file_are_refused(config, capsys, rows_run, rows_csv, closed_folder):
    argv, why = config(content=None), f"{closed_folder} cannot be written"
    argv[argv.index("--store") + 1] = str(closed_folder / "runs")
    assert why in refused(argv, capsys)
    assert why in refused(
        ["predict", rows_run["run"], str(rows_csv), "--output", str(closed_folder / "found.csv")], capsys
    )
    assert why in refused(["export", rows_run["run"], str(closed_folder / "model.libsvm")], capsys)
    assert main(["runs", "--store", str(closed_folder)]) == 0
    assert capsys.readouterr().out == "no runs\n"


@pytest.mark.full
def test_run__a_cluster_that_does_not_answer_is_refused_within_15_seconds(config, capsys, tmp_path):
    started = time.monotonic()
    line = refused(
        config(extra=["--set", "cluster={kind: address, address: 'tcp://127.0.0.1:9', insecure: true}"]), capsys
    )
    assert "tcp://127.0.0.1:9" in line
    assert time.monotonic() - started < 15
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["run"], "CONFIG"),
        (["run", "x.yaml", "--sett", "a=1"], "--sett"),
        (["run", "absent.yaml"], "absent.yaml"),
        (["rnu"], "rnu"),
        (["report", "absent"], "absent"),
        (["verify", "absent"], "absent"),
    ],
)
def test_usage__is_one_line_too(capsys, argv, said):
    assert said in refused(argv, capsys)


def test_usage__of_no_command_is_the_help(capsys):
    assert main([]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Usage: ")
    assert len(lines) > 10


def test_run__json_is_one_object_and_all_else_is_on_stderr(config, capsys, tmp_path):
    assert main(config("solver: {name: smo, tol: 1e-4}", extra=["--json", "--set", "C=3"])) == 0
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert captured.out.count("\n") == 1
    assert record == json.loads((Path(record["run"]) / "metrics.json").read_text())
    assert "solve: 1 of 1" in captured.err
    assert main(["runs", "--store", str(tmp_path / "runs"), "--json"]) == 0
    assert [run["run"] for run in json.loads(capsys.readouterr().out)["runs"]] == [record["run"]]


class Deaf:
    """What a run tells Prefect's witness, heard by nobody."""

    def __init__(self, parameters):
        self.tell = self.published = lambda *args: None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def watching(self, progress):
        return progress


def counted(calls, name, whole):
    def told(*args, **more):
        calls.append(name)
        return whole(*args, **more)

    return told


@pytest.mark.parametrize("prefect", [False, True])
def test_run__loads_its_config_checks_its_inputs_and_reads_its_rows_once(config, monkeypatch, prefect):
    calls = []
    for module, name in (
        ("pipeline.config.load", "load_experiment"),
        ("pipeline.running.session", "check_sources"),
        ("pipeline.rows.dataset", "build"),
        ("pipeline.rows.dataset", "ingest"),
    ):
        whole = getattr(importlib.import_module(module), name)
        monkeypatch.setattr(
            f"{module}.{name}", lambda *args, n=name, f=whole, **more: calls.append(n) or f(*args, **more)
        )
    monkeypatch.setattr("flows.witness.Witness", Deaf)
    argv = config("C: 7")
    assert main([word for word in argv if not (prefect and word == "--no-prefect")]) == 0
    assert calls == ["load_experiment", "check_sources", "ingest", "build"]


def test_plan__says_bytes_without_training(config, capsys, tmp_path):
    argv = config()
    argv = ["plan", argv[1], "--json", "--set", f"store={tmp_path / 'runs'}"]
    assert main(argv) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["kernel_bytes"] == record["n_merged"] ** 2 * 4
    assert not list((tmp_path / "runs").glob("[!.]*"))


def test_failure__is_one_line_and_exit_1(config, capsys, monkeypatch):
    monkeypatch.setattr("pipeline.running.publish.write_report", lambda folder: 1 / 0)
    monkeypatch.delenv("MARGINFLOW_DEBUG", raising=False)
    assert main(config()) == 1
    err = capsys.readouterr().err
    assert "ZeroDivisionError" in err
    assert "Traceback" not in err


def test_interrupt__is_exit_130(config, capsys, monkeypatch):
    def interrupt(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr("pipeline.running.publish.write_report", interrupt)
    assert main(config()) == 130
    assert "goes on from there" in capsys.readouterr().err


def test_lines__an_ended_stage_is_told_when_the_next_begins(capsys):
    with progress_display() as progress:
        progress("kernel", 1, 3)
        progress("kernel", 3, 3, reused=2)
        assert capsys.readouterr().err == ""
        progress("solve", 1, 2, label="a", kkt_gap=0.1, status="running")
        assert capsys.readouterr().err == "kernel: 3 of 3 blocks (2 found finished)\n"
        progress("ingest", 5, 5)
    assert capsys.readouterr().err == "ingest: 100 %\n"


def test_bars__draw_the_gap_of_running_classes_on_a_log_scale(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_display(tol=1e-4) as progress:
        progress("solve", 0, 2, label="bee", kkt_gap=1.0, status="running")
        progress("solve", 0, 2, label="bee", kkt_gap=1e-2, status="running")
        drawing = progress
        (bar, first) = drawing.classes["bee"]
        task = next(task for task in drawing.bars.tasks if task.id == bar)
        assert (task.completed, first) == (0.5, 1.0)
        progress("solve", 1, 2, label="bee", kkt_gap=1e-5, status="converged")
        assert drawing.classes == {}


SLOW = """
kernel: {name: rbf, gamma: 1e-2}
C: 1e6
solver: {name: smo, tol: 1e-13}
cluster: {kind: inline}
"""


def children_seconds():
    """CPU seconds of the processes that this one has waited for."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal__ends_a_solving_run_at_once_and_keeps_what_is_finished(tmp_path, noise_npz, number, code):
    (tmp_path / "slow.yaml").write_text(f"data: {{source: {noise_npz}}}\n{SLOW}")
    argv = [sys.executable, "-m", "flows.cli", "run", "slow.yaml", "--no-prefect"]
    spent = children_seconds()
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.glob("runs/.cache/live/*/[0-9a-f]*")):  # where the solver says how far it is
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        spent += sum(psutil.Process(process.pid).cpu_times()[:2])
        process.send_signal(number)
        err = process.stderr.read()
        assert process.wait() == code
    assert children_seconds() - spent < 4  # of its own work: others use this machine too
    assert "goes on from there" in err
    assert "Traceback" not in err
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == [".cache"]
    assert not (tmp_path / "runs" / ".cache" / "live").exists()


# ---- what is not there, and labels that were not there
def test_runs__a_store_that_is_not_there_is_refused(tmp_path, monkeypatch, capsys):
    line = refused(["runs", "--store", str(tmp_path / "nowhere")], capsys)
    assert str(tmp_path / "nowhere") in line
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 0  # nothing ran here yet
    assert capsys.readouterr().out == "no runs\n"


def test_help__waits_for_no_library_of_numbers():
    code = (
        "import sys, flows.cli; print([name for name in ('numpy', 'numba', 'dask', 'prefect') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
