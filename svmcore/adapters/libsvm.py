"""Models as LIBSVM's text, read by its own svm-predict, and back; `svmcore.adapters.onnx` writes ONNX.

LIBSVM's decision of the pair (i, j), i < j, is positive for i: minus ours. It groups the support vectors by class and
lets a pair use the two groups of its classes alone. A one-vs-rest model fits into that form exactly: with the support
vectors of problem i as group i, the pair (i, j) decides by f_i - f_j, and the largest f wins all its pairs. Regressions
and one-class models are one row of coefficients, with rho = -bias.
"""

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from svmcore.adapters.layout import from_layout, pairs, to_layout
from svmcore.errors import InputError
from svmcore.kernels import RBF, Linear, Polynomial, Precomputed, Tanh
from svmcore.kernels.base import Kernel
from svmcore.model import Model
from svmcore.points import Floats, Rows

__all__ = ["from_libsvm", "scale_range", "support_codes", "to_libsvm"]

TYPES = {"svc": "c_svc", "nu-svc": "nu_svc", "svr": "epsilon_svr", "nu-svr": "nu_svr", "one-class": "one_class"}
MACHINES = {svm_type: machine for machine, svm_type in TYPES.items()}
KERNELS = {
    "linear": "linear",
    "polynomial": "polynomial",
    "rbf": "rbf",
    "tanh": "sigmoid",
    "precomputed": "precomputed",
}


def to_libsvm(model: Model) -> str:
    """LIBSVM's text of `model`; numbers are written so that they read back to the last bit.

    Raises
    ------
    InputError
        For a machine or kernel that LIBSVM does not have, labels that are not integers, or several targets.
    """
    if model.machine not in TYPES:
        raise InputError(f"LIBSVM has the machines {', '.join(TYPES)}; given {model.machine!r}: export to .onnx")
    head, (coef, vector) = _head(model)
    rows = list(_row_texts(model))
    lines = [f"{_numbers(coef[:, t])} {rows[v]}".rstrip() for t, v in enumerate(vector)]
    return "\n".join([*head, "SV", *lines]) + "\n"


def _head(model: Model) -> tuple[list[str], tuple[Floats, Floats]]:
    """Lines before the support vectors; coefficients, and the vectors (t,) they belong to."""
    labels = _integer_labels(model.classes) if model.answers == "labels" else []
    if not labels and len(model.bias) > 1:
        raise InputError(f"LIBSVM's models have one target; this one has {len(model.bias)}: export to .onnx")
    coef, vector, sizes, rho = _grouped(model) if labels else _ungrouped(model)
    first, n_classes = f"svm_type {TYPES[model.machine]}", len(labels) or 2  # LIBSVM's own, where there are none
    head = [first, *_kernel_lines(model.kernel), f"nr_class {n_classes}", f"total_sv {len(vector)}"]
    head.append("rho " + _numbers(rho))
    if labels:
        head += ["label " + " ".join(map(str, labels)), "nr_sv " + " ".join(map(str, sizes))]
    return head, (coef, vector)


def _integer_labels(classes: Floats) -> list[int]:
    try:
        labels = [int(label) for label in classes]
        whole = all(float(label) == value for label, value in zip(classes, labels, strict=True))
    except (TypeError, ValueError):
        whole = False
    if not whole or isinstance(classes[0], (str, np.str_)):
        raise InputError(f"LIBSVM's labels are integers; given {list(classes)[:3]}...: encode them, or export to .onnx")
    return labels


def _kernel_lines(kernel: Kernel) -> list[str]:
    if kernel.name not in KERNELS:
        known = ", ".join(KERNELS.values())
        raise InputError(f"LIBSVM has the kernels {known}; given {kernel.name!r}: export to .onnx")
    lines, fields = [f"kernel_type {KERNELS[kernel.name]}"], kernel.spec()
    if "degree" in fields:
        lines.append(f"degree {int(fields['degree'])}")
    return lines + [f"{key} {float(fields[key])!r}" for key in ("gamma", "coef0") if key in fields]


def _numbers(values: Floats) -> str:
    return " ".join(repr(float(value)) for value in values)


def support_codes(model: Model) -> Floats:
    """Class code (m,) of each support vector, from the signs of its coefficients.

    With two classes or one-vs-one a positive coefficient belongs to the later class of its problem; with one-vs-rest
    the largest one to the problem of the vector's own class (a guess, where only other problems use the vector).
    """
    n = len(model.classes)
    if model.scheme == "ovr" and n > 2:
        return np.asarray(model.coef.argmax(axis=0))
    codes = np.zeros(model.coef.shape[1], dtype=np.int64)
    for k, (i, j) in enumerate(pairs(n)):
        codes[model.coef[k] > 0], codes[model.coef[k] < 0] = j, i
    return codes


def _grouped(model: Model) -> tuple[Floats, Floats, list[int], Floats]:
    """(n_classes - 1, t) coefficients in LIBSVM's layout, the vectors (t,) they belong to, group sizes, and rho."""
    n = len(model.classes)
    if model.scheme == "ovr" and n > 2:
        return _grouped_ovr(model)
    codes = support_codes(model)
    order = np.argsort(codes, kind="stable")
    coef = to_layout(model.coef[:, order], codes[order], n)
    return (-coef if n == 2 else coef), order, np.bincount(codes, minlength=n).tolist(), model.bias


def _ungrouped(model: Model) -> tuple[Floats, Floats, list[int], Floats]:
    """Coefficients as they are: without classes there is one row of them."""
    return model.coef, np.arange(model.coef.shape[1]), [], -model.bias


def _grouped_ovr(model: Model) -> tuple[Floats, Floats, list[int], Floats]:
    """Group i holds the vectors of problem i: + its coefficients against later classes, - against earlier ones."""
    n = len(model.classes)
    groups = [np.flatnonzero(model.coef[i]) for i in range(n)]
    signs = [np.array([-1.0 if other < i else 1.0 for other in range(n) if other != i]) for i in range(n)]
    coef = np.hstack([np.outer(signs[i], model.coef[i, groups[i]]) for i in range(n)])
    rho = np.array([model.bias[j] - model.bias[i] for i, j in pairs(n)])
    return coef, np.concatenate(groups), [len(group) for group in groups], rho


def _row_texts(model: Model) -> Iterator[str]:
    """`index:value` of each support vector, 1-based; `0:row` for a precomputed kernel."""
    rows = sparse.csr_matrix(model.support_vectors)
    rows.sort_indices()
    for start, stop in zip(rows.indptr, rows.indptr[1:], strict=False):
        if isinstance(model.kernel, Precomputed):
            yield f"0:{rows.indices[start] + 1}"
        else:
            entries = zip(rows.indices[start:stop], rows.data[start:stop], strict=True)
            yield " ".join(f"{index + 1}:{float(value)!r}" for index, value in entries)


def scale_range(shift: Floats, factor: Floats) -> str:
    """Limits for `svm-scale -r` that do x' = (x - shift) * factor, (p,) each: -1 and 1 are where x' is -1 and 1.

    >>> print(scale_range(np.array([1.0]), np.array([0.5])), end="")
    x
    -1.0 1.0
    1 -1.0 3.0
    """
    low, high = shift - 1.0 / factor, shift + 1.0 / factor
    lines = [f"{j + 1} {float(low[j])!r} {float(high[j])!r}" for j in range(len(shift))]
    return "\n".join(["x", "-1.0 1.0", *lines]) + "\n"


def from_libsvm(text: str, n_features: int | None = None) -> Model:
    """Model of LIBSVM's text; rows are CSR, classes in the order of the file, which breaks ties.

    `n_features` is the width of the rows; by default the largest index, or, for a precomputed kernel, the largest
    training row.

    >>> text = to_libsvm(Model(Linear(), np.array([[1.0]]), np.array([[2.0]]), np.array([-1.0]), np.array([3, 7])))
    >>> from_libsvm(text).predict(sparse.csr_matrix(np.array([[0.4], [0.6]])))
    array([3, 7])
    """
    head, body = _split(text)
    rho = np.array([float(value) for value in head["rho"].split()])
    kernel, machine = _read_kernel(head), MACHINES[head["svm_type"]]
    labels = np.array([int(label) for label in head.get("label", "").split()])
    coef, vectors = _read_body(body, len(labels) or 2, isinstance(kernel, Precomputed), n_features)
    if not len(labels):
        return Model(kernel, vectors, coef, -rho, np.empty(0), machine=machine)
    codes = np.repeat(np.arange(len(labels)), [int(size) for size in head["nr_sv"].split()])
    ours = -coef if len(labels) == 2 else from_layout(coef, codes, len(labels))
    return Model(kernel, vectors, ours, rho, labels, "ovo", machine)


def _split(text: str) -> tuple[dict[str, str], list[str]]:
    lines = text.splitlines()
    if "SV" not in lines:
        raise InputError("this is no LIBSVM model: it has no line 'SV'")
    at = lines.index("SV")
    head = dict(line.split(" ", 1) for line in lines[:at] if " " in line)
    if head.get("svm_type") not in MACHINES:
        raise InputError(f"svm_type can be {', '.join(MACHINES)}; this model is {head.get('svm_type')!r}")
    needed = ["kernel_type", *["label", "nr_sv"] * head["svm_type"].endswith("_svc"), "rho"]
    missing = [key for key in needed if key not in head]
    if missing:
        raise InputError(f"this LIBSVM model lacks {', '.join(missing)}")
    return head, [line for line in lines[at + 1 :] if line.strip()]


def _read_kernel(head: dict[str, str]) -> Kernel:
    gamma, coef0 = float(head.get("gamma", "1")), float(head.get("coef0", "0"))
    name = head["kernel_type"]
    if name == "rbf":
        return RBF(gamma=gamma)
    if name == "polynomial":
        return Polynomial(degree=int(head.get("degree", "3")), gamma=gamma, coef0=coef0)
    if name == "sigmoid":
        return Tanh(gamma=gamma, coef0=coef0)
    if name in ("linear", "precomputed"):
        return Linear() if name == "linear" else Precomputed()
    raise InputError(f"LIBSVM's kernels are {', '.join(KERNELS.values())}; this model has {name!r}")


def _read_body(body: list[str], n_classes: int, precomputed: bool, n_features: int | None) -> tuple[Floats, Rows]:
    """Coefficients (n_classes - 1, t) and the support vectors (t, p), CSR."""
    words = [line.split() for line in body]
    coef = np.array([[float(value) for value in line[: n_classes - 1]] for line in words]).T
    entries = [[entry.split(":") for entry in line[n_classes - 1 :]] for line in words]
    if precomputed:
        rows = [int(float(line[0][1])) - 1 for line in entries]
        return coef, Precomputed.units(rows, max([*rows, (n_features or 0) - 1]) + 1)
    indptr = np.cumsum([0] + [len(line) for line in entries])
    indices = np.array([int(index) - 1 for line in entries for index, _ in line], dtype=np.int32)
    data = np.array([float(value) for line in entries for _, value in line])
    width = n_features or int(indices.max(initial=-1)) + 1
    return coef, sparse.csr_matrix((data, indices, indptr), shape=(len(words), width))
