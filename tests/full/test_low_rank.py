"""The exact machine's bounds of low rank, on as many rows as the exact solver still takes in seconds."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from benchmarks.cases import generated
from svmcore.estimator import SVC

pytestmark = pytest.mark.full


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans", "rpcholesky"])
def test_exact_bound__of_20_000_rows_holds_the_exact_optimum(landmarks):
    X, y = generated(20_000, 20)
    exact = SVC(C=10.0, gamma=0.05, tol=1e-5).fit(X, y).certificate_[0]
    low = SVC(C=10.0, gamma=0.05, approximation={"rank": 500, "landmarks": landmarks}).fit(X, y)
    bound, c = low.exact_bound_[0], low.model_.coef[0]
    assert exact.primal - exact.dual < 1e-4 * exact.primal
    assert bound.dual <= exact.primal
    assert bound.primal >= exact.dual
    norm2 = c @ rbf_kernel(low.landmarks_, gamma=0.05) @ c
    primal = 0.5 * norm2 + 10.0 * np.maximum(0.0, 1.0 - (2 * y - 1) * low.decision_function(X)).sum()
    assert bound.primal == pytest.approx(primal, rel=1e-4)
    assert bound.relative_gap == pytest.approx((bound.primal - bound.dual) / bound.primal)
