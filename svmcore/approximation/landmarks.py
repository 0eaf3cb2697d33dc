"""Which rows, or means of rows, stand for all in an approximation of low rank."""

import numpy as np
from scipy import linalg, sparse

from svmcore.errors import InputError
from svmcore.kernels.base import Kernel
from svmcore.points import Floats, Points, Rows, inner_products
from svmcore.runtime.threads import split_range

__all__ = ["LANDMARKS", "landmarks_of"]

LANDMARKS = ("uniform", "kmeans", "rpcholesky")
SAMPLED = 10  # rows for each landmark that are looked at
ROUNDS = 20  # blocks in which random pivots are drawn: the diagonal that is left is looked at before each
MEANS = 4  # rounds of k-means: landmarks need no optimum
BLOCK = 512  # rows whose products with all means stay in cache
SPENT = 1e-12  # share of the diagonal's sum below which nothing is left to approximate


def landmarks_of(name: str, kernel: Kernel, X: Rows, rank: int, seed: int) -> tuple[Rows, Floats | None]:
    """At most `rank` landmarks (r, p) for rows `X` (n, p), and their places (r,) if they are rows of it.

    A function of the rows in their order and the seed.

    References
    ----------
    Williams, Seeger (2001), Using the Nystroem method to speed up kernel machines, NIPS 13 ("uniform"); Zhang, Tsang,
    Kwok (2008), Improved Nystroem low-rank approximation and error analysis, ICML ("kmeans"); Chen, Epperly, Tropp,
    Webber (2022), Randomly pivoted Cholesky, arXiv 2207.06503, algorithm 2.2 by blocks ("rpcholesky").
    """
    rng, n = np.random.default_rng(seed), X.shape[0]
    sample = np.sort(rng.choice(n, min(n, rank if name == "uniform" else SAMPLED * rank), replace=False))
    if name == "uniform" or len(sample) <= rank:
        return X[sample], sample
    if name == "kmeans":
        return _means(X[sample], rank, rng), None
    places = sample[random_pivots(kernel, kernel.prepare_gram(X[sample], np.float64), rank, rng)]
    return X[places], places


def _means(X: Rows, count: int, rng: np.random.Generator) -> Rows:
    """Lloyd's k-means; of rows on a lattice the nearest on it: products of bytes are fast, and exact.

    Libraries take one core, or sum on several in an order that depends on how many.
    """
    if sparse.issparse(X):
        raise InputError("landmarks 'kmeans' are means of rows, which sparse rows have none of; take rpcholesky")
    points, means = Points.for_gram(X), X[rng.choice(len(X), count, replace=False)]
    for _ in range(MEANS):
        means = points.nearest(_means_of_clusters(X, _closest(points, means), means))
    return means


def _closest(points: Points, means: Floats) -> Floats:
    """The closest of the `means` (k, p) to each of n points, (n,)."""
    marks, found = points.alike(means), np.empty(len(points), np.int64)
    assert marks is not None, "they are rows, or nearest to such"
    half = (0.5 * marks.moments.norm2).astype(np.float32)

    def part(start: int, stop: int) -> None:
        values = np.empty((BLOCK, len(marks)), np.float32)
        for lo in range(start, stop, BLOCK):
            hi = min(lo + BLOCK, stop)
            products = inner_products(points.rows(lo, hi), marks, values[: hi - lo])
            products -= half
            found[lo:hi] = np.argmax(products, axis=1)

    split_range(len(points), part, least=BLOCK, grain=BLOCK)
    return found


def _means_of_clusters(X: Rows, cluster: Floats, before: Rows) -> Floats:
    """Means (k, p) of the rows of each cluster; one without rows stays where it was `before`."""
    sizes = np.bincount(cluster, minlength=len(before))
    members = sparse.csr_matrix((1.0 / sizes[cluster], (cluster, np.arange(len(X)))), (len(before), len(X)))
    return np.where(sizes[:, None] > 0, members @ X, before)


def random_pivots(kernel: Kernel, points: Points, rank: int, rng: np.random.Generator) -> Floats:
    """At most `rank` rows, each drawn with a probability in proportion to what those before leave of its K_ii.

    >>> from svmcore.kernels import Linear
    >>> points = Linear().prepare(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), None, np.float64)
    >>> len(random_pivots(Linear(), points, 3, np.random.default_rng(0)))
    2
    """
    left = np.maximum(kernel.diagonal_of(points), 0.0)
    spent, found = SPENT * float(left.sum()), np.empty(0, dtype=np.int64)
    F, block = np.empty((len(points), 0)), -(-rank // ROUNDS)
    while len(found) < rank and left.sum() > spent:
        drawn = np.unique(rng.choice(len(left), min(block, rank - len(found)), p=left / left.sum()))
        columns = kernel.block(points, points.take(drawn)).astype(np.float64) - F @ F[drawn].T
        L, pivots, r, _ = linalg.lapack.dpstrf(columns[drawn], tol=spent, lower=1)
        order = pivots[:r] - 1
        new = linalg.solve_triangular(np.tril(L)[:r, :r], columns[:, order].T, lower=True, check_finite=False).T
        F, found = np.hstack([F, new]), np.append(found, drawn[order])
        left = np.maximum(left - np.einsum("ij,ij->i", new, new), 0.0)
        left[drawn] = 0.0
    return found
