"""What an answer is worth: gap, infeasibility, primal at its best bias and dual, from beta and the rows alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.truth.judging.scores import EPS, SHARE, Scores, Sizes, scores_of, sizes_of
from benchmarks.truth.problems.design import TOL
from benchmarks.truth.problems.program import Program, kernel_values

Float = NDArray[np.float64]
BISECTIONS = 200
RUNAWAY = 1e100  # coefficients of a program without a least value, after too many steps


@dataclass(frozen=True)
class Truth:
    """One answer, judged at its centred scores; `plain_...` are those of the kernel as it is, not centred.

    `loads`: eps64 times the largest kernel value times ||beta||_1, as it is and centred: what float64 can tell.
    `rounding`: what the last digit of every K beta in float64 can cost the primal, relative to it.
    """

    kkt_gap: float
    primal: float
    dual: float
    infeasibility: float
    plain_gap: float
    plain_primal: float
    plain_dual: float
    beta_l1: float
    n_support: int
    load: float
    load_centred: float
    rounding: float
    precision: str
    error: float


def judge(program: Program, beta: Float, finest: bool = False) -> Truth:
    """Judge `beta` (n,).

    Examples
    --------
    >>> X, y = np.array([[-1.0], [1.0]]), np.array([-1.0, 1.0])
    >>> truth = judge(Program("linear", 1.0, X, y, 10.0), np.array([-0.5, 0.5]))
    >>> truth.kkt_gap, truth.primal, truth.dual
    (0.0, 0.5, 0.5)
    """
    sizes = sizes_of(program)
    if not abs(beta).max(initial=0.0) < RUNAWAY:
        return _nothing(len(beta))
    found = scores_of(program, beta, sizes, finest)
    kkt_gap, primal, dual = _values(program, beta, found.centred, found.norm2)
    plain_gap, plain_primal, plain_dual = _values(program, beta, *_plain(found, beta))
    l1 = float(abs(beta).sum())
    load, load_centred = _loads(program, sizes, l1)
    return Truth(
        kkt_gap=kkt_gap,
        primal=primal,
        dual=dual,
        infeasibility=_infeasibility(program, beta),
        plain_gap=plain_gap,
        plain_primal=plain_primal,
        plain_dual=plain_dual,
        beta_l1=l1,
        n_support=int(np.count_nonzero(beta)),
        load=load,
        load_centred=load_centred,
        rounding=_rounding(program, beta, found.centred) / primal if primal > 0.0 else 0.0,
        precision=found.precision,
        error=found.error,
    )


def _nothing(n: int) -> Truth:
    """The worth of no answer."""
    return Truth(*[np.inf] * 3, np.inf, *[np.inf] * 3, np.inf, n, *[np.inf] * 3, "none", np.inf)


def bounded(program: Program) -> bool:
    """Whether the program has a least value for certain: a box, a kernel psd by construction, or one found convex.

    Squared hinge has no box, so that a direction of negative curvature can be followed for ever.
    """
    if program.psd or program.loss == "hinge":
        return True
    K = kernel_values(program.kernel, program.gamma, program.X, program.X)
    K[np.diag_indices(len(K))] += program.ridge
    K -= K.mean(axis=0)
    K -= K.mean(axis=1)[:, None]
    try:
        np.linalg.cholesky(K + 1.0 / len(K))
    except np.linalg.LinAlgError:
        return False
    return True


def _loads(program: Program, sizes: Sizes, l1: float) -> tuple[float, float]:
    return EPS * sizes.k_max * l1, EPS * sizes.k_max_centred * l1


def _rounding(program: Program, beta: Float, f: Float) -> float:
    """Sum of eps64 abs(f_i) times the slope of the loss of row i, which a support vector may have."""
    slope = np.where(beta != 0.0, program.cost, 0.0) if program.loss == "hinge" else np.abs(beta)
    return EPS * float(slope @ np.abs(f))


def can_tell(load: float) -> bool:
    """Whether float64 can state the gap to tol / 50."""
    return load <= TOL / SHARE


def _plain(found: Scores, beta: Float) -> tuple[Float, float]:
    """Scores and beta'K beta of the kernel as it is, up to a constant in the scores that no gap or bias sees."""
    norm2 = found.norm2 + 2.0 * found.sum_beta * float(beta @ found.at_mean) + found.sum_beta**2 * found.mean2
    return found.centred + found.sum_beta * found.at_mean, norm2


def _values(program: Program, beta: Float, f: Float, norm2: float) -> tuple[float, float, float]:
    """(KKT gap, primal, dual) where K beta = f up to a constant."""
    ridge = program.ridge
    score = program.y - f - ridge * beta
    lower, upper = np.minimum(program.y * program.upper, 0.0), np.maximum(program.y * program.upper, 0.0)
    rising = score[beta < upper].max(initial=-np.inf)
    falling = score[beta > lower].min(initial=np.inf)
    dual = math.fsum(program.y * beta) - 0.5 * norm2 - 0.5 * math.fsum(ridge * beta * beta)
    return max(0.0, float(rising - falling)), 0.5 * norm2 + least_loss(program, f), dual


def _infeasibility(program: Program, beta: Float) -> float:
    """Worst violation of the box and of the sum."""
    alpha = program.y * beta
    return max(0.0, -float(alpha.min()), float((alpha - program.upper).max()), abs(math.fsum(beta)))


def least_loss(program: Program, f: Float) -> float:
    """Least value over b of sum_i C_i loss(y_i (f_i + b))."""
    t = program.y - f
    b = _hinge_bias(program, t) if program.loss == "hinge" else _squared_bias(program, t)
    miss = np.maximum(0.0, program.y * (t - b))
    return math.fsum(program.cost * (miss if program.loss == "hinge" else miss * miss))


def _hinge_bias(program: Program, t: Float) -> float:
    """The slope in b rises by C_i at each t_i, from -(sum of C over the positive rows)."""
    order = np.argsort(t)
    passed = np.cumsum(program.cost[order])
    k = int(np.searchsorted(passed, program.cost[program.y > 0].sum()))
    return float(t[order[min(k, len(t) - 1)]])


def _squared_bias(program: Program, t: Float) -> float:
    """Bisect the increasing derivative; between two kinks it is linear, so the last step is exact."""
    low, high = float(t.min()), float(t.max())
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        short = program.y * (t - middle) > 0
        slope = float(program.cost[short] @ (middle - t[short]))
        low, high = (middle, high) if slope < 0 else (low, middle)
    short = program.y * (t - 0.5 * (low + high)) > 0
    weight = float(program.cost[short].sum())
    return float(program.cost[short] @ t[short]) / weight if weight > 0 else 0.5 * (low + high)
