"""Where columns of K come from: in memory, computed on demand, cached, or a pair of classes at a time."""

from svmcore.sources.base import Factor, Lookup, Served, Source, matvec, served
from svmcore.sources.cached import CachedColumns
from svmcore.sources.computed import ComputedColumns
from svmcore.sources.factor import FactorRows, LinearRows
from svmcore.sources.pairs import PairGrams
from svmcore.sources.resident import ResidentGram, resident_gram
from svmcore.sources.row_map import RowMap
from svmcore.sources.running import RunningProduct, served_after

__all__ = [
    "CachedColumns",
    "ComputedColumns",
    "Factor",
    "FactorRows",
    "LinearRows",
    "Lookup",
    "PairGrams",
    "ResidentGram",
    "RowMap",
    "RunningProduct",
    "Served",
    "Source",
    "matvec",
    "resident_gram",
    "served",
    "served_after",
]
