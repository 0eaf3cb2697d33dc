"""Rows of data as kernels take them: prepared, on a lattice of bytes, and without copies."""

from svmcore.points.identical import Merged, merge_rows, row_hash
from svmcore.points.prepared import Extent, Floats, Moments, Points, Rows, check_fit, inner_products

__all__ = [
    "Extent",
    "Floats",
    "Merged",
    "Moments",
    "Points",
    "Rows",
    "check_fit",
    "inner_products",
    "merge_rows",
    "row_hash",
]
