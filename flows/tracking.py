"""Runs in MLflow: parameters, scores, files and the model of a published run, beside the store that has it all.

The server is the one that MLflow's own variable MLFLOW_TRACKING_URI names. The model is one that
`mlflow.pyfunc.load_model` loads and `mlflow models serve` serves: the stored model as it is, without pickle.
"""

import contextlib
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from svmcore.errors import InputError

__all__ = ["check_tracker", "log_run"]

TRACKERS = ("mlflow",)
FILES = ("report.html", "MODEL_CARD.md", "config.yaml", "metrics.json", "results.csv")
MOST_POINTS = 200  # of a sweep, each a run within the run
LONGEST = 500  # letters of a parameter
CERTIFICATE = ("kkt_gap", "relative_gap", "n_support", "n_train", "n_test", "n_features", "peak_memory_bytes")


def check_tracker(name: str | None) -> None:
    """Refuse, before any work, what cannot be logged to."""
    if name is None:
        return
    if name not in TRACKERS:
        raise InputError(f"--log-to {name!r}: accepted: {', '.join(TRACKERS)}")
    if importlib.util.find_spec("mlflow") is None:
        raise InputError("--log-to mlflow: MLflow is not installed; pip install 'marginflow[mlflow]'")


def log_run(record: Mapping[str, Any]) -> str:
    """Log a published run to MLflow, with a run within it for each point of a sweep; returns the id of it there."""
    from pipeline.model.parts import run_folder

    with contextlib.redirect_stdout(sys.stderr):  # MLflow prints addresses; what is on stdout is ours alone
        return _log(record, run_folder(record["run"]))


def _log(record: Mapping[str, Any], folder: Path) -> str:
    import mlflow

    mlflow.set_experiment(str(record["config"]["name"]))
    with mlflow.start_run(run_name=Path(record["run"]).name, tags=_tags(record)) as run:
        mlflow.log_params(_parameters(record["config"]))
        mlflow.log_metrics(_numbers(record))
        for file in FILES:
            if (folder / file).exists():
                mlflow.log_artifact(str(folder / file))
        for point in record.get("points", [])[:MOST_POINTS]:
            with mlflow.start_run(run_name=_text(point["params"]), nested=True):
                mlflow.log_params({key: _text(value) for key, value in point["params"].items()})
                mlflow.log_metrics(_finite({key: point[key] for key in ("mean_score", "std_score", "kkt_gap")}))
        if record["model"] is not None:
            _log_model(folder / "model.zarr", str(record["provenance"]["marginflow"]))
    return str(run.info.run_id)


def _log_model(folder: Path, version: str) -> None:
    """As one file: MLflow loses folders called 0 on the way."""
    import mlflow

    with tempfile.TemporaryDirectory() as scratch:
        packed = shutil.make_archive(str(Path(scratch, "model")), "zip", folder)
        wanted = [f"marginflow=={version}"]
        mlflow.pyfunc.log_model(name="model", loader_module=__name__, data_path=packed, pip_requirements=wanted)


def _load_pyfunc(path: str) -> Any:
    """The model of a run in MLflow: what `mlflow.pyfunc.load_model` calls."""
    from pipeline import load_model

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "model.zarr")
        shutil.unpack_archive(path, folder, "zip")
        return load_model(folder)


def _tags(record: Mapping[str, Any]) -> dict[str, str]:
    git, gate = record["provenance"]["git"] or {}, record["gate"]
    known = {
        "marginflow.run": record["run"],
        "marginflow.status": record["status"],
        "marginflow.gate": None if gate is None else "passed" if gate["passed"] else "failed",
        "marginflow.data": record["provenance"]["sources"].get("source"),
        "mlflow.source.git.commit": git.get("commit"),
    }
    return {key: str(value) for key, value in known.items() if value is not None}


def _parameters(config: Mapping[str, Any]) -> dict[str, str]:
    return {key: _text(value) for key, value in _flat(config)}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text(value: Any) -> str:
    return str(value)[:LONGEST]


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Scores by the rows that they are of, certificates, seconds."""
    scores = {
        f"{where}_{name}": value
        for where, found in (record["scores"] or {}).items()
        for name, value in (found or {}).items()
    }
    best = {"best_mean_score": (record.get("best") or {}).get("mean_score")}
    seconds = {f"seconds_{stage}": value for stage, value in record["seconds"].items()}
    return _finite(scores | best | {key: record[key] for key in CERTIFICATE} | seconds)


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for key, value in values.items():
        with contextlib.suppress(TypeError):
            found[key] = float(value)
    return found
