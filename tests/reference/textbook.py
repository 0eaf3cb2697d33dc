"""The stochastic solvers as their pseudo-code has them: plain Python, one number at a time, fed with given draws."""

import itertools

import numpy as np

__all__ = ["dual_ascent", "pair", "perceptron", "second_order_smo", "sgd", "simplified_smo"]


def f(K, alpha, y, b, k):
    return sum(alpha[i] * y[i] * K[i][k] for i in range(len(y))) + b


def simplified_smo(K, y, C, tau, draws, max_steps, min_change):
    """alpha and b after `max_steps` steps of simplified SMO; `draws` yields j among the other n - 1 rows."""
    n = len(y)
    alpha, b, steps = [0.0] * n, 0.0, 0
    for i in itertools.cycle(range(n)):
        E_i = f(K, alpha, y, b, i) - y[i]
        if not ((y[i] * E_i < -tau and alpha[i] < C) or (y[i] * E_i > tau and alpha[i] > 0)):
            continue
        j = next(draws)
        j += j >= i
        E_j = f(K, alpha, y, b, j) - y[j]
        if y[i] != y[j]:
            L, H = max(0.0, alpha[j] - alpha[i]), min(C, C + alpha[j] - alpha[i])
        else:
            L, H = max(0.0, alpha[i] + alpha[j] - C), min(C, alpha[i] + alpha[j])
        eta = K[i][i] + K[j][j] - 2 * K[i][j]
        new_j = min(max(alpha[j] + y[j] * (E_i - E_j) / eta, L), H)
        if abs(new_j - alpha[j]) < min_change:
            continue
        new_i = alpha[i] + y[i] * y[j] * (alpha[j] - new_j)
        b_i = b - E_i - y[i] * (new_i - alpha[i]) * K[i][i] - y[j] * (new_j - alpha[j]) * K[i][j]
        b_j = b - E_j - y[i] * (new_i - alpha[i]) * K[i][j] - y[j] * (new_j - alpha[j]) * K[j][j]
        free_i, free_j = 0 < new_i < C, 0 < new_j < C
        b = b_i if free_i else b_j if free_j else (b_i + b_j) / 2
        alpha[i], alpha[j] = new_i, new_j
        steps += 1
        if steps == max_steps:
            return alpha, b
    raise AssertionError


def dual_ascent(K, y, C, orders):
    """alpha after one epoch per order of `orders` (Zaki and Meira, Algorithm 23.1)."""
    alpha = [0.0] * len(y)
    for order in orders:
        for k in order:
            alpha[k] += (1 - y[k] * f(K, alpha, y, 0.0, k)) / K[k][k]
            alpha[k] = min(max(alpha[k], 0.0), C)
    return alpha


def perceptron(X, y, passes):
    """w after `passes` passes, and how often each row was wrong."""
    w, wrong = [0.0] * len(X[0]), [0] * len(y)
    for _ in range(passes):
        for i, x in enumerate(X):
            if y[i] * sum(a * b for a, b in zip(w, x, strict=True)) <= 0:
                w = [a + y[i] * b for a, b in zip(w, x, strict=True)]
                wrong[i] += 1
    return w, wrong


def sgd(X, y, C, orders):
    """w after every order of `orders`: w <- (1 - eta) w + eta n C y x, eta = e / the sum of all e so far."""
    n, w, total = len(y), [0.0] * len(X[0]), 0.0
    history = []
    for epoch, order in enumerate(orders, start=1):
        for i in order:
            total += epoch
            eta = epoch / total
            short = y[i] * sum(a * b for a, b in zip(w, X[i], strict=True)) < 1
            w = [(1 - eta) * a + (eta * n * C * y[i] * b if short else 0.0) for a, b in zip(w, X[i], strict=True)]
        history.append(w)
    return history


def pair(K, ridge, p, beta, lo, hi, i, j):
    """beta after the best step on variables i and j of a program whose pairs have curvature, and the step."""
    s = p - K @ beta - ridge * beta
    eta = K[i, i] + K[j, j] - 2.0 * K[i, j] + ridge[i] + ridge[j]
    t, after = (s[i] - s[j]) / eta, beta.copy()
    for v, sign in ((i, 1.0), (j, -1.0)):
        t = float(np.clip(t, *sorted((sign * (lo[v] - beta[v]), sign * (hi[v] - beta[v])))))
    for v, move in ((i, t), (j, -t)):
        after[v] = hi[v] if move >= hi[v] - beta[v] else lo[v] if move <= lo[v] - beta[v] else beta[v] + move
    return after, t


def second_order_smo(K, ridge, p, beta, lo, hi, codes, max_steps):
    """beta after at most `max_steps` steps (Fan, Chen, Lin 2005, WSS 2, in the group that is furthest off).

    Gains are compared by their logarithms, which are straight lines between powers of two.
    """
    for step in range(max_steps):
        s = p - K @ beta - ridge * beta
        worst = (0.0, 0, 0)
        for g in np.unique(codes):
            up = np.where((codes == g) & (beta < hi), s, -np.inf)
            low = np.where((codes == g) & (beta > lo), s, np.inf)
            if up.max() - low.min() > worst[0]:
                worst = (up.max() - low.min(), g, np.argmax(up))
        gap, g, i = worst
        if gap <= 1e-9:
            return beta, step
        able = (codes == g) & (beta > lo) & (s < s[i])
        eta = K[i, i] + K.diagonal() - 2.0 * K[i] + ridge[i] + ridge
        gain = np.where(able, log2(np.where(able, s[i] - s, 1.0)) - 0.5 * log2(np.where(able, eta, 1.0)), -np.inf)
        beta, _ = pair(K, ridge, p, beta, lo, hi, i, int(np.argmax(gain)))
    return beta, max_steps


def log2(x):
    """Logarithm of float32 numbers above 0, to base 2: right at its powers, and straight between them."""
    fraction, exponent = np.frexp(np.float32(x).astype(np.float64))
    return exponent - 2.0 + 2.0 * fraction
