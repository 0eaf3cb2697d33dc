"""From a source to a dataset on disk, in three passes whose memory is one block whatever the size of the data.

1. `_stage`: rows to plain files in float64, labels to codes.
2. `_statistics`: which rows train and which test (`rows.split`), column statistics of the training rows, scaling.
3. `_merge`: scaled training rows to buckets by the top bits of their content hash; each bucket merged and appended.
   Hashes order the rows, so bucket after bucket is the order of `svmcore.points.merge_rows` on all rows at once.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pipeline.config.schema import Experiment
from pipeline.kinds import Kind
from pipeline.kinds.base import Targets
from pipeline.kinds.labels import Label, LabelCodes
from pipeline.rows.encoding import Encoder, fit
from pipeline.rows.names import Names, write_names
from pipeline.rows.output import Output
from pipeline.rows.row_files import RowFiles, as_dense, as_sparse
from pipeline.rows.scaling import FLOAT32_LOSS, ColumnStats, Scaling, fit_scaling
from pipeline.rows.schema import Schema
from pipeline.rows.sources.blocks import BLOCK_BYTES, StoredSource
from pipeline.rows.sources.open import format_of, open_source
from pipeline.rows.split import Split, choose_rows
from pipeline.storage.files import sha256_of_json
from pipeline.storage.manifest import write_manifest
from pipeline.storage.sealed import building
from svmcore.errors import InputError
from svmcore.points.identical import merge_rows, row_hash

__all__ = ["KIND", "VERSION", "Progress", "build", "made_from"]

KIND, VERSION = "dataset", 4
BUCKET_BYTES = 64 << 20
MAX_BUCKETS = 256  # each is a few open files
Progress = Callable[..., None]


def _as_read(X: Any) -> Any:
    return X


@dataclass(eq=False)
class _Staged:
    """A source's rows in files, with targets and folds as they were read, and how rows are encoded."""

    source: StoredSource
    rows: RowFiles
    targets: Targets
    folds: LabelCodes | None
    names: Names | None = None
    encode: Callable[[Any], Any] = _as_read

    @property
    def schema(self) -> Schema:
        """What its columns are, as far as reading tells."""
        return self.source.schema or Schema(self.rows.n_features - self.rows.first_column)


def made_from(exp: Experiment) -> dict[str, Any]:
    """All that a dataset is made from: the sources' bytes, the data keys, the fold column and the seed."""
    data = exp.data
    facts = data.model_dump(exclude={"source", "test"}) | {
        "version": VERSION,
        "format": format_of(data.source),
        "source": open_source(data.source, data).digest(),
        "test": data.test,
        "fold_column": exp.fold_column,
        "seed": exp.seed if data.rows or isinstance(data.test, float) else None,
    }
    facts |= _kind_fact(exp.kind)
    if isinstance(data.test, str):
        facts["test"] = [format_of(data.test), open_source(data.test, data).digest()]
    return facts


def _kind_fact(kind: Kind) -> dict[str, str]:
    """What the targets are, unless they are labels: datasets of those are from before there was a choice."""
    return {} if kind.answers == "labels" else {"answers": kind.answers}


def _sources(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Sha256 of the sources, and of what says which rows are tested on."""
    test = facts["test"]
    chosen = test if isinstance(test, list) else [facts[key] for key in ("source", "test", "seed", "rows", "label")]
    return {
        "source": facts["source"],
        "test": test[1] if isinstance(test, list) else None,
        "test_rows": sha256_of_json(chosen),
    }


def build(exp: Experiment, target: Path, facts_before: Mapping[str, Any], progress: Progress | None = None) -> None:
    """Read the sources and publish a dataset at `target`, in place of a damaged one; on any error nothing changes.

    `facts_before` is what `made_from` said before: sources that are others by the time they are read are an InputError.
    """
    with building(target, replace=target.exists()) as folder:
        scratch = folder / "scratch"
        scratch.mkdir()
        train, test = _stage_sources(exp, scratch, progress)
        _check_unchanged([staged.source for staged in (train, test) if staged is not None], facts_before)
        classes, targets = train.targets.resolve()
        exp.kind.check(exp.data.source, classes)
        split = choose_rows(exp, targets, classes)
        encoder = _fit(exp, train, split)
        train.encode = encoder
        if test is not None:
            test.encode = encoder
        stats, scaling, dtype = _statistics(exp, train, split, encoder.schema.width)
        out = Output(folder, train.rows.is_sparse, len(scaling.factor), dtype)
        step = None if out.is_sparse or dtype == np.float32 else stats.step_of_bytes(scaling)
        facts = _merge(out, _fill_buckets(scratch, train, split, scaling, dtype, step), targets[split.train])
        facts |= {"classes": classes} | _kind_fact(exp.kind)
        facts |= _write_folds(out, train, split)
        facts["n_test"] = _write_test(out, train, test, _test_targets(test, targets, classes, split), split, scaling)
        out.write("scaling/shift", scaling.shift)
        out.write("scaling/factor", scaling.factor)
        shutil.rmtree(scratch)
        facts |= {
            "n_features": len(scaling.factor),
            "sparse": train.rows.is_sparse,
            "dtype": np.dtype(dtype).name,
            "step": step,
            "variance": stats.total_variance(scaling),
            "scaling": scaling.kind,
            "index_base": getattr(train.source, "base", None),
        }
        schema = encoder.schema.with_ranges(stats.least, stats.largest)
        for name, values in schema.arrays().items():
            out.write_beside(f"schema/{name}", values)
        facts |= out.fingerprints(facts) | {"schema": schema.record(), "sources": _sources(facts_before)}
        write_manifest(folder, KIND, VERSION, facts)


def _check_unchanged(sources: Sequence[StoredSource], facts: Mapping[str, Any]) -> None:
    """Refuse sources whose bytes, as they were read, are not those that the dataset will be found by."""
    digests = [facts["source"], facts["test"][1]] if isinstance(facts["test"], list) else [facts["source"]]
    for source, digest in zip(sources, digests, strict=True):
        if (source.digest_read or source.digest()) != digest:
            raise source.fail("changed while it was read; run again when nothing writes to it")


# ---- 1: staging -------------------------------------------------------------------------------------------------
def _stage_sources(exp: Experiment, scratch: Path, progress: Progress | None) -> tuple[_Staged, _Staged | None]:
    """Stage the training source and, if it is another one, the test source, with equal numbers of features."""
    data, fold = exp.data, exp.fold_column
    train = _stage(exp, open_source(data.source, data, fold_column=fold), scratch, "source", progress)
    base = getattr(train.source, "base", None)
    train.rows.first_column = base or 0
    if not isinstance(data.test, str):
        return train, None
    p = train.rows.n_features - train.rows.first_column
    libsvm = format_of(data.test) == "libsvm"
    both_columns = fold if format_of(data.test) in ("csv", "parquet") else None
    source = open_source(
        data.test,
        data,
        fold_column=both_columns,
        base=1 if base is None and libsvm else base,
        n_features=None if libsvm else p,
        schema=train.schema,
        texts=train.source.texts,
    )
    test = _stage(exp, source, scratch, "test", progress)
    _agree(train, test, p)
    return train, test


def _agree(train: _Staged, test: _Staged, p: int) -> None:
    """Give both sets the larger width if both are LIBSVM, as scikit-learn's load_svmlight_files; else check it."""
    wide = test.rows.n_features
    if wide > p and not train.rows.is_sparse:
        raise InputError(f"{test.source.url}: test data with {wide} features, but the training data has {p}")
    p = max(wide, p)
    train.rows.n_features = p + train.rows.first_column
    if test.rows.is_sparse:
        test.rows.n_features = p


def _stage(exp: Experiment, source: StoredSource, scratch: Path, name: str, progress: Progress | None) -> _Staged:
    text, labelled = format_of(source.url) == "csv", exp.data.label is not None
    rows = RowFiles(scratch, name, source.sparse)
    staged = _Staged(source, rows, exp.kind.reader(source.url, text, labelled), None)
    for block in source.blocks():
        targets = block.y if labelled else np.empty(block.X.shape[0])
        if targets is None:
            raise source.fail("has no labels, or lacks a feature; its columns must be those of the training data")
        rows.kept = rows.dtype if source.sparse else source.kept
        rows.append(block.X)
        staged.targets.append(targets)
        if block.fold is not None:
            staged.folds = staged.folds or LabelCodes(text)
            staged.folds.append(block.fold)
        if block.id is not None:
            staged.names = staged.names or Names(scratch, name)
            staged.names.append(block.id)
        if progress is not None:
            progress("ingest", source.done, source.total)
    if rows.n_features - (getattr(source, "base", None) or 0) < 1:
        raise source.fail("has no features; every row is empty")
    return staged


# ---- 2: statistics ----------------------------------------------------------------------------------------------
def _training_blocks(staged: _Staged, split: Split) -> Iterator[tuple[NDArray[np.int64], Any]]:
    """Yield (positions in the source (m,), rows) of the training rows, in order."""
    for start, X in staged.rows.blocks(BLOCK_BYTES):
        chosen = np.flatnonzero(split.train[start : start + X.shape[0]])
        if len(chosen):
            yield chosen + start, staged.encode(X if len(chosen) == X.shape[0] else X[chosen])


def _fit(exp: Experiment, train: _Staged, split: Split) -> Encoder:
    """Fit the schema to the training rows."""
    missing = exp.data.missing
    if train.rows.is_sparse and missing != "refuse":
        raise train.source.fail(f"data.missing {missing}: sparse rows have no missing values, what is not there is 0")
    blocks = lambda: (X for _, X in _training_blocks(train, split))  # noqa: E731
    return fit(train.schema, train.source.texts, missing, blocks, exp.data.source)


def _statistics(exp: Experiment, train: _Staged, split: Split, width: int) -> tuple[ColumnStats, Scaling, DTypeLike]:
    stats = ColumnStats(width)
    for _, X in _training_blocks(train, split):
        stats.add(X)
    scaling = fit_scaling(exp.data.scale, stats, train.rows.is_sparse)
    loses = stats.may_lose(scaling).any() and _loses(train, split, scaling, stats)
    return stats, scaling, np.float64 if loses or stats.is_rounded(scaling) else np.float32


def _loses(train: _Staged, split: Split, scaling: Scaling, stats: ColumnStats) -> bool:
    """Whether float32 loses more than FLOAT32_LOSS of a column's range in some row; whole numbers lose nothing."""
    allowed = FLOAT32_LOSS * (stats.largest - stats.least) * scaling.factor
    allowed[stats.largest == stats.least] = np.inf
    with np.errstate(over="ignore"):
        for _, raw in _training_blocks(train, split):
            X = scaling.apply(raw)
            if train.rows.is_sparse:
                lost = np.abs(X.data - X.data.astype(np.float32)) > allowed[X.indices]
            else:
                lost = np.abs(X - X.astype(np.float32)) > allowed
            if lost.any():
                return True
    return False


# ---- 3: merging -------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class _Buckets:
    """Scaled training rows by the top bits of their hash, and the bucket `of` each training row (n_train,).

    Rows that are a `step` times bytes are kept as these.
    """

    rows: list[RowFiles]
    of: NDArray[np.uint16]
    step: float | None


def _fill_buckets(
    scratch: Path, train: _Staged, split: Split, scaling: Scaling, dtype: DTypeLike, step: float | None
) -> _Buckets:
    """Scatter the scaled training rows to as many files as it takes for one to be small."""
    share = int(split.train.sum()) / train.rows.n * np.dtype(dtype).itemsize / train.rows.dtype.itemsize
    wanted = max(1.0, train.rows.n_bytes * share / BUCKET_BYTES)
    bits = min(int(np.ceil(np.log2(wanted))), int(np.log2(MAX_BUCKETS)))
    kept = dtype if step is None else np.uint8
    buckets = [RowFiles(scratch, f"bucket{b}", train.rows.is_sparse, kept) for b in range(2**bits)]
    for bucket in buckets:
        bucket.n_features = len(scaling.factor)
    of = []
    for _, raw in _training_blocks(train, split):
        X = scaling.apply(raw).astype(dtype)
        where = (row_hash(X)[:, 0] >> np.uint64(63 - bits) >> np.uint64(1)).astype(np.uint16)
        of.append(where)
        rows = X if step is None else raw
        for b in np.unique(where).tolist():
            buckets[b].append(rows[np.flatnonzero(where == b)] if bits else rows)
    return _Buckets(buckets, np.concatenate(of), step)


def _merge(out: Output, buckets: _Buckets, targets: NDArray[Any]) -> dict[str, Any]:
    """Write merged rows as the buckets keep them, their targets and counts, and the inverse; `targets` (n_train,)."""
    inverse = np.empty(len(targets), np.int64)
    merged_targets, merged_counts = [np.empty(0, targets.dtype)], [np.empty(0, np.int64)]

    def merged_rows() -> Iterator[Any]:
        n = 0
        for number, bucket in enumerate(buckets.rows):
            members = np.flatnonzero(buckets.of == number)
            if len(members):
                rows, own = bucket.read(0, bucket.n), targets[members]
                bucket.remove()
                X = rows if buckets.step is None else np.multiply(rows, buckets.step, dtype=out.dtype)
                merged = merge_rows(X, own)
                inverse[members] = merged.inverse + n
                merged_targets.append(own[merged.first])
                merged_counts.append(merged.counts)
                n += len(merged.first)
                yield rows[merged.first]

    n_merged = out.write_rows("train/X", merged_rows(), None if buckets.step is None else np.uint8)
    out.write("train/codes", np.concatenate(merged_targets))
    out.write("train/counts", np.concatenate(merged_counts))
    out.write("train/inverse", inverse)
    return {"n_train": len(targets), "n_merged": n_merged}


def _write_folds(out: Output, train: _Staged, split: Split) -> dict[str, Any]:
    """Write the fold of each training row as a position among the folds that occur."""
    if train.folds is None:
        return {"folds_of": None}
    values, codes = train.folds.resolve()
    used = np.unique(codes[split.train])
    if len(used) < 2:
        raise train.source.fail("the fold column names one fold only; two or more are needed")
    out.write("train/folds", np.searchsorted(used, codes[split.train]).astype(np.int32))
    return {"folds_of": [values[int(u)] for u in used]}


def _test_targets(test: _Staged | None, targets: NDArray[Any], classes: list[Label], split: Split) -> NDArray[Any]:
    return targets[split.test] if test is None else test.targets.resolve_as(classes, test.source.url)


def _write_test(
    out: Output, train: _Staged, test: _Staged | None, targets: NDArray[Any], split: Split, scaling: Scaling
) -> int:
    """Write the scaled test rows in the order of their source; returns their number."""
    if not len(targets):
        write_names(out.folder, train.names, split.train)
        return 0
    everything = np.ones(train.rows.n if test is None else test.rows.n, bool)
    mask = split.test if test is None else everything
    write_names(out.folder, (test or train).names, mask)

    def rows() -> Iterator[Any]:
        for _, raw in _training_blocks(test or train, Split(mask, mask)):
            X = scaling.apply(as_sparse(raw) if out.is_sparse else as_dense(raw))
            with np.errstate(over="ignore"):
                yield X.astype(out.dtype)

    out.write("test/codes", targets)
    return out.write_rows("test/X", rows())
