"""Solutions without a proof: their outputs are those of their coefficients, whoever has computed them."""

import numpy as np
import pytest

from svmcore import SMO, Bias, ResidentGram, classification
from svmcore.state import MemoryState

from .. import problems


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("bias", list(Bias))
def test_estimate__tells_the_outputs_of_its_coefficients(monkeypatch, loss, bias):
    """With a ridge and a shift of K, which the scores that a solver keeps contain and outputs do not."""
    X, y = problems.overlapping()
    K = X @ X.T
    qp = classification(ResidentGram(K), y, 1.0, loss, bias)
    kept = SMO(tol=0.3).estimate(qp)
    outputs = K @ kept.beta
    told = kept.decision - kept.decision.mean()  # less the bias
    np.testing.assert_allclose(told, outputs - outputs.mean(), rtol=0.0, atol=1e-9 * np.abs(K).max())
    monkeypatch.setattr(MemoryState, "scores", lambda self: None)
    computed = SMO(tol=0.3).estimate(qp)
    np.testing.assert_array_equal(computed.beta, kept.beta)
    np.testing.assert_allclose(computed.decision, kept.decision, rtol=0.0, atol=1e-9 * np.abs(K).max())
