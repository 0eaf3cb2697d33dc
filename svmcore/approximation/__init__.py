"""Kernels of low rank: landmarks, the factor that they make, and what its answers prove of the exact machine."""

from svmcore.approximation.nystroem import Approximation, FeatureMap, Nystroem, factor_rows
from svmcore.approximation.proof import ExactBound, Proof

__all__ = ["Approximation", "ExactBound", "FeatureMap", "Nystroem", "Proof", "factor_rows"]
