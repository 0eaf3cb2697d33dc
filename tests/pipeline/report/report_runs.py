"""Run folders as a run leaves them, from real scikit-learn fits on the data it ships."""

import json
import warnings
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import average_precision_score, confusion_matrix, roc_auc_score, roc_curve
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

TOL = 1e-3
NAMES = ("digits", "letters", "cancer", "wine", "batch")


def digits_run(folder: Path) -> Path:
    X, y = load_digits(return_X_y=True)
    return _write(folder, "digits-rbf", "sklearn:digits", *_fit(X, y, C=10.0))


def letters_run(folder: Path) -> Path:
    """26 classes called A ... Z: the digits cut into as many clusters."""
    X, _ = load_digits(return_X_y=True)
    letters = np.array([chr(ord("A") + k) for k in range(26)])
    y = letters[KMeans(26, n_init=1, random_state=0).fit_predict(X)]
    return _write(folder, "letters", "letters.csv", *_fit(X, y, C=1.0, steps=(30, 200)), C=1.0)


def cancer_run(folder: Path) -> Path:
    """Two classes, two features: ROC, margins, support vectors."""
    data = load_breast_cancer()
    X, y = data.data[:, :2], data.target_names[data.target]
    return _write(folder, "cancer-2d", "cancer.csv", *_fit(X, y, C=1.0, names=["mean radius", "mean texture"]), C=1.0)


def wine_run(folder: Path) -> Path:
    """Three classes, two features: regions by label."""
    data = load_wine()
    return _write(folder, "wine-2d", "wine.csv", *_fit(data.data[:, [0, 9]], data.target, C=1.0), C=1.0)


def batch_run(folder: Path) -> Path:
    """C x gamma x folds on breast cancer, and the refit of the best."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    points = [_point(X, y, C, gamma) for gamma in (0.003, 0.03, 0.3) for C in (0.1, 1.0, 10.0, 100.0, 1000.0)]
    points.sort(key=lambda p: (-p["mean_score"], p["n_support"]))
    metrics, evaluation = _fit(X, y, **points[0]["params"] | {"gamma": points[0]["params"]["kernel.gamma"]})
    counts = {"n_support", "kkt_gap", "status"}
    metrics |= {"points": [{k: v for k, v in p.items() if k not in counts} for p in points]}
    metrics |= {"best": metrics["points"][0], "problems": {"total": 75, "reused": 15}}
    sweep = "sweep:\n  grid: {C: [0.1, 1, 10, 100, 1000], kernel.gamma: [0.003, 0.03, 0.3]}\n  folds: 5\n"
    _write(folder, "cancer-sweep", "sklearn:breast_cancer", metrics, evaluation, sweep)
    header = "C,kernel.gamma,mean_score,std_score,n_support,kkt_gap,status\n"
    lines = [
        ",".join(str(v) for v in (*p["params"].values(), *(p[k] for k in header.strip().split(",")[2:])))
        for p in points
    ]
    (folder / "results.csv").write_text(header + "\n".join(lines) + "\n")
    return folder


def _fit(X, y, C, gamma=None, steps=(5, 20, 80, 320), names=None, **_):
    """Fit one-vs-rest on precomputed K; certificates and history from alpha."""
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X)
    Z, Z_test = scaler.transform(X), scaler.transform(X_test)
    gamma = gamma or 1 / (Z.shape[1] * Z.var())
    K, K_test = rbf_kernel(Z, gamma=gamma), rbf_kernel(Z_test, Z, gamma=gamma)
    classes = np.unique(y)
    positives = classes[1:] if len(classes) == 2 else classes
    fits = [_binary(K, np.where(y == label, 1.0, -1.0), C, steps) for label in positives]
    values, codes = _values(K_test, fits), _codes(K_test, fits)
    right = float(np.mean(classes[codes] == y_test))
    per_class = [
        {"label": label, **{k: v for k, v in fit.items() if k not in ("coef", "history")}}
        for label, fit in zip(positives.tolist(), fits, strict=True)
    ]
    support = np.unique(np.concatenate([np.flatnonzero(fit["coef"]) for fit in fits]))
    metrics = {
        "run": f"/srv/runs/{len(classes)}/20260102T030405-0123abcd",
        "status": "converged",
        "n_train": len(X),
        "n_test": len(X_test),
        "n_features": X.shape[1],
        "classes": classes.tolist(),
        "accuracy": right,
        "train_accuracy": float(np.mean(classes[_codes(K, fits)] == y)),
        "n_support": len(support),
        "relative_gap": max(p["relative_gap"] for p in per_class),
        "kkt_gap": max(p["kkt_gap"] for p in per_class),
        "seconds": {"start": 1.21, "ingest": 0.0734, "kernel": 0.412, "solve": 0.655, "score": 0.048, "total": 2.43},
        "peak_memory_bytes": 312_475_648,
        "per_class": per_class,
        "blocks": {"total": 36, "reused": 12},
        "plan": {
            "gram_bytes": 4 * len(X) ** 2,
            "seconds": {"kernel": 0.38, "solve": 0.7},
            "kernel_evaluations": len(X) ** 2,
        },
        "versions": {"marginflow": "0.1.0", "numpy": np.__version__},
    }
    evaluation = {
        "classes": classes.tolist(),
        "evaluated_on": "test",
        "tol": TOL,
        "curves": [],
        "plane": None,
        "confusion": confusion_matrix(y_test, classes[codes], labels=classes).tolist(),
        "history": [{"label": p["label"], "points": fit["history"]} for p, fit in zip(per_class, fits, strict=True)],
    }
    for k, label in enumerate(positives.tolist()):
        evaluation["curves"].append({"label": label} | _curve(y_test == label, values[:, k]))
    wrong = np.flatnonzero(classes[codes] != y_test)
    evaluation["errors"] = [
        {"row": int(i), "id": None, "copies": 1, "label": y_test[i].item(), "said": classes[codes[i]].item(), "by": 0.5}
        for i in wrong
    ]
    if X.shape[1] == 2:
        evaluation["plane"] = _plane(X, y, scaler, Z, gamma, classes, fits, support, names)
    return metrics, evaluation


def _curve(positive, f):
    fpr, tpr, threshold = roc_curve(positive, f, drop_intermediate=False)
    return {
        "threshold": [None, *threshold[1:].tolist()],
        "tpr": tpr.tolist(),
        "fpr": fpr.tolist(),
        "auc": float(roc_auc_score(positive, f)),
        "average_precision": float(average_precision_score(positive, f)),
        "positives": int(positive.sum()),
        "negatives": int((~positive).sum()),
    }


def _values(K, fits):
    return np.stack([K @ fit["coef"] + fit["bias"] for fit in fits], axis=1)


def _codes(K, fits):
    values = _values(K, fits)
    return (values[:, 0] > 0).astype(int) if len(fits) == 1 else values.argmax(axis=1)


def _binary(K, y, C, steps):
    """Fit LIBSVM stopped early a few times, then to the end: its KKT gap after so many steps."""
    history = []
    for max_iter in (*steps, -1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit = SVC(kernel="precomputed", C=C, tol=TOL, max_iter=max_iter, cache_size=500).fit(K, y)
        coef = np.zeros(len(y))
        coef[fit.support_] = fit.dual_coef_[0]
        n_iter = int(fit.n_iter_[0])
        certificate = _certificate(K, y, coef, C)
        history.append([n_iter * 4e-5, n_iter, certificate["kkt_gap"]])
        if max_iter > 0 and n_iter < max_iter:
            break
    return {
        "n_support": int(np.count_nonzero(coef)),
        "n_bounded": int(np.sum(np.abs(coef) >= C)),
        "n_iter": n_iter,
        "status": "converged",
        "bias": float(fit.intercept_[0]),
        **certificate,
        "coef": coef,
        "history": history,
    }


def _certificate(K, y, coef, C):
    """Duality and KKT gap of alpha = y coef, 0 <= alpha <= C."""
    alpha, f = y * coef, K @ coef
    error = y - f  # -y_i g_i
    up = np.where(y > 0, alpha < C, alpha > 0)
    low = np.where(y > 0, alpha > 0, alpha < C)
    m, M = error[up].max(), error[low].min()
    bias = (m + M) / 2
    primal = 0.5 * coef @ f + C * np.maximum(0, 1 - y * (f + bias)).sum()
    dual = alpha.sum() - 0.5 * coef @ f
    gap = (primal - dual) / max(abs(primal), abs(dual))
    return {"primal": float(primal), "dual": float(dual), "relative_gap": float(gap), "kkt_gap": float(m - M)}


def _point(X, y, C, gamma):
    scores, support, gaps = [], [], []
    K = rbf_kernel(X, gamma=gamma)
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        fit = _binary(K[np.ix_(train, train)], np.where(y[train] == 1, 1.0, -1.0), C, ())
        f = K[np.ix_(test, train)] @ fit["coef"] + fit["bias"]
        scores.append(float(np.mean((f > 0) == (y[test] == 1))))
        support.append(fit["n_support"])
        gaps.append(fit["kkt_gap"])
    return {
        "params": {"C": C, "kernel.gamma": gamma},
        "mean_score": float(np.mean(scores)),
        "std_score": float(np.std(scores)),
        "fold_scores": scores,
        "seconds": 4e-5 * sum(support),
        "n_support": round(float(np.mean(support))),
        "kkt_gap": max(gaps),
        "status": "converged",
    }


def _plane(X, y, scaler, Z, gamma, classes, fits, support, names):
    axes = [np.linspace(column.min() - 1, column.max() + 1, 90) for column in X.T]
    grid = np.stack([g.ravel() for g in np.meshgrid(*axes)], axis=1)
    k = rbf_kernel(scaler.transform(grid), Z, gamma=gamma)
    values = _values(k, fits)
    plane = {
        "points": X.tolist(),
        "codes": np.searchsorted(classes, y).tolist(),
        "grid_x": axes[0].tolist(),
        "grid_y": axes[1].tolist(),
    }
    if len(fits) == 1:
        decision = values[:, 0].reshape(90, 90).tolist()
        return plane | {"decision": decision, "support_vectors": X[support].tolist(), "features": names}
    return plane | {"labels": values.argmax(axis=1).reshape(90, 90).tolist()}


def _write(folder, name, source, metrics, evaluation, more="", C=10.0):
    folder.mkdir(parents=True, exist_ok=True)
    config = (
        f'name: {name}\nseed: 0\ndata:\n  source: "{source}"\n  test: 0.2\n  scale: standard\n'
        f"kernel: {{name: rbf, gamma: scale}}\nloss: hinge\nC: {C}\nmulticlass: ovr\n"
        f"solver: {{name: smo, tol: 1e-3, max_iter: -1}}\ncluster: {{kind: local, workers: 2}}\nstore: runs\n{more}"
    )
    (folder / "config.yaml").write_text(config)
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    return folder
