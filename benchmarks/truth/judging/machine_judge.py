"""What a set of coefficients is worth, by the definition of each machine, in NumPy and float64: no code of svmcore.

A problem is a dictionary: machine, rows X, targets y (-1 and +1 for nu-svc, ignored for one-class), c (n,) weights of
the boxes (C included), nu, epsilon, and kernel, gamma, degree, coef0.
"""

from typing import NamedTuple

import numpy as np

ROUNDING = 20 * np.finfo(float).eps  # of a sum of products, relative to the sum of their sizes
AT_BOUND = 1e-10  # relative: coefficients that were divided by a margin and multiplied again


def kernel_matrix(problem, X, Z):
    """K(x_i, z_j) (n, m), float64."""
    G = X @ Z.T
    if problem["kernel"] == "linear":
        return G
    if problem["kernel"] == "poly":
        return (problem["gamma"] * G + problem["coef0"]) ** problem["degree"]
    return np.exp(-problem["gamma"] * ((X[:, None] - Z) ** 2).sum(axis=-1))


class Judged(NamedTuple):
    """The values of a solution of the program, and the intervals that its multipliers may be in."""

    dual: float
    primal: float  # at the best bias, and margin or width of the tube
    kkt_gap: float
    infeasibility: float
    intervals: list  # (low, high) of each multiplier
    doubt: float  # what rounding may do to the values here
    score_doubt: float  # and to the scores that gap and intervals are made of


def judge(problem, coef):
    """`coef` (n,) of the program on the rows as they are, before any rescaling."""
    K = kernel_matrix(problem, problem["X"], problem["X"])
    p = variables(problem, coef)[0]
    sizes = np.abs(K) @ np.abs(coef) + np.abs(p[: len(coef)]) + np.abs(p[-len(coef) :])
    doubt = ROUNDING * float(sizes @ (np.abs(coef) + problem["c"]))
    return judge_outputs(problem, coef, K @ coef, coef @ K @ coef, doubt, ROUNDING * float(sizes.max()))


def judge_outputs(problem, coef, u, norm2, doubt, score_doubt):
    """The same where u = K coef (n,) and coef'K coef are known, with what rounding may do to values and scores."""
    p, lo, hi, groups, beta = variables(problem, coef)
    s = p - np.resize(u, len(p))
    gap, intervals = 0.0, []
    near = AT_BOUND if problem["machine"] == "nu-svc" else 0.0
    for at in groups:
        grows, shrinks = at & (beta < hi - near * np.abs(hi)), at & (beta > lo + near * np.abs(lo))
        low, high = s[grows].max(initial=-np.inf), s[shrinks].min(initial=np.inf)
        gap = max(gap, low - high)
        intervals.append((min(low, high), max(low, high)))
    values = dual(problem, coef, norm2), primal(problem, u, norm2)
    return Judged(*values, gap, missed(problem, coef), intervals, doubt, score_doubt)


def variables(problem, coef):
    """(p, lo, hi, masks of the groups, values) of the program of each machine."""
    machine, y, c = problem["machine"], problem["y"], problem["c"]
    zero, whole = np.zeros(len(c)), np.ones(len(c), bool)
    if machine == "one-class":
        return zero, zero, c, [whole], coef
    if machine == "nu-svc":
        return zero, np.where(y > 0, 0, -c), np.where(y > 0, c, 0), [y > 0, y < 0], coef
    width = problem["epsilon"] if machine == "svr" else 0.0
    both = np.concatenate([whole, whole])
    up = np.concatenate([whole, ~whole])
    values = np.concatenate([np.maximum(coef, 0), np.minimum(coef, 0)])
    p = np.concatenate([y - width, y + width])
    lo, hi = np.concatenate([zero, -c]), np.concatenate([c, zero])
    return p, lo, hi, [both] if machine == "svr" else [up, ~up], values


def dual(problem, coef, norm2):
    """Value of the dual, where coef'K coef is known."""
    if problem["machine"] in ("one-class", "nu-svc"):
        return -0.5 * norm2
    width = problem["epsilon"] if problem["machine"] == "svr" else 0.0
    return problem["y"] @ coef - width * np.abs(coef).sum() - 0.5 * norm2


def missed(problem, coef):
    """Worst violation of boxes and sums, relative to the sum of the boxes."""
    machine, y, c = problem["machine"], problem["y"], problem["c"]
    out = [np.max(np.abs(coef) - c)]
    total = problem.get("nu", 0.0) * c.sum()
    if machine == "one-class":
        out += [abs(coef.sum() - total), -coef.min()]
    if machine == "nu-svc":
        out += [abs(coef[y > 0].sum() - total / 2), abs(coef[y < 0].sum() + total / 2), -(coef * y).min()]
    if machine in ("svr", "nu-svr"):
        out.append(abs(coef.sum()))
    if machine == "nu-svr":
        out.append(np.abs(coef).sum() - total)
    return max(out) / c.sum()


def primal(problem, u, norm2):
    """Least over the bias, and over rho or epsilon: each half of a program with two groups has a problem of its own."""
    machine, y, c = problem["machine"], problem["y"], problem["c"]
    share = problem.get("nu", 0.0) * c.sum()
    if machine == "one-class":
        return 0.5 * norm2 + least(lambda rho: c @ np.maximum(0, rho - u) - share * rho, u)
    if machine == "nu-svc":  # t is rho - b of the one class and rho + b of the other
        halves = [(c[y == sign], sign * u[y == sign]) for sign in (1, -1)]
        return 0.5 * norm2 + sum(
            least(lambda t, c=c, f=f: c @ np.maximum(0, t - f) - 0.5 * share * t, f) for c, f in halves
        )
    r = y - u
    if machine == "svr":
        width = problem["epsilon"]
        kinks = np.concatenate([r - width, r + width])
        return 0.5 * norm2 + least(lambda b: c @ np.maximum(0, np.abs(r - b) - width), kinks)
    above = least(lambda t: c @ np.maximum(0, r - t) + 0.5 * share * t, r)  # t is b + epsilon
    below = least(lambda t: c @ np.maximum(0, t - r) - 0.5 * share * t, r)  # and b - epsilon
    return 0.5 * norm2 + above + below


def least(value, kinks):
    """Minimum of a convex function that is linear between its kinks."""
    return min(value(t) for t in kinks)


def program_coef(problem, model, places):
    """(coefficients (n,) of the program, what the model divided them by): nu-SVC's sums tell its rho."""
    coef = np.zeros(len(problem["y"]))
    coef[places] = model.dual_coef_[0]
    if problem["machine"] != "nu-svc":
        return coef, 1.0
    rho = problem["nu"] * problem["c"].sum() / np.abs(coef).sum()
    return coef * rho, rho
