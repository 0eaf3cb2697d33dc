"""zarr groups as row blocks, dense or CSR."""

import contextlib
import math
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline.rows.sources.blocks import (
    BLOCK_BYTES,
    RowBlock,
    StoredSource,
    check_labels,
    check_width,
    finite_rows,
    rows_in,
)
from pipeline.rows.sources.streams import check_expansion, folder_of, sha256_of

__all__ = ["ZarrSource"]

BROKEN_ZARR = (  # zarr has no error of its own, and every codec adds others
    OSError,  # no such folder or group
    ValueError,  # metadata that is no JSON; a chunk of another length
    TypeError,  # metadata with an unknown key
    KeyError,  # metadata without a key it needs
    AttributeError,  # metadata that is JSON, and no object
    RuntimeError,  # a chunk that blosc or zstd cannot decompress
    zlib.error,  # a chunk that gzip cannot decompress
    EOFError,  # a gzip chunk that is cut short
)


class ZarrSource(StoredSource):
    """A zarr group with `X` (n, p), or `X` as a group of CSR's data, indices and indptr, and `y` (n,)."""

    def __init__(self, url: str, n_features: int | None = None, labelled: bool = True) -> None:
        super().__init__(url)
        self.n_features = n_features
        self.labelled = labelled  # whether it must have a y, where it is not to be predicted
        self.folder = folder_of(url)
        self.sparse = (self.folder / "X" / "indptr").exists()

    def blocks(self, rows_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
        """Yield dense or CSR blocks."""
        arrays = self._open()
        y = check_labels(self, self._read(arrays["y"])) if "y" in arrays else None
        yield from (self._csr(arrays, y, rows_bytes) if self.sparse else self._dense(arrays["X"], y, rows_bytes))

    def digest(self) -> str:
        """Sha256 over all files of the group."""
        return sha256_of(str(self.folder))

    def _open(self) -> dict[str, Any]:
        """Open the arrays there are of y and X, or y and the three parts of X."""
        import zarr

        needed = ["X/data", "X/indices", "X/indptr"] if self.sparse else ["X"]
        with self._zarr_errors():
            group = zarr.open_group(str(self.folder), mode="r")
            found = {name: group[name] for name in ("y", *needed) if name in group}
            self._shape = group["X"].attrs.get("shape") if self.sparse else None
        arrays = {name: array for name, array in found.items() if isinstance(array, zarr.Array)}
        needed += ["y"] if self.n_features is None and self.labelled else []
        if missing := [name for name in needed if name not in arrays]:
            wanted = "X (n, p), or X/data, X/indices and X/indptr of CSR, and y (n,)"
            raise self.fail(f"no array {missing[0]!r}; a zarr group needs {wanted}")
        for name, array in arrays.items():
            self._check_size(name, array)
        return arrays

    def _check_size(self, name: str, array: Any) -> None:
        """Refuse an array whose shape, or one of whose chunks, promises more than is stored."""
        stored = sum(file.stat().st_size for file in (self.folder / name).rglob("*") if file.is_file())
        largest = max(math.prod(array.shape), math.prod(array.chunks) if 0 not in array.shape else 0)
        check_expansion(self.url, f"the array {name!r} of shape {array.shape}", largest * array.dtype.itemsize, stored)

    def _read(self, array: Any, rows: Any = ...) -> NDArray[Any]:
        with self._zarr_errors():
            return np.asarray(array[rows])

    @contextlib.contextmanager
    def _zarr_errors(self) -> Iterator[None]:
        """Turn what zarr raises into an InputError; nothing but zarr's own calls belongs inside."""
        try:
            yield
        except BROKEN_ZARR as error:
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise self.fail(f"not a whole zarr group with X and y ({reason}); copy or write it again") from None

    def _dense(self, X: Any, y: NDArray[Any] | None, rows_bytes: int) -> Iterator[RowBlock]:
        if len(X.shape) != 2 or 0 in X.shape or X.dtype.kind not in "biuf":
            raise self.fail(f"X has shape {X.shape} and type {X.dtype}; numbers of shape (n, p) are needed")
        self._expect(X.shape, y)
        chunk = X.chunks[0]
        step = max(chunk, rows_in(rows_bytes, X.shape[1]) // chunk * chunk)
        for start in range(0, self.total, step):
            rows = finite_rows(self, self._read(X, slice(start, start + step)), start)
            self.done = start + len(rows)
            yield RowBlock(rows, None if y is None else y[start : start + step])

    def _csr(self, parts: Mapping[str, Any], y: NDArray[Any] | None, rows_bytes: int) -> Iterator[RowBlock]:
        indptr = self._row_ends(parts)
        p = self._n_columns(parts["X/indices"])
        check_width(self, p)
        self._expect((len(indptr) - 1, p), y)
        starts = np.searchsorted(indptr, np.arange(0, indptr[-1] + 1, max(1, rows_bytes // 12)), side="right") - 1
        edges = np.unique([*starts, self.total])
        for lo, hi in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            block = self._csr_rows(parts, indptr[lo : hi + 1], lo, p)
            self.done = hi
            yield RowBlock(block, None if y is None else y[lo:hi])

    def _row_ends(self, parts: Mapping[str, Any]) -> NDArray[np.int64]:
        """Return indptr (n + 1,), checked: compiled code follows it wherever it points."""
        data, indices, ends = (parts[f"X/{name}"] for name in ("data", "indices", "indptr"))
        if data.dtype.kind not in "biuf" or indices.dtype.kind not in "iu" or ends.dtype.kind not in "iu":
            kinds = f"{data.dtype}, {indices.dtype} and {ends.dtype}"
            raise self.fail(f"X/data, X/indices and X/indptr are {kinds}; numbers, integers and integers are needed")
        indptr = self._read(ends).astype(np.int64)
        whole = indptr.ndim == 1 and len(indptr) > 1 and indptr[0] == 0 and (np.diff(indptr) >= 0).all()
        if not whole or not data.shape == indices.shape == (indptr[-1],):
            raise self.fail("X/indptr is not CSR's; it must rise from 0 to the length of X/data and X/indices")
        return indptr

    def _n_columns(self, indices: Any) -> int:
        if self.n_features:
            return self.n_features
        match self._shape:
            case [_, int(p)]:
                return p
            case None:
                return int(self._read(indices).max(initial=-1)) + 1
        raise self.fail(f"the attribute 'shape' of X is {self._shape!r}; [rows, columns] are needed")

    def _csr_rows(self, parts: Mapping[str, Any], indptr: NDArray[np.int64], first_row: int, p: int) -> Any:
        """Return the rows that `indptr` (rows + 1,) delimits, columns sorted, no zeros stored."""
        part = slice(int(indptr[0]), int(indptr[-1]))
        data, indices = self._read(parts["X/data"], part).astype(np.float64), self._read(parts["X/indices"], part)
        bad = ~np.isfinite(data) | (indices < 0) | (indices >= p)
        if bad.any():
            at = int(np.argmax(bad))
            row = first_row + int(np.searchsorted(indptr, part.start + at, side="right"))
            what = f"row {row}, column {indices[at]} (counted from 0): {data[at]}"
            raise self.fail(f"{what}; finite numbers in columns 0 to {p - 1} are needed")
        block = sparse.csr_array((data, indices, indptr - part.start), shape=(len(indptr) - 1, p))
        block.sum_duplicates()
        block.eliminate_zeros()
        return block

    def _expect(self, shape: tuple[int, ...], y: NDArray[Any] | None) -> None:
        self.total = int(shape[0])
        if y is not None and len(y) != shape[0]:
            raise self.fail(f"X has {shape[0]} rows but y has {len(y)} labels")
        if self.n_features is not None and shape[1] != self.n_features:
            raise self.fail(f"X has {shape[1]} features, but {self.n_features} are expected")
