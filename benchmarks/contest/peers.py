"""The solvers on trial behind the same calls; imports happen inside, so that a missing one harms none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.contest.judge import Answer

OURS = "marginflow"


@dataclass(frozen=True)
class Spec:
    """What every solver is asked for: the machine, the stop (m - M <= tol) and the cache in MB."""

    C: float
    gamma: float
    tol: float
    cache_mb: int


class Peer(ABC):
    """A solver: `given` puts the table into its form, the clock sees `fit`, `answer` reads the result."""

    name: ClassVar[str]
    package: ClassVar[str]
    module: ClassVar[str]
    dtype: ClassVar[type] = np.float64
    forms: ClassVar[tuple[str, ...]] = ("dense", "csr")

    def given(self, X: NDArray[np.float32], y: NDArray, form: str) -> tuple[Any, NDArray]:
        """X (n, p) and y (n,) in the form, precision and layout that cost the solver no conversion."""
        X = np.ascontiguousarray(X, dtype=self.dtype)
        return (sparse.csr_matrix(X) if form == "csr" else X), y

    def load(self) -> None:
        """Import the library, which no fit is charged for."""
        __import__(self.module)

    @abstractmethod
    def fit(self, data: Any, spec: Spec) -> Any:
        """Train on what `given` returned."""

    @abstractmethod
    def answer(self, model: Any, data: Any) -> Answer:
        """Support, coefficients and bias; for two classes the coefficient's sign is the row's label."""

    def predict(self, model: Any, X_test: NDArray[np.float32], form: str) -> NDArray:
        """Codes (m,), by the solver's own prediction; asked of one-vs-one only."""
        return model.predict(self.given(X_test, np.zeros(len(X_test)), form)[0])

    def version(self) -> str:
        """Installed version of the package."""
        return metadata.version(self.package)


def _signed(support: Any, coef: Any, bias: Any, y: NDArray) -> Answer:
    """Positive for code 1, whichever class the library took as positive."""
    support, coef = np.asarray(support, dtype=np.intp), np.asarray(coef, dtype=np.float64).reshape(1, -1)
    bias = np.asarray(bias, dtype=np.float64).reshape(-1)
    sign = 1.0 if coef[0] @ np.where(y[support] == 1, 1.0, -1.0) >= 0 else -1.0
    return Answer(support, sign * coef, sign * bias)


class _SklearnLike(Peer):
    """Anything with scikit-learn's `SVC` attributes."""

    @abstractmethod
    def estimator(self, spec: Spec) -> Any:
        """Build an unfitted SVC."""

    def fit(self, data: Any, spec: Spec) -> Any:
        """Fit the estimator."""
        return self.estimator(spec).fit(*data)

    def answer(self, model: Any, data: Any) -> Answer:
        """Read scikit-learn's attributes."""
        coef = model.dual_coef_.toarray() if sparse.issparse(model.dual_coef_) else model.dual_coef_
        if len(coef) > 1:
            return Answer(np.asarray(model.support_, np.intp), np.asarray(coef, np.float64), model.intercept_)
        return _signed(model.support_, coef, model.intercept_, data[1])


class Marginflow(_SklearnLike):
    """Our own: all classes share one kernel."""

    name = OURS
    package = "marginflow"
    module = "svmcore.estimator"
    dtype = np.float32

    def __init__(self, multi_class: str = "ovr") -> None:
        self.multi_class = multi_class

    def estimator(self, spec: Spec) -> Any:
        """Build its SVC."""
        from svmcore.estimator import SVC

        return SVC(
            C=spec.C,
            gamma=spec.gamma,
            kernel="rbf",
            tol=spec.tol,
            cache_size=spec.cache_mb,
            multi_class=self.multi_class,
        )


class ScikitLearn(_SklearnLike):
    """LIBSVM inside scikit-learn: one thread, float64."""

    name = "scikit-learn"
    package = "scikit-learn"
    module = "sklearn.svm"

    def estimator(self, spec: Spec) -> Any:
        """Build its SVC."""
        from sklearn.svm import SVC

        return SVC(C=spec.C, gamma=spec.gamma, tol=spec.tol, cache_size=spec.cache_mb)


class Intelex(_SklearnLike):
    """oneDAL through scikit-learn-intelex: all threads, float32."""

    name = "scikit-learn-intelex"
    package = "scikit-learn-intelex"
    module = "sklearnex.svm"
    dtype = np.float32

    def estimator(self, spec: Spec) -> Any:
        """Build its SVC."""
        from sklearnex.svm import SVC

        return SVC(C=spec.C, gamma=spec.gamma, tol=spec.tol, cache_size=spec.cache_mb)


class LibSVM(Peer):
    """The original; its own node arrays are built before the clock starts."""

    name = "libsvm"
    package = "libsvm-official"
    module = "libsvm.svmutil"
    forms = ("csr",)

    def given(self, X: NDArray[np.float32], y: NDArray, form: str) -> tuple[Any, NDArray]:
        """Build LIBSVM's nodes."""
        from libsvm.svmutil import svm_problem

        return svm_problem(y.astype(np.float64), sparse.csr_matrix(X, dtype=np.float64)), y

    def fit(self, data: Any, spec: Spec) -> Any:
        """Train with the options of `svm-train`."""
        from libsvm.svmutil import svm_parameter, svm_train

        options = f"-s 0 -t 2 -c {spec.C!r} -g {spec.gamma!r} -e {spec.tol!r} -m {spec.cache_mb} -q"
        return svm_train(data[0], svm_parameter(options))

    def answer(self, model: Any, data: Any) -> Answer:
        """Read LIBSVM's model, whose indices start at 1."""
        support = np.array(model.get_sv_indices()) - 1
        return _signed(support, model.get_sv_coef(), -model.rho[0], data[1])


class ThunderSVM(_SklearnLike):
    """ThunderSVM's last CPU wheel."""

    name = "thundersvm"
    package = "thundersvm-cpu"
    module = "thundersvm"
    dtype = np.float32

    def estimator(self, spec: Spec) -> Any:
        """Build its SVC."""
        from thundersvm import SVC

        return SVC(kernel="rbf", C=spec.C, gamma=spec.gamma, tol=spec.tol, max_mem_size=spec.cache_mb)

    def answer(self, model: Any, data: Any) -> Answer:
        """Turn its bias, which enters with the other sign than scikit-learn's."""
        return _signed(model.support_, model.dual_coef_, -np.asarray(model.intercept_), data[1])


class OneVsRest(Peer):
    """A binary peer, once per class: scikit-learn's OneVsRestClassifier without its overhead."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.name, self.package, self.module, self.forms = peer.name, peer.package, peer.module, peer.forms

    def given(self, X: NDArray[np.float32], y: NDArray, form: str) -> tuple[Any, NDArray]:
        """Make the table once, in the peer's form; the targets are made per class."""
        return self.peer.given(X, y, form)

    def fit(self, data: Any, spec: Spec) -> list[Any]:
        """One model per class."""
        X, y = data
        return [self.peer.fit((X, (y == c).astype(np.int64)), spec) for c in range(int(y.max()) + 1)]

    def answer(self, model: list[Any], data: Any) -> Answer:
        """Join the classes' machines over the union of their support vectors."""
        X, y = data
        parts = [self.peer.answer(one, (X, (y == c).astype(np.int64))) for c, one in enumerate(model)]
        support = np.unique(np.concatenate([part.support for part in parts]))
        coef = np.zeros((len(parts), len(support)))
        for row, part in zip(coef, parts, strict=True):
            row[np.searchsorted(support, part.support)] = part.coef[0]
        return Answer(support, coef, np.concatenate([part.bias for part in parts]))


BINARY = {cls.name: cls for cls in (Marginflow, Intelex, ScikitLearn, LibSVM, ThunderSVM)}


def peer_of(name: str, task: str) -> Peer:
    """Return the peer for a task: binary, ovr (ours: one shared kernel; the others: a loop) or ovo (built in)."""
    if name == OURS:
        return Marginflow("ovo" if task == "ovo" else "ovr")
    peer = BINARY[name]()
    return OneVsRest(peer) if task == "ovr" else peer
