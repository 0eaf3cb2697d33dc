"""A trained model: support vectors shared by all its binary problems, and how to predict with them."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse

from svmcore.errors import InputError
from svmcore.kernels import Precomputed
from svmcore.kernels.base import Kernel
from svmcore.model.multiclass import is_told, vote
from svmcore.model.outputs import BLOCK, Outputs
from svmcore.model.probability import class_probabilities, sigmoid
from svmcore.points import Floats, Rows
from svmcore.runtime.threads import one_blas_thread, split_range
from svmcore.solution import Solution
from svmcore.tasks.base import Answers, Task

__all__ = ["Model", "Part", "assemble", "model_of", "model_of_rows", "support_of"]

FEW = 1 << 20  # products of two numbers that are not worth bounds of quick values, nor a second thread


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """f_k(x) = sum_m coef[k, m] K(x_m, x) + bias[k] for k binary problems over shared support vectors.

    Attributes
    ----------
    kernel
        With numeric parameters.
    support_vectors
        (m, p) rows, dense or CSR; every row is a support vector of at least one problem.
    coef
        (k, m) float64, the beta of `svmcore.qp`; 0 where the row does not support problem k.
    bias
        (k,) float64, added.
    classes
        (n_classes,) labels as they came; none of a regression and of a one-class model.
    scheme
        "ovr" or "ovo"; two classes are one problem with classes[1] positive.
    machine
        Name of the task that it was trained for.
    sigmoids
        (k, 2) Platt's A and B of each problem, where probabilities were asked for.
    """

    kernel: Kernel
    support_vectors: Rows
    coef: Floats
    bias: Floats
    classes: Floats
    scheme: str = "ovr"
    machine: str = "svc"
    sigmoids: Floats | None = None

    @property
    def answers(self) -> Answers:
        """What it tells: "labels", "values" or "novelty"."""
        return Task.named(self.machine).answers

    @cached_property
    def _outputs(self) -> Outputs:
        return Outputs(self.kernel, self.support_vectors, self.coef)

    def decision_function(self, X: Rows) -> Floats:
        """Decision values (n, k) of rows `X` (n, p), in float64.

        Whole blocks of `svmcore.model.outputs.BLOCK` rows have the same bits whatever is asked for with them.

        Raises
        ------
        InputError
            If `X` has another number of features.
        """
        return self._in_blocks(X, self._outputs.add)

    def decisions(self, X: Rows) -> Floats:
        """Decision values (n, k) of rows `X` (n, p) that tell what those of `decision_function` tell, sooner.

        They are computed from bytes or in float32, within a bound. Rows whose answer hangs on less are computed again
        in float64.
        """
        if self.answers == "values" or X.shape[0] * self._products <= FEW:
            return self.decision_function(X)
        return self._in_blocks(X, self._settle, quick=True)

    @property
    def _products(self) -> int:
        """Of two numbers, for one row."""
        m, p = self.support_vectors.shape
        return max(1, p * (len(self.bias) if self.kernel.is_linear else m))

    def _settle(self, X: Rows, out: Floats) -> None:
        quick = out.copy()
        error = self._outputs.add_quickly(X, quick)
        again = np.arange(len(out)) if error is None else np.flatnonzero(~self._is_told(quick, error))
        exact = out[again]
        if len(again):
            self._outputs.add(X if len(again) == len(out) else X[again], exact)
        out[...] = quick
        out[again] = exact

    def _is_told(self, decision: Floats, error: Floats) -> Floats:
        return is_told(decision, error, len(self.classes), self.scheme)

    def _in_blocks(self, X: Rows, add: Callable[[Rows, Floats], None], quick: bool = False) -> Floats:
        """The bias and what `add` adds to it, on all threads; the bits do not depend on how many there are.

        `quick` values are told sooner in larger blocks.
        """
        if X.shape[1] != self.support_vectors.shape[1]:
            raise InputError(f"the model was trained on {self.support_vectors.shape[1]} features; given {X.shape[1]}")
        X = sparse.csr_matrix(X) if sparse.issparse(X) else np.asarray(X)  # other sparse forms have no row slices
        out = np.tile(self.bias, (X.shape[0], 1))
        if not self.support_vectors.shape[0] or not X.shape[0]:
            return out
        self._outputs.prepare(quick)
        block = self._outputs.quick_rows if quick else BLOCK

        def part(start: int, stop: int) -> None:
            for lo in range(start, stop, block):
                some = slice(lo, min(lo + block, stop))
                add(X[some], out[some])

        split_range(X.shape[0], part, least=1 + FEW // self._products, grain=self._outputs.grain)
        return out

    def predict(self, X: Rows) -> Floats:
        """Labels (n,) of rows `X` (n, p); of a regression values (n,) or (n, k); of one class 1 inside, -1 outside."""
        decision = self.decisions(X)
        if self.answers == "values":
            return decision if len(self.bias) > 1 else decision[:, 0]
        if self.answers == "novelty":
            return np.where(decision[:, 0] >= 0, 1, -1)
        return self.classes[vote(decision, len(self.classes), self.scheme)]

    def probabilities(self, decision: Floats) -> Floats | None:
        """Probabilities (n, n_classes) where decision values are (n, k); None of a model without sigmoids."""
        if self.sigmoids is None:
            return None
        return class_probabilities(sigmoid(decision, *self.sigmoids.T), len(self.classes), self.scheme)

    @property
    def weights(self) -> Floats | None:
        """W (k, p) of a linear model, f(x) = w'x + bias; None for other kernels."""
        if self.kernel.name != "linear":
            return None
        with one_blas_thread():
            return np.asarray(self.coef @ self.support_vectors)


class Part(NamedTuple):
    """One problem of a model: f(x) = (sum over its rows of beta K(row, x) + bias) / scale; a row may come twice."""

    rows: Floats
    beta: Floats
    bias: float
    scale: float = 1.0

    def coefficients(self, support: Floats) -> Floats:
        """Coefficients (len(support),) in the model whose rows, ascending, are `support`; its own are among them."""
        at = np.searchsorted(support, self.rows)
        return np.bincount(at, weights=self.beta, minlength=len(support)) / self.scale


def support_of(parts: Sequence[Part]) -> Floats:
    """Rows (m,) that support any of the problems, ascending."""
    rows = np.concatenate([part.rows for part in parts])
    supports = np.zeros(rows.max(initial=-1) + 1, dtype=bool)
    supports[rows] = True
    return np.flatnonzero(supports)


def model_of(
    kernel: Kernel,
    vectors: Callable[[Floats], Rows],
    parts: Sequence[Part],
    classes: Floats,
    scheme: str = "ovr",
    machine: str = "svc",
    sigmoids: Floats | None = None,
) -> tuple[Model, Floats]:
    """One `Model` from the answers of all problems on the same rows.

    Parameters
    ----------
    vectors
        Gives the support vectors at rows (m,), ascending.

    Returns
    -------
    (Model, support)
        `support` (m,): which rows are its support vectors.
    """
    support = support_of(parts)
    coef = np.array([part.coefficients(support) for part in parts])
    bias = np.array([part.bias / part.scale for part in parts])
    return Model(kernel, vectors(support), coef, bias, np.asarray(classes), scheme, machine, sigmoids), support


def model_of_rows(
    kernel: Kernel,
    vectors: Callable[[Floats], Rows],
    coef: Floats,
    bias: Floats,
    scale: Floats,
    classes: Floats,
    scheme: str = "ovr",
    machine: str = "svc",
    sigmoids: Floats | None = None,
) -> tuple[Model, Floats]:
    """As `model_of`, from coefficients (k, n) of all rows, biases (k,), and what both are divided by (k,)."""
    support = np.flatnonzero((coef != 0.0).any(axis=0))
    coef, bias = coef.take(support, axis=1) / scale[:, None], bias / scale
    return Model(kernel, vectors(support), coef, bias, np.asarray(classes), scheme, machine, sigmoids), support


def assemble(
    kernel: Kernel,
    X: Rows,
    solutions: Sequence[Solution],
    classes: Floats,
    scheme: str = "ovr",
) -> tuple[Model, Floats]:
    """As `model_of`, from the solutions of classifiers on rows `X` (n, p), or on a K (n, n) that was given."""

    def vectors(support: Floats) -> Rows:
        return Precomputed.units(support, X.shape[1]) if isinstance(kernel, Precomputed) else X[support]

    coef, bias = np.array([s.beta for s in solutions]), np.array([s.bias for s in solutions])
    return model_of_rows(kernel, vectors, coef, bias, np.ones(len(bias)), classes, scheme)
