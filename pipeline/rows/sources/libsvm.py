"""LIBSVM text (plain, .gz, .bz2) as CSR row blocks.

Indices count from 1, as LIBSVM writes them. A source in which an index 0 occurs anywhere counts from 0 (what
scikit-learn's `dump_svmlight_file` writes by default); this is known only at the end, so blocks of a source opened
without a `base` keep the indices as written and `base` is set when the last block has passed. A source opened with
base 1, as test data or for prediction, refuses an index 0 by its line.
"""

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
from scipy import sparse

from pipeline.rows.sources.blocks import BLOCK_BYTES, RowBlock, StoredSource, check_width
from pipeline.rows.sources.libsvm_parser import LineError, Parsed, parse_block
from pipeline.rows.sources.streams import LineBlocks
from svmcore.errors import InputError

__all__ = ["LibsvmSource"]

TEXT_PER_ROWS = 2  # a CSR entry is 12 bytes and rarely less than 6 of text


class LibsvmSource(StoredSource):
    """Rows of a LIBSVM file; `base` is the number of the first feature, None until all rows have passed."""

    sparse = True

    def __init__(self, url: str, base: int | None = None, n_features: int | None = None) -> None:
        super().__init__(url)
        self.base = base
        self.n_features = n_features
        self._shift = base or 0

    def blocks(self, rows_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
        """Yield CSR blocks; without a `base`, column j holds the feature that the file numbers j."""
        lines = LineBlocks(self.url, max(1, rows_bytes // TEXT_PER_ROWS))
        saw_zero, rows = False, 0
        for text, first_line in lines:
            parsed = self._parsed(text, first_line)
            self.done, self.total = lines.done, lines.total
            if parsed.labels.size:
                saw_zero |= bool(parsed.indices.size and parsed.indices.min() == 0)
                rows += parsed.labels.size
                yield self._block(parsed, text, first_line)
        if not rows:
            raise self.fail("holds no rows; give a file with at least one line 'label index:value ...'")
        self.digest_read = lines.digest
        if self.base is None:
            self.base = 0 if saw_zero else 1

    def _parsed(self, text: bytes, first_line: int) -> Parsed:
        try:
            return parse_block(text)
        except LineError as error:
            raise self._line_error(text, first_line, error.offset, error.reason) from None

    def _line_error(self, text: bytes, first_line: int, offset: int, reason: str) -> InputError:
        line = first_line + text.count(b"\n", 0, offset)
        return self.fail(f"line {line}: {reason}; a LIBSVM line is 'label index:value index:value ...'")

    def _block(self, parsed: Parsed, text: bytes, first_line: int) -> RowBlock:
        """Shift indices to the base and check them against the number of features, where these are known."""
        indices = parsed.indices - np.int32(self._shift) if self._shift else parsed.indices
        largest = int(indices.max(initial=-1))
        if self._shift and indices.min(initial=0) < 0:
            bad = int(np.argmin(indices))
            reason = "the index 0, but indices count from 1 in this file (in the training data, where there is one)"
            raise self._entry_error(parsed, text, first_line, bad, reason)
        if self.n_features is not None and largest >= self.n_features:
            bad = int(np.argmax(indices >= self.n_features))
            reason = f"the index {parsed.indices[bad]}, but there are {self.n_features} features"
            raise self._entry_error(parsed, text, first_line, bad, reason)
        p = self.n_features if self.n_features is not None else largest + 1
        check_width(self, p)
        X = sparse.csr_array((parsed.values, indices, _narrow(parsed.indptr)), shape=(parsed.labels.size, p))
        X.eliminate_zeros()
        return RowBlock(X, parsed.labels)

    def _entry_error(self, parsed: Parsed, text: bytes, first_line: int, entry: int, reason: str) -> InputError:
        row = bisect_right(parsed.indptr, entry) - 1
        return self._line_error(text, first_line, int(parsed.offsets[row]), reason)


def _narrow(indptr: np.ndarray) -> np.ndarray:
    """Use int32 row pointers, as scipy prefers beside int32 indices; a block never holds 2**31 entries."""
    return indptr.astype(np.int32)
