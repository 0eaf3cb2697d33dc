"""Draw a picture for each page of docs/machines, from fits of small tables: `python docs/generate_machines.py`.

Run it from the root of the repository.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from svmcore.estimator import SVC, SVR, NuSVC, NuSVR, OneClassSVM

IMAGES = Path(__file__).resolve().parent / "images"


def plane(ax: Any, machine: Any, X: Any, y: Any, levels: list[float]) -> None:
    """Rows of two features, contours of f at the levels, and rings around the support vectors."""
    across, up = (np.linspace(X[:, i].min() - 0.5, X[:, i].max() + 0.5, 120) for i in (0, 1))
    mesh = np.stack([axis.ravel() for axis in np.meshgrid(across, up)], axis=1)
    f = machine.decision_function(mesh).reshape(120, 120)
    ax.contour(across, up, f, levels=levels, colors="black", linestyles=["dashed", "solid", "dashed"][-len(levels) :])
    for label, colour in zip(np.unique(y), ("tab:blue", "tab:orange"), strict=False):
        ax.scatter(*X[y == label].T, s=18, color=colour)
    ax.scatter(*X[machine.support_].T, s=60, facecolors="none", edgecolors="black", linewidths=0.8)


def tube(ax: Any, machine: Any, x: Any, y: Any, epsilon: float) -> None:
    """A function of one feature with its tube, and rings around the support vectors."""
    grid = np.linspace(x.min(), x.max(), 200)[:, None]
    f = machine.predict(grid)
    ax.fill_between(grid[:, 0], f - epsilon, f + epsilon, color="tab:blue", alpha=0.2)
    ax.plot(grid[:, 0], f, color="tab:blue")
    ax.scatter(x[:, 0], y, s=18, color="black")
    ax.scatter(x[machine.support_, 0], y[machine.support_], s=60, facecolors="none", edgecolors="black", linewidths=0.8)


def draw(name: str, title: str, what: Any, *arguments: Any) -> None:
    """One picture."""
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    what(ax, *arguments)
    ax.set_title(title, fontsize=10)
    figure.savefig(IMAGES / f"machine_{name}.png", dpi=100, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    """All five."""
    X, y = make_moons(120, noise=0.2, random_state=0)
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, (60, 1)), axis=0)
    values = np.sinc(x[:, 0]) + 0.15 * rng.normal(size=60)
    svc, nu = SVC(C=1.0, gamma=1.0).fit(X, y), NuSVC(nu=0.2, gamma=1.0).fit(X, y)
    draw("svc", "f = -1, 0, 1; rings: support vectors, on the margin or within", plane, svc, X, y, [-1, 0, 1])
    draw("nu_svc", "nu = 0.2: at most a fifth of the rows within the margin", plane, nu, X, y, [-1, 0, 1])
    inside = OneClassSVM(nu=0.1, gamma=0.5).fit(X)
    draw("one_class", "f = 0: at most a tenth of the rows outside", plane, inside, X, np.zeros(120), [0])
    svr = SVR(C=10.0, epsilon=0.15).fit(x, values)
    draw("svr", "the tube of width 2 epsilon = 0.3; rows within cost nothing", tube, svr, x, values, 0.15)
    nu_svr = NuSVR(C=10.0, nu=0.3).fit(x, values)
    free = np.abs(nu_svr.dual_coef_[0]) < 10.0 * (1 - 1e-9)
    at = nu_svr.support_[free]
    epsilon = float(np.median(np.abs(values - nu_svr.predict(x))[at]))
    draw("nu_svr", "nu = 0.3: at most 30 % of the rows outside a tube that is found", tube, nu_svr, x, values, epsilon)


if __name__ == "__main__":
    main()
