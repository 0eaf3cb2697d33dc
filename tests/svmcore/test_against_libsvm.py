"""Every class of real data sets against LIBSVM: at tol 1e-6 the dual is no worse and the predictions are equal.

All but digits need the folder of data files in the environment variable MARGINFLOW_DATA.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, load_svmlight_file
from sklearn.svm import SVC as LibSVM

from svmcore import RBF, SMO, ResidentGram, Status, certify, classification

C = 10.0
SETS = {"svmguide1": "svmguide1.bz2", "pendigits": "pendigits.bz2", "a9a": "a9a.bz2", "cod-rna": "cod-rna.csv.bz2"}


def load(name: str):
    if name == "digits":
        return load_digits(return_X_y=True)
    folder = os.environ.get("MARGINFLOW_DATA")
    if not folder:
        pytest.skip(f"{name} needs the data folder in MARGINFLOW_DATA")
    path = Path(folder) / SETS[name]
    if name == "cod-rna":
        rows = np.loadtxt(path, delimiter=",", max_rows=5000)
        return rows[:, 1:], rows[:, 0]
    X, y = load_svmlight_file(str(path))
    return (X[:5000], y[:5000]) if name == "a9a" else (X.toarray(), y)


def scale_gamma(X) -> float:
    values = X.toarray() if sparse.issparse(X) else X
    return 1.0 / (values.shape[1] * values.var())


@pytest.mark.parametrize("name", ["digits", *SETS])
def test_classes__are_no_worse_than_libsvm(name: str) -> None:
    X, labels = load(name)
    kernel = RBF(scale_gamma(X))
    points = kernel.prepare(X, None, np.float64)
    gram = ResidentGram(kernel.block(points, points))
    classes = np.unique(labels)
    for label in classes[1:] if len(classes) == 2 else classes:
        y = np.where(labels == label, 1.0, -1.0)
        problem = classification(gram, y, C)
        ours = SMO(tol=1e-6).solve(problem)
        peer = LibSVM(C=C, gamma=kernel.gamma, tol=1e-6, cache_size=1000).fit(X, y)
        beta = np.zeros(len(y))
        beta[peer.support_] = peer.dual_coef_[0] if not sparse.issparse(X) else peer.dual_coef_.toarray()[0]
        theirs = certify(problem, beta).dual
        assert ours.status is Status.CONVERGED
        assert ours.certificate.dual >= theirs - 1e-6 * abs(theirs), f"{name}, class {label}"
        decided = np.abs(ours.decision) > 1e-3
        assert ((ours.decision > 0) == (peer.decision_function(X) > 0))[decided].all(), f"{name}, class {label}"
