"""Models as ONNX graphs of primitive operators in float64; needs the onnx package, which nothing else here does.

The operators SVMClassifier and SVMRegressor are float32 and have no composite kernels; primitive ones give what
`Model.predict` gives.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from svmcore.adapters.layout import pairs
from svmcore.errors import InputError, MemoryLimit
from svmcore.kernels import RBF, Conformal, Linear, Polynomial, Precomputed, Product, Scaled, Sum, Tanh
from svmcore.kernels.base import Kernel
from svmcore.kernels.compose import Gaussian, Normalise
from svmcore.model import Model
from svmcore.points import Floats

__all__ = ["Column", "to_onnx"]

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # read by every onnxruntime since 2022
MOST_BYTES = 2**31 - 2**20  # of one protocol buffer


class Column(Protocol):
    """A column of a table before it is scaled: a number with what fills its gaps, or a category with its texts."""

    @property
    def name(self) -> str:
        """What its input is called."""

    @property
    def fill(self) -> float | None:
        """What takes the place of NaN; None: nothing does."""

    @property
    def categories(self) -> tuple[str, ...] | None:
        """Texts, each of which becomes a column of 0 and 1; None of a number."""


def to_onnx(
    model: Model, shift: Floats | None = None, factor: Floats | None = None, columns: Sequence[Column] | None = None
) -> bytes:
    """ONNX file of `model` on rows x' = (x - shift) * factor, with an input `X` (n, p) double.

    With `columns`, of which x is made, gaps are filled. If one is a category, each is an input of its own by its name:
    (n, 1) double, or (n, 1) string. A text that is none of its categories is 0 in all their columns.

    Outputs `label` (n,) and `decision` (n, k) double; of a regression `value` (n, k) double. A model with sigmoids has
    `probability` (n, n_classes) double too, unless its problems are pairs of more than two classes: their coupling is
    a linear system for each row, which ONNX has no operator for.

    Raises
    ------
    InputError
        If the onnx package is missing or a part of the kernel has no ONNX form here.
    MemoryLimit
        If the support vectors, dense, exceed the 2 GB of an ONNX file.
    """
    graph = _Graph(_import_onnx())
    x = _encoded(graph, columns) if columns else graph.input("X", model.support_vectors.shape[1])
    if not isinstance(model.kernel, Precomputed):
        x = _scaled(graph, x, shift, factor)
    K = _kernel_values(graph, model, x)
    name = "value" if model.answers == "values" else "decision"
    decision = graph.add(
        "Add", graph.add("MatMul", K, graph.constant(model.coef.T)), graph.constant(model.bias), name=name
    )
    if model.answers == "labels":
        _labels(graph, model, decision)
        if _tells_probability(model):
            _probabilities(graph, model, decision)
    elif model.answers == "novelty":
        inside = graph.add(
            "GreaterOrEqual", graph.add("Squeeze", decision, graph.constant([1], np.int64)), graph.number(0.0)
        )
        graph.add("Where", inside, graph.constant(1, np.int64), graph.constant(-1, np.int64), name="label")
    return graph.file(model)


def _import_onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise InputError("ONNX export needs the onnx package: pip install 'marginflow[onnx]'") from error
    return onnx


class _Graph:
    """Nodes and constants as they are added; every value has a name."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def input(self, name: str, width: int, kind: int | None = None) -> str:
        """An input (n, width), double unless `kind` says otherwise; returns its name."""
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind or self.double, [None, width]))
        return name

    def add(self, operator: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Append a node; returns the name of its output."""
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any, dtype: Any = np.float64) -> str:
        """A constant tensor; float64 values that float32 holds exactly are stored as such and widened in the graph."""
        values = np.asarray(values, dtype=dtype)
        name = f"c{len(self.constants)}"
        narrow = values.dtype == np.float64 and values.size > 64 and np.array_equal(values.astype(np.float32), values)
        stored = np.ascontiguousarray(values, dtype=np.float32 if narrow else values.dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(stored, name))
        return self.add("Cast", name, to=self.double) if narrow else name

    @property
    def double(self) -> int:
        """ONNX's number for float64."""
        return int(self.onnx.TensorProto.DOUBLE)

    def number(self, value: float) -> str:
        """A scalar constant."""
        return self.constant(np.float64(value))

    def _needed(self, names: set[str]) -> tuple[list[Any], list[Any]]:
        """Nodes and constants that the values `names` depend on."""
        nodes = []
        for node in reversed(self.nodes):
            if names & set(node.output):
                names |= set(node.input)
                nodes.append(node)
        return nodes[::-1], [constant for constant in self.constants if constant.name in names]

    def file(self, model: Model) -> bytes:
        """The whole model, checked and serialised."""
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        label = kinds.STRING if np.asarray(model.classes).dtype.kind in "UO" else kinds.INT64
        shapes = {"label": (label, [None]), "decision": (kinds.DOUBLE, [None, len(model.bias)])}
        if _tells_probability(model):
            shapes["probability"] = (kinds.DOUBLE, [None, len(model.classes)])
        if model.answers == "values":
            shapes = {"value": (kinds.DOUBLE, [None, len(model.bias)])}
        outputs = [helper.make_tensor_value_info(name, *shape) for name, shape in shapes.items()]
        nodes, constants = self._needed(set(shapes))
        graph = helper.make_graph(nodes, "marginflow", self.inputs, outputs, constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        built = helper.make_model(graph, opset_imports=opsets, producer_name="marginflow")
        built.ir_version = IR_VERSION
        self.onnx.checker.check_model(built)
        return bytes(built.SerializeToString())


def _encoded(graph: _Graph, columns: Sequence[Column]) -> str:
    """Rows x (n, width) from the columns of a table."""
    if all(column.categories is None for column in columns):
        x = graph.input("X", len(columns))
        return _filled(graph, x, [column.fill for column in columns])
    parts = []
    for column in columns:
        if column.categories is None:
            parts.append(_filled(graph, graph.input(column.name, 1), [column.fill]))
        else:
            text = graph.input(column.name, 1, int(graph.onnx.TensorProto.STRING))
            coded = graph.add("OneHotEncoder", text, domain="ai.onnx.ml", cats_strings=column.categories, zeros=1)
            flat = graph.add("Squeeze", coded, graph.constant([1], np.int64))
            parts.append(graph.add("Cast", flat, to=graph.double))
    return graph.add("Concat", *parts, axis=1)


def _filled(graph: _Graph, x: str, fill: Sequence[float | None]) -> str:
    if None in fill:
        return x
    return graph.add("Where", graph.add("IsNaN", x), graph.constant([fill]), x)


def _scaled(graph: _Graph, x: str, shift: Floats | None, factor: Floats | None) -> str:
    if shift is not None and np.asarray(shift).any():
        x = graph.add("Sub", x, graph.constant(shift))
    if factor is not None and (np.asarray(factor) != 1).any():
        x = graph.add("Mul", x, graph.constant(factor))
    return x


def _kernel_values(graph: _Graph, model: Model, x: str) -> str:
    """K (n, m) of the rows `x` against the support vectors."""
    Z = model.support_vectors
    if isinstance(model.kernel, Precomputed):
        return graph.add("Gather", x, graph.constant(sparse.csr_matrix(Z).indices, np.int64), axis=1)
    if 8 * Z.shape[0] * Z.shape[1] > MOST_BYTES:
        raise MemoryLimit(f"{Z.shape[0]} support vectors of {Z.shape[1]} features exceed the 2 GB of an ONNX file")
    Z = np.asarray(Z.toarray() if sparse.issparse(Z) else Z, dtype=np.float64)
    products = graph.add("MatMul", x, graph.add("Transpose", graph.constant(Z), perm=[1, 0]))
    axis = graph.constant([1], np.int64)
    x2 = graph.add("ReduceSum", graph.add("Mul", x, x), axis, keepdims=1)
    squares = graph.constant((Z**2).sum(axis=1))
    return _values(graph, model.kernel, products, x2, squares)


def _values(graph: _Graph, kernel: Kernel, G: str, x2: str, z2: str) -> str:
    """Kernel values from x'z, x'x and z'z, elementwise; k(x, x) is the same with all three equal to x'x."""
    if isinstance(kernel, Linear):
        return G
    if isinstance(kernel, RBF):
        distance = graph.add("Sub", graph.add("Add", x2, z2), graph.add("Mul", G, graph.number(2.0)))
        distance = graph.add("Max", distance, graph.number(0.0))
        return graph.add("Exp", graph.add("Mul", distance, graph.number(-float(kernel.gamma))))
    if isinstance(kernel, (Polynomial, Tanh)):
        inner = graph.add("Add", _times(graph, G, float(kernel.gamma)), graph.number(kernel.coef0))
        return graph.add("Tanh", inner) if isinstance(kernel, Tanh) else _power(graph, inner, kernel.degree)
    if isinstance(kernel, Scaled):
        return _times(graph, _values(graph, kernel.kernel, G, x2, z2), float(kernel.scale))
    if isinstance(kernel, (Sum, Product)):
        parts = [_values(graph, part, G, x2, z2) for part in (kernel.left, kernel.right)]
        return graph.add("Add" if isinstance(kernel, Sum) else "Mul", *parts)
    if isinstance(kernel, Conformal):
        factors = graph.add("Mul", _factor(graph, kernel, x2), _factor(graph, kernel, z2))
        return graph.add("Mul", _values(graph, kernel.kernel, G, x2, z2), factors)
    raise InputError(f"kernel {kernel.name!r} has no ONNX form")


def _times(graph: _Graph, value: str, number: float) -> str:
    """Product with a number, in two parts: onnxruntime fuses a factor into a matrix product, rounded to float32."""
    high = float(np.float32(number))
    product = graph.add("Mul", value, graph.number(high))
    if high == number:
        return product
    return graph.add("Add", product, graph.add("Mul", value, graph.number(number - high)))


def _power(graph: _Graph, z: str, degree: int) -> str:
    """z^degree by products, as `Polynomial` does."""
    if degree == 0:
        return graph.add("Add", graph.add("Mul", z, graph.number(0.0)), graph.number(1.0))
    power = z
    for _ in range(degree - 1):
        power = graph.add("Mul", power, z)
    return power


def _factor(graph: _Graph, kernel: Conformal, x2: str) -> str:
    """c(x) of a conformal kernel."""
    if isinstance(kernel.factor, Gaussian):
        return graph.add("Exp", graph.add("Mul", x2, graph.number(-float(kernel.factor.gamma))))
    if isinstance(kernel.factor, Normalise):
        diagonal = _values(graph, kernel.kernel, x2, x2, x2)
        positive = graph.add("Greater", diagonal, graph.number(0.0))
        root = graph.add("Sqrt", graph.add("Where", positive, diagonal, graph.number(1.0)))
        return graph.add("Where", positive, graph.add("Reciprocal", root), graph.number(0.0))
    raise InputError(f"conformal factor {kernel.factor.name!r} has no ONNX form")


def _labels(graph: _Graph, model: Model, decision: str) -> None:
    """Output `label` (n,): the sign, the largest, or the most pairwise wins, as `svmcore.model.vote`."""
    n = len(model.classes)
    if n > 2 and model.scheme == "ovr":
        scores = decision
    else:
        later = graph.add("Cast", graph.add("GreaterOrEqual", decision, graph.number(0.0)), to=graph.double)
        first, second = np.zeros((len(model.bias), n)), np.zeros((len(model.bias), n))
        for k, (i, j) in enumerate(pairs(n)):
            first[k, i], second[k, j] = 1.0, 1.0
        wins = graph.add("MatMul", later, graph.constant(second - first))
        scores = graph.add("Add", wins, graph.constant(first.sum(axis=0)))
    code = graph.add("ArgMax", scores, axis=1, keepdims=0)
    graph.add("Gather", _class_labels(graph, model.classes), code, name="label")


def _tells_probability(model: Model) -> bool:
    return model.sigmoids is not None and (len(model.classes) == 2 or model.scheme == "ovr")


def _probabilities(graph: _Graph, model: Model, decision: str) -> None:
    """Output `probability` (n, n_classes): 1 / (1 + exp(A f + B)), of several classes divided by their sum."""
    A, B = (-np.asarray(column) for column in np.asarray(model.sigmoids).T)
    exponent = graph.add("Add", graph.add("Mul", decision, graph.constant(A)), graph.constant(B))
    later = graph.add("Sigmoid", exponent)
    if len(model.classes) == 2:
        graph.add("Concat", graph.add("Sub", graph.number(1.0), later), later, axis=1, name="probability")
        return
    total = graph.add("ReduceSum", later, graph.constant([1], np.int64), keepdims=1)
    graph.add("Div", later, total, name="probability")


def _class_labels(graph: _Graph, classes: Floats) -> str:
    """The labels as a constant: 64-bit integers, or strings."""
    classes = np.asarray(classes)
    if classes.dtype.kind in "UO":
        return graph.constant([str(label) for label in classes], object)
    if classes.dtype.kind == "f" and (classes != np.floor(classes)).any():
        raise InputError("ONNX labels are integers or strings; given fractions: encode them")
    return graph.constant(classes, np.int64)
