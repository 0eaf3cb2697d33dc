"""What is known of K beta where a solve begins: what it adds is known too, and its proof reads no column for that."""

import numpy as np

from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.sources import Served
from svmcore.sources.base import ROUNDED

__all__ = ["begun"]

NO_LESS = 1.001  # times the largest K_ii as it is served: abs(K_ij) is no larger, and K_ii was rounded


def begun(qp: SignedQP, beta: Floats, score: Floats | None, error: float) -> Served | None:
    """K beta (n,) at the `beta` (m,) of a start whose scores (m,) are right within `error`; None if nobody knows it."""
    if qp.rows is not None:
        return None
    none = np.zeros(qp.m)
    if not beta.any():
        return Served(beta.copy(), none, none, 0.0, 0.0)
    if score is None or not (qp.source.psd and error < np.inf):
        return None
    length, ridge = float(np.abs(beta).sum()), qp.ridge * beta
    summands = (qp.p, score, ridge, np.array([qp.shift * length]))
    error += ROUNDED * sum(float(np.abs(each).max(initial=0.0)) for each in summands)
    before = NO_LESS * float(qp.diagonal.max(initial=0.0)) * length
    return Served(beta.copy(), qp.p - score - ridge - qp.shift * beta.sum(), none, 0.0, 0.0, error, before)
