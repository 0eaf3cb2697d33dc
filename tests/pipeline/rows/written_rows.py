"""50 rows as text of each format, and how tests read a file."""

import io

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from pipeline.config.sections import Data
from pipeline.rows.sources.open import open_source
from svmcore.errors import InputError

rng = np.random.default_rng(0)
X = np.round(rng.normal(size=(50, 4)), 3) * (rng.random((50, 4)) < 0.7)
Y = rng.integers(0, 3, 50)
SMALL = 400  # bytes of a block: several blocks in every file here


def read(url, rows_bytes=1 << 25, **keys):
    """All rows of a source: (X dense, y list, blocks)."""
    extra = {key: keys.pop(key) for key in ("fold_column", "base", "n_features") if key in keys}
    source = open_source(str(url), Data(source=str(url), **keys), **extra)
    blocks = list(source.blocks(rows_bytes))
    p = max(block.X.shape[1] for block in blocks)
    rows = [
        np.pad(np.asarray(b.X.todense() if sparse.issparse(b.X) else b.X), ((0, 0), (0, p - b.X.shape[1])))
        for b in blocks
    ]
    labels = None if blocks[0].y is None else [label for b in blocks for label in b.y.tolist()]
    return np.concatenate(rows), labels, blocks


def error(url, **keys):
    with pytest.raises(InputError) as caught:
        read(url, **keys)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(url)), text
    return text


def text_file(folder, text, name="data.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def csv_text(delimiter=",", header=True, label_at=4):
    names = [f"x{j}" for j in range(4)]
    names.insert(label_at, "kind")
    lines = [delimiter.join(names)] if header else []
    for row, label in zip(X.tolist(), Y.tolist(), strict=True):
        cells = [repr(value) for value in row]
        cells.insert(label_at, str(label))
        lines.append(delimiter.join(cells))
    return "\n".join(lines) + "\n"


def libsvm_text(zero_based=False):
    buffer = io.BytesIO()
    dump_svmlight_file(X, Y, buffer, zero_based=zero_based)
    return buffer.getvalue()
