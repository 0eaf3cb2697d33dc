"""Secrets that were written out are in no file, no database and no line that a run leaves. 2 s."""

import json

import pytest

from flows.cli import main
from pipeline import run
from pipeline.config import yaml12
from pipeline.config.load import load_experiment
from pipeline.config.redact import check_parameters, redacted, redacted_override, redacted_text
from svmcore.errors import InputError

SECRET = "hunter2-5f1d"


@pytest.mark.parametrize(
    "text",
    [
        f"https://me:{SECRET}@host/x.csv",
        f"https://{SECRET}@host/x.csv",
        f"s3://bucket/x.csv?X-Amz-Signature={SECRET}&part=1",
        f"https://host/x.csv?part=1&access_token={SECRET}",
        f"https://host/x.csv?sig={SECRET}",
        f"{SECRET}: a URL in a sentence https://me:{SECRET}@host, quoted".removeprefix(f"{SECRET}: "),
    ],
)
def test_text__what_signs_in_to_a_url_is_hidden(text):
    assert SECRET not in redacted_text(text)
    assert "***" in redacted_text(text)


@pytest.mark.parametrize("text", ["/data/a@b/x.csv", "s3://bucket/prefix", "https://${LOGIN}@h/x?token=${T}", "a=b"])
def test_text__nothing_else_is_touched(text):
    assert redacted_text(text) == text


@pytest.mark.parametrize(
    "name", ["password", "db_password", "SECRET", "client_secret", "token", "apiKey", "aws_key_id"]
)
def test_mapping__what_has_the_name_of_a_secret_is_hidden_at_any_depth(name):
    assert SECRET not in json.dumps(redacted({"a": [{"b": {name: SECRET}}]}))
    assert SECRET not in json.dumps(redacted({"env_extra": [f"export {name}={SECRET}"]}))
    assert SECRET not in redacted_override(f"cluster.kwargs.{name}={SECRET}")
    assert SECRET not in redacted_override(f"cluster={{kind: factory, kwargs: {{{name}: {SECRET}}}}}")


CLUSTER = {
    "kind": "factory",
    "factory": "distributed.LocalCluster",
    "kwargs": {"n_workers": 1, "password": SECRET, "queue": "${QUEUE}", "prologue": [f"export TOKEN={SECRET}"]},
}


def test_config__is_written_without_secrets_and_read_with_them():
    given = {
        "data": {"source": f"https://me:{SECRET}@host/x.csv"},
        "cluster": CLUSTER,
        "sweep": {"grid": {"C": [1, 2]}},
    }
    exp = load_experiment(given)
    assert SECRET not in exp.to_yaml()
    assert yaml12.parse(exp.to_yaml())["cluster"]["kwargs"]["queue"] == "${QUEUE}"
    assert exp.cluster.kwargs["password"] == SECRET
    assert all(point.data.source == given["data"]["source"] for _, point in exp.points())


def test_run__leaves_no_secret_in_its_folder(rows_config, tmp_path, monkeypatch):
    """A class of the host's own that takes a password; the environment fills in the other one."""
    (tmp_path / "locked.py").write_text(
        "from distributed import LocalCluster\n"
        "def locked(password, token, **rest):\n"
        f"    assert (password, token) == ({SECRET!r}, 'from-outside')\n"
        "    return LocalCluster(n_workers=1, processes=False, dashboard_address=':0')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MARGINFLOW_FACTORIES", "locked.locked")
    monkeypatch.setenv("OUTSIDE", "from-outside")
    cluster = {"kind": "factory", "factory": "locked.locked", "kwargs": {"password": SECRET, "token": "${OUTSIDE}"}}
    run(rows_config | {"cluster": cluster}, store=tmp_path / "runs")
    files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert any(path.name == "report.html" for path in files)
    for path in files:
        content = path.read_bytes()
        assert SECRET.encode() not in content, path
        assert b"from-outside" not in content, path


def test_errors__name_no_secret(tmp_path, capsys):
    for argv in (
        ["runs", "--store", f"s3://me:{SECRET}@bucket/runs"],
        ["verify", f"https://me:{SECRET}@host/run"],
        ["runs", "--store", f"s3://bucket/runs?token={SECRET}"],
    ):
        assert main(argv) in (1, 2)
        assert SECRET not in capsys.readouterr().err


# ---- the parameters of a flow
@pytest.mark.parametrize(
    ("config", "overrides"),
    [
        ("x.yaml", ["cluster.factory=dask_jobqueue.SLURMCluster"]),
        ("x.yaml", [" cluster.kwargs.job_script_prologue=['rm -r /']"]),
        ("x.yaml", ["cluster={kind: factory, factory: dask_jobqueue.SLURMCluster}"]),
        ({"cluster": CLUSTER}, []),
        ("x.yaml", [f"cluster.address=tls://me:{SECRET}@host:1"]),
    ],
)
def test_parameters__name_no_class_to_import_and_no_secret(config, overrides):
    with pytest.raises(InputError) as caught:
        check_parameters(config, overrides)
    assert SECRET not in str(caught.value)


def test_parameters__of_every_other_kind_pass():
    check_parameters("x.yaml", ["C=10", "cluster.workers=2", "cluster={kind: inline}"])
    check_parameters({"cluster": {"kind": "local"}, "data": {}}, ["kernel.gamma=0.1"])


def test_schedule__refuses_them_before_anything_starts(tmp_path, capsys):
    (tmp_path / "x.yaml").write_text("data: {source: 'sklearn:iris'}")
    argv = ["schedule", str(tmp_path / "x.yaml"), "--cron", "0 2 * * *", "--set"]
    assert main([*argv, "cluster={kind: factory, factory: dask_jobqueue.SLURMCluster}"]) == 2
    assert "file alone" in capsys.readouterr().err
