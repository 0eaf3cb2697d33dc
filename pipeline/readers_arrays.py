"""Parquet, npz, zarr groups and scikit-learn's bundled sets as row blocks."""

import contextlib
import hashlib
import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy import sparse

from pipeline.readers_csv import Columns
from pipeline.rowblocks import BLOCK_BYTES, RowBlock, Source, check_finite, check_labels
from pipeline.streams import folder_of, open_bytes, sha256_of

__all__ = ["BundledSource", "NpzSource", "ParquetSource", "ZarrSource"]

BROKEN_ZIP = (
    zipfile.BadZipFile,  # no archive at all, one that is cut short, or a checksum that does not hold
    zlib.error,  # a changed byte of a compressed member
    lzma.LZMAError,  # the same
    OSError,  # the same in bzip2; an offset that points out of the file
    EOFError,  # fewer values than the shape says
    RuntimeError,  # a password; as NotImplementedError, a compression that zipfile does not know
)
BROKEN_ZARR = (  # zarr has no error of its own, and every codec adds others
    OSError,  # no such folder or group
    ValueError,  # metadata that is no JSON; a chunk of another length
    TypeError,  # metadata with an unknown key
    KeyError,  # metadata without a key it needs
    RuntimeError,  # a chunk that blosc or zstd cannot decompress
    zlib.error,  # a chunk that gzip cannot decompress
    EOFError,  # a gzip chunk that is cut short
)


def _rows_in(rows_bytes: int, n_features: int) -> int:
    return max(1, rows_bytes // (8 * max(1, n_features)))


def _numbers(source: Source, X: NDArray[Any], first_row: int) -> NDArray[np.float64]:
    """Return rows as C-contiguous float64, refusing what is not a finite number."""
    with np.errstate(over="ignore"):  # a long double beyond float64's range becomes infinity, which is refused
        rows = np.ascontiguousarray(X, dtype=np.float64)
    check_finite(source, rows, first_row)
    return rows


class ParquetSource(Source):
    """Rows of a Parquet file; `label` and `fold` by name or position."""

    def __init__(
        self, url: str, label: int | str = -1, fold: int | str | None = None, n_features: int | None = None
    ) -> None:
        super().__init__(url)
        self._given = (label, fold, n_features)

    def blocks(self, rows_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
        """Yield dense blocks."""
        import pyarrow as pa
        from pyarrow import parquet

        with open_bytes(self.url) as raw:
            try:
                file = parquet.ParquetFile(raw)
                columns = self._columns(file.schema_arrow)
                self.total = file.metadata.num_rows
                for batch in file.iter_batches(_rows_in(rows_bytes, len(columns.features)), use_threads=False):
                    if batch.num_rows:
                        block = self._block(batch, columns)
                        self.done += batch.num_rows
                        yield block
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last at a changed column name
                reason = str(error).splitlines()[0][:200]
                raise self.fail(f"not a whole Parquet file ({reason}); fetch or write it again") from None
        if not self.total:
            raise self.fail("holds no rows")

    def digest(self) -> str:
        """Sha256 of the file as it is stored."""
        return sha256_of(self.url)

    def _columns(self, schema: Any) -> Columns:
        import pyarrow as pa

        label, fold, n_features = self._given
        columns = Columns(self, schema.names, label, fold, n_features)
        for j in columns.features:
            kind = schema.types[j]
            if not (
                pa.types.is_integer(kind)
                or pa.types.is_floating(kind)
                or pa.types.is_boolean(kind)
                or pa.types.is_decimal(kind)
            ):
                raise self.fail(f"the column '{schema.names[j]}' has type {kind}; features must be numbers")
        return columns

    def _block(self, batch: Any, columns: Columns) -> RowBlock:
        X = np.empty((batch.num_rows, len(columns.features)))
        for k, j in enumerate(columns.features):
            column = batch.column(j)
            self._no_nulls(column, columns.names[k])
            X[:, k] = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
        check_finite(self, X, self.done, columns.names)
        return RowBlock(X, self._labels(batch, columns.label), self._labels(batch, columns.fold))

    def _labels(self, batch: Any, at: int | None) -> NDArray[Any] | None:
        import pyarrow as pa

        if at is None:
            return None
        column = batch.column(at)
        self._no_nulls(column, batch.schema.names[at])
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return check_labels(self, column.to_numpy(zero_copy_only=False), self.done)

    def _no_nulls(self, column: Any, name: str) -> None:
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise self.fail(f"row {self.done + row + 1}, column '{name}': a missing value; remove or fill such rows")


class NpzSource(Source):
    """Members `X` (n, p) and `y` (n,) of an npz file; X is streamed out of the archive, objects are refused."""

    def __init__(self, url: str, n_features: int | None = None) -> None:
        super().__init__(url)
        self.n_features = n_features

    def blocks(self, rows_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
        """Yield dense blocks."""
        with open_bytes(self.url) as raw:
            try:
                with zipfile.ZipFile(raw) as archive:
                    y = self._labels(archive)
                    yield from self._rows(archive, y, rows_bytes)
            except BROKEN_ZIP as error:
                raise self.fail(
                    f"not a whole .npz archive ({error}); fetch it again, or write it again with numpy.savez"
                ) from None

    def digest(self) -> str:
        """Sha256 of the file as it is stored."""
        return sha256_of(self.url)

    def _member(self, archive: zipfile.ZipFile, name: str) -> tuple[IO[bytes], tuple[int, ...], bool, np.dtype[Any]]:
        """Open a member behind its header: (stream, shape, Fortran order, dtype)."""
        stream = archive.open(f"{name}.npy")
        try:
            version = npy.read_magic(stream)
            read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = read_header(stream)
        except (ValueError, tokenize.TokenError) as error:  # the header is a text that NumPy parses
            raise self.fail(f"the member {name!r} is not a NumPy array ({error}); save it with numpy.savez") from None
        if dtype.hasobject:
            raise self.fail(
                f"the member {name!r} holds Python objects, which are never loaded; save numbers or strings"
            )
        return stream, shape, fortran, dtype

    def _labels(self, archive: zipfile.ZipFile) -> NDArray[Any] | None:
        members = {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
        missing = [name for name in ("X", "y") if name not in members]
        if "X" in missing or (missing and self.n_features is None):
            found = ", ".join(sorted(members)) or "none"
            raise self.fail(f"no member {missing[0]!r}; an npz needs X (n, p) and y (n,), found: {found}")
        if missing:
            return None
        stream, shape, _, dtype = self._member(archive, "y")
        with stream:
            flat = self._read(stream, int(np.prod(shape)), dtype)
        return check_labels(self, flat.reshape(shape))

    def _read(self, stream: IO[bytes], count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        data = stream.read(count * dtype.itemsize)
        if len(data) < count * dtype.itemsize:
            raise EOFError("an array ends before its shape says")
        return np.frombuffer(data, dtype)

    def _rows(self, archive: zipfile.ZipFile, y: NDArray[Any] | None, rows_bytes: int) -> Iterator[RowBlock]:
        stream, shape, fortran, dtype = self._member(archive, "X")
        n, p = self._checked_shape(shape, dtype, y)
        self.total = n
        step = n if fortran else _rows_in(rows_bytes, p)  # columns first cannot be streamed by rows
        with stream:
            for start in range(0, n, step):
                rows = min(step, n - start)
                flat = self._read(stream, rows * p, dtype)
                X = _numbers(self, flat.reshape((p, rows)).T if fortran else flat.reshape((rows, p)), start)
                self.done = start + rows
                yield RowBlock(X, None if y is None else y[start : start + rows])

    def _checked_shape(self, shape: tuple[int, ...], dtype: np.dtype[Any], y: NDArray[Any] | None) -> tuple[int, int]:
        if len(shape) != 2 or 0 in shape:
            raise self.fail(f"X has shape {shape}; rows and features, (n, p), are needed")
        if dtype.kind not in "biuf":
            raise self.fail(f"X has type {dtype}; features must be real numbers")
        if y is not None and len(y) != shape[0]:
            raise self.fail(f"X has {shape[0]} rows but y has {len(y)} labels")
        if self.n_features is not None and shape[1] != self.n_features:
            raise self.fail(f"X has {shape[1]} features, but {self.n_features} are expected")
        return int(shape[0]), int(shape[1])


class ZarrSource(Source):
    """A zarr group with `X` (n, p), or `X` as a group of CSR's data, indices and indptr, and `y` (n,)."""

    def __init__(self, url: str, n_features: int | None = None) -> None:
        super().__init__(url)
        self.n_features = n_features
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
        needed += ["y"] if self.n_features is None else []
        if missing := [name for name in needed if name not in arrays]:
            wanted = "X (n, p), or X/data, X/indices and X/indptr of CSR, and y (n,)"
            raise self.fail(f"no array {missing[0]!r}; a zarr group needs {wanted}")
        return arrays

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
        step = max(chunk, _rows_in(rows_bytes, X.shape[1]) // chunk * chunk)
        for start in range(0, self.total, step):
            rows = _numbers(self, self._read(X, slice(start, start + step)), start)
            self.done = start + len(rows)
            yield RowBlock(rows, None if y is None else y[start : start + step])

    def _csr(self, parts: Mapping[str, Any], y: NDArray[Any] | None, rows_bytes: int) -> Iterator[RowBlock]:
        indptr = self._row_ends(parts)
        p = self._n_columns(parts["X/indices"])
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


class BundledSource(Source):
    """One of scikit-learn's bundled classification sets, `sklearn:NAME`."""

    def __init__(self, url: str, n_features: int | None = None) -> None:
        super().__init__(url)
        self.n_features = n_features

    def blocks(self, rows_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
        """Yield the set; it is small."""
        X, y = self._load()
        if self.n_features is not None and X.shape[1] != self.n_features:
            raise self.fail(f"X has {X.shape[1]} features, but {self.n_features} are expected")
        self.total = len(y)
        step = _rows_in(rows_bytes, X.shape[1])
        for start in range(0, len(y), step):
            self.done = min(start + step, len(y))
            yield RowBlock(X[start : start + step], y[start : start + step])

    def digest(self) -> str:
        """Sha256 of the numbers, whichever version of scikit-learn ships them."""
        X, y = self._load()
        return hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()

    def _load(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{self.url.removeprefix('sklearn:')}")(return_X_y=True)
        return np.ascontiguousarray(X, dtype=np.float64), y.astype(np.int64)
