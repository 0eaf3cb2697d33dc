"""Take the pictures of docs/gallery.md in a Chromium: `python docs/generate_gallery.py`; needs the extra `full`.

The report, the batch and the comparison are of real runs; the index is of 120 nights that are made up from one of them.
"""

import datetime
import io
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright
from sklearn.datasets import load_breast_cancer

from pipeline import run
from pipeline.registry.aliases import promote
from pipeline.report.comparison import write_comparison
from pipeline.report.index import write_index
from pipeline.storage.runs import open_store

IMAGES = Path(__file__).resolve().parent / "images"
SIZES = {"wide": (1200, 1500), "narrow": (400, 1100)}
NIGHTS, FIRST = 120, datetime.datetime(2026, 7, 1, 3, tzinfo=datetime.UTC)


def cancer(folder: Path) -> dict[str, Any]:
    """A config of two classes whose rows have ids; its table is written into the folder."""
    table = load_breast_cancer(as_frame=True).frame
    table.insert(0, "patient", [f"P{k:04d}" for k in range(len(table))])
    table["diagnosis"] = table.pop("target").map({0: "malignant", 1: "benign"})
    table.to_csv(folder / "cancer.csv", index=False)
    data = {
        "source": str(folder / "cancer.csv"),
        "label": "diagnosis",
        "id": "patient",
        "scale": "standard",
        "test": 0.3,
    }
    config = {"name": "cancer", "data": data, "promote": "champion", "scoring": ["accuracy", "roc_auc"]}
    return config | {"cluster": {"kind": "inline"}, "store": str(folder / "runs")}


SWEEP = {"grid": {"C": [0.1, 1, 10, 100], "kernel.gamma": [1e-3, 0.01, 0.03, 0.1, 0.3, 1]}, "folds": 5}


def pages(folder: Path) -> dict[str, Path]:
    """Make the runs, and say which file is which page."""
    config = cancer(folder) | {"C": 10}
    first = run(config)
    worse = run(config | {"C": 0.04, "gate": {"drop": {"accuracy": 0.005}}})
    batch = run(config | {"sweep": SWEEP})
    write_comparison(first["run"], worse["run"], folder / "comparison.html")
    found = {"report": Path(worse["run"], "report.html"), "batch": Path(batch["run"], "report.html")}
    return found | {"comparison": folder / "comparison.html", "index": _nights(folder / "nights", first)}


def _nights(folder: Path, real: dict[str, Any]) -> Path:
    """The index of a store whose runs are like a real one, each with a score of its own."""
    store, rng = open_store(folder), np.random.default_rng(0)
    for k in range(NIGHTS):
        fails = bool(rng.random() < 0.06)
        accuracy = round(float(np.clip(0.955 + k / 8000 + rng.normal(0, 0.004) - 0.05 * fails, 0, 1)), 4)
        scores = {"test": {"accuracy": accuracy, "roc_auc": round(1 - (1 - accuracy) / 4, 4)}, "train": {}}
        rule = [{"rule": "drop.accuracy", "found": accuracy, "needed": 0.95}] if fails else []
        new = {"train_accuracy": round(0.99 + float(rng.random()) / 200, 4), "kkt_gap": 1e-3 * float(rng.random())}
        new |= {"accuracy": accuracy, "scores": scores, "gate": {"passed": not rule, "against": None, "failed": rule}}
        new |= {"n_train": 398 + 3 * k, "n_support": int(80 + k / 4 + rng.integers(9))}
        new |= {"seconds": real["seconds"] | {"total": round(float(4 + k / 60 + rng.random()), 2)}}
        key = f"cancer/{FIRST + datetime.timedelta(days=k):%Y%m%dT%H%M%SZ}-{k:08x}"
        store.put_bytes(f"{key}/metrics.json", json.dumps(real | new).encode())
        if not fails:
            promote(store, key, why="nightly" if k % 40 else "new features")
    target = Path(write_index(store))
    target.write_text(target.read_text().replace(store.url, "s3://hospital/runs"))
    return target


def take(found: dict[str, Path]) -> None:
    """Write NAME-SIZE-SCHEME.webp of every page."""
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, file in found.items():
            for size, (width, height) in SIZES.items():
                for scheme in ("light", "dark"):
                    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                    page.goto(file.as_uri())
                    shot = Image.open(io.BytesIO(page.screenshot(full_page=False)))
                    shot.save(IMAGES / f"{name}-{size}-{scheme}.webp", quality=72, method=6)
                    page.close()


if __name__ == "__main__":
    os.environ["LOGNAME"] = "ada"
    with tempfile.TemporaryDirectory() as temporary:
        take(pages(Path(temporary)))
