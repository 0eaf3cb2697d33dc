"""Models through LIBSVM itself, through onnxruntime, and back."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, load_iris

from svmcore import RBF, Conformal, InputError, Linear, Model, Polynomial, Product, Scaled, Sum, Tanh
from svmcore.estimator import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from svmcore.export import export_model, from_libsvm, scale_range, to_libsvm, to_onnx

libsvm = pytest.importorskip("libsvm.svmutil")
onnxruntime = pytest.importorskip("onnxruntime")

KERNELS = {
    "rbf": {},
    "linear": {"kernel": "linear"},
    "poly": {"kernel": "poly", "degree": 2, "coef0": 1.0},
    "sigmoid": {"kernel": "sigmoid", "gamma": 1e-4, "coef0": -0.5},
}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600], X[600:1600]


def through_libsvm(text, X, path):
    """Labels and decision values that LIBSVM itself gives to rows X."""
    path.write_text(text)
    rows = X if sparse.issparse(X) else sparse.csr_matrix(X)
    labels, _, decision = libsvm.svm_predict([0] * X.shape[0], rows, libsvm.svm_load_model(str(path)), "-q")
    return np.array(labels), np.array(decision)


def through_onnx(content, X):
    """Labels and decision values of onnxruntime."""
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(["label", "decision"], {"X": np.asarray(X.toarray() if sparse.issparse(X) else X, float)})


def check_round_trips(model, X, path):
    """Same labels for rows X through LIBSVM, back from its text, and through onnxruntime."""
    labels, decision = model.predict(X), model.decision_function(X)
    text = to_libsvm(model)
    theirs, their_decision = through_libsvm(text, X, path)
    np.testing.assert_array_equal(theirs, labels)
    scale = np.abs(decision).max()
    if model.scheme == "ovo":
        np.testing.assert_allclose(their_decision, -decision, atol=1e-9 * scale)
    back = from_libsvm(text, n_features=X.shape[1])
    np.testing.assert_array_equal(back.predict(X), labels)
    if model.scheme == "ovo":
        assert to_libsvm(back) == text
    onnx_labels, onnx_decision = through_onnx(to_onnx(model), X)
    np.testing.assert_array_equal(onnx_labels, labels)
    np.testing.assert_allclose(onnx_decision, decision, atol=1e-9 * scale)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
def test_digits__keep_their_labels(digits, kernel, scheme, tmp_path):
    X, y, T = digits
    check_round_trips(SVC(multi_class=scheme, **KERNELS[kernel]).fit(X, y).model_, T, tmp_path / "model")


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
def test_two_classes__keep_their_labels(digits, form, tmp_path):
    X, y, T = digits
    labels = np.where(y % 2 == 0, -1, 1)
    check_round_trips(SVC().fit(form(X), labels).model_, form(T), tmp_path / "model")


@pytest.fixture(scope="module")
def folder(pytestconfig):
    import os

    return os.environ.get("MARGINFLOW_DATA") or pytest.skip("MARGINFLOW_DATA names the folder of the data files")


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
@pytest.mark.parametrize("name", ["pendigits", "reuters"])
def test_thousand_rows_of_a_data_file__keep_their_labels(folder, name, scheme, tmp_path):
    import bz2
    from pathlib import Path

    from sklearn.datasets import load_svmlight_file

    train, test = {"pendigits": ("", ".t"), "reuters": (".trn", ".tst")}[name]
    with bz2.open(Path(folder) / f"{name}{train}.bz2") as file:
        X, y = load_svmlight_file(file)
    with bz2.open(Path(folder) / f"{name}{test}.bz2") as file:
        T = load_svmlight_file(file, n_features=X.shape[1])[0][:1000]
    if name == "pendigits":
        X, T = X.toarray(), T.toarray()
    check_round_trips(SVC(C=2.0, multi_class=scheme).fit(X, y).model_, T, tmp_path / "model")


def test_libsvms_own_model__is_read(digits, tmp_path):
    X, y, T = (part[::4] for part in digits)  # LIBSVM's Python takes a row at a time
    order = np.argsort(-y, kind="stable")  # LIBSVM keeps labels in the order of their first appearance: 9, 8, ..., 0
    trained = libsvm.svm_train(y[order].tolist(), sparse.csr_matrix(X[order]), "-q -c 3 -g 0.0005")
    libsvm.svm_save_model(str(tmp_path / "model"), trained)
    model = from_libsvm((tmp_path / "model").read_text(), n_features=64)
    labels, _, _ = libsvm.svm_predict([0] * len(T), sparse.csr_matrix(T), trained, "-q")
    assert model.classes.tolist() == list(range(9, -1, -1))
    np.testing.assert_array_equal(model.predict(T), labels)


def test_precomputed__goes_by_training_row(tmp_path):
    X, y = load_iris(return_X_y=True)
    K = X @ X.T
    model = SVC(kernel="precomputed").fit(K, y).model_
    np.testing.assert_array_equal(from_libsvm(to_libsvm(model), n_features=150).predict(K), model.predict(K))
    np.testing.assert_array_equal(through_onnx(to_onnx(model), K)[0], model.predict(K))
    numbered = sparse.csr_matrix(np.hstack([np.arange(1, 151)[:, None], K]))  # LIBSVM's 0:row 1:K_1 2:K_2 ...
    (tmp_path / "model").write_text(to_libsvm(model))
    theirs = libsvm.svm_load_model(str(tmp_path / "model"))
    rows = [{int(j): v for j, v in zip(row.indices, row.data, strict=True)} for row in numbered]
    labels, _, _ = libsvm.svm_predict([0] * 150, rows, theirs, "-q")
    np.testing.assert_array_equal(labels, model.predict(K))


@pytest.mark.parametrize(
    "kernel",
    [
        Sum(RBF(gamma=0.3), Linear()),
        Product(Linear(), RBF(gamma=0.3)),
        Scaled(Tanh(gamma=0.1, coef0=-1.0), 2.5),
        Conformal(Polynomial(degree=2, gamma=0.5, coef0=1.0)),
        Conformal(Linear(), {"name": "gaussian", "gamma": 0.1}),
    ],
    ids=["sum", "product", "scaled", "normalised", "conformal"],
)
def test_composite_kernels__leave_as_onnx_only(kernel):
    X, y = load_iris(return_X_y=True)
    model = SVC(kernel=kernel, C=0.5).fit(X, y).model_
    labels, decision = through_onnx(to_onnx(model), X)
    np.testing.assert_array_equal(labels, model.predict(X))
    np.testing.assert_allclose(decision, model.decision_function(X), atol=1e-9)
    with pytest.raises(InputError, match=r"LIBSVM has the kernels .* export to \.onnx"):
        to_libsvm(model)


def test_string_labels__leave_as_onnx_only():
    X, y = load_iris(return_X_y=True)
    model = SVC().fit(X, np.array(["ant", "bee", "cat"])[y]).model_
    assert through_onnx(to_onnx(model), X)[0].tolist() == model.predict(X).tolist()
    with pytest.raises(InputError, match="labels are integers"):
        to_libsvm(model)


def test_scaling__goes_into_the_graph_or_beside_the_text(digits, tmp_path):
    X, y, T = digits
    shift, factor = X.mean(axis=0), 1.0 / (X.std(axis=0) + 1.0)
    model = SVC(multi_class="ovr").fit((X - shift) * factor, y).model_
    expected = model.predict((T - shift) * factor)
    assert export_model(model, tmp_path / "m.onnx", shift, factor) == [tmp_path / "m.onnx"]
    np.testing.assert_array_equal(through_onnx((tmp_path / "m.onnx").read_bytes(), T)[0], expected)
    text, limits = export_model(model, tmp_path / "m.libsvm", shift, factor)
    lines = [line.split() for line in limits.read_text().splitlines()[2:]]
    low, high = (np.array([float(line[c]) for line in lines]) for c in (1, 2))
    scaled = -1.0 + 2.0 * (T - low) / (high - low)  # svm-scale -r
    np.testing.assert_array_equal(through_libsvm(text.read_text(), scaled, tmp_path / "copy")[0], expected)
    assert export_model(model, tmp_path / "plain.libsvm") == [tmp_path / "plain.libsvm"]


def test_scale_range__has_one_line_per_feature():
    assert len(scale_range(np.zeros(3), np.ones(3)).splitlines()) == 5


@pytest.mark.parametrize("name", ["model.pkl", "model", "model.txt"])
def test_other_suffixes__are_refused(name, tmp_path):
    model = Model(Linear(), np.eye(2), np.array([[1.0, -1.0]]), np.zeros(1), np.array([0, 1]))
    with pytest.raises(InputError, match=r"\.libsvm or \.onnx"):
        export_model(model, tmp_path / name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "no line 'SV'"),
        ("svm_type wavelet_svr\nSV\n", "svm_type can be c_svc, .*wavelet_svr"),
        ("svm_type epsilon_svr\nSV\n", "lacks kernel_type, rho$"),
        ("svm_type c_svc\nkernel_type rbf\nSV\n", "lacks label, nr_sv, rho"),
        ("svm_type c_svc\nkernel_type wavelet\nlabel 0 1\nnr_sv 1 1\nrho 0\nSV\n1 1:1\n-1 1:2\n", "wavelet"),
    ],
)
def test_texts_that_are_no_classifier__are_refused(text, message):
    with pytest.raises(InputError, match=message):
        from_libsvm(text)


MACHINES = {
    "nu_svc": lambda **given: NuSVC(nu=0.1, **given),
    "epsilon_svr": lambda **given: SVR(C=5.0, **given),
    "nu_svr": lambda **given: NuSVR(nu=0.3, **given),
    "one_class": lambda **given: OneClassSVM(nu=0.2, **given),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("svm_type", MACHINES)
def test_other_machines__keep_their_values(digits, svm_type, form, kernel, tmp_path):
    X, y, T = digits
    X, T = form(X[:300] / 16.0), form(T[:200] / 16.0)
    fitted = MACHINES[svm_type](**KERNELS[kernel]).fit(X, y[:300])
    text = to_libsvm(fitted.model_)
    assert text.startswith(f"svm_type {svm_type}\n")
    # LIBSVM's Python has room for one decision value of a nu-SVC, and writes 45; its C predicts both in the same way
    labels, decision = through_libsvm(text.replace("type nu_svc", "type c_svc"), T, tmp_path / "model")
    back = from_libsvm(text, n_features=64)
    assert back.machine == fitted.model_.machine
    assert to_libsvm(back) == text
    for model in (fitted, type(fitted).from_model(back)):
        rows = T if model is fitted else sparse.csr_matrix(T)
        np.testing.assert_allclose(model.predict(rows), labels, atol=1e-9)
    check_onnx_and_decision(fitted, T, decision)


def check_onnx_and_decision(fitted, T, decision):
    content = to_onnx(fitted.model_)
    if isinstance(fitted, (SVR, NuSVR)):
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        rows = np.asarray(T.toarray() if sparse.issparse(T) else T, float)
        np.testing.assert_allclose(session.run(["value"], {"X": rows})[0].ravel(), fitted.predict(T), atol=1e-9)
        return
    labels, values = through_onnx(content, T)
    np.testing.assert_array_equal(labels, fitted.predict(T))
    np.testing.assert_allclose(values, fitted.model_.decision_function(T), atol=1e-9)
    sign = 1.0 if isinstance(fitted, OneClassSVM) else -1.0
    np.testing.assert_allclose(decision, sign * fitted.model_.decision_function(T), atol=1e-9)


def test_two_classes_of_nu_svc__are_read_by_libsvm(digits, tmp_path):
    X, y, T = digits
    model = NuSVC(nu=0.2).fit(X, np.where(y % 2 == 0, -1, 1)).model_
    labels, decision = through_libsvm(to_libsvm(model), T, tmp_path / "model")
    np.testing.assert_array_equal(labels, model.predict(T))
    np.testing.assert_allclose(decision, -model.decision_function(T), atol=1e-9)


def test_libsvms_own_regression__is_read(digits, tmp_path):
    X, y, T = digits
    trained = libsvm.svm_train(y.tolist(), sparse.csr_matrix(X), "-q -s 3 -c 3 -g 0.0005")
    libsvm.svm_save_model(str(tmp_path / "model"), trained)
    model = SVR.from_model(from_libsvm((tmp_path / "model").read_text(), n_features=64))
    values, _, _ = libsvm.svm_predict([0] * len(T), sparse.csr_matrix(T), trained, "-q")
    np.testing.assert_allclose(model.predict(sparse.csr_matrix(T)), values, atol=1e-6)


def test_several_targets__leave_as_onnx_only(digits):
    X, y, T = digits
    model = SVR().fit(X[:200], np.column_stack([y, y**2])[:200])
    with pytest.raises(InputError, match=r"one target; this one has 2: export to \.onnx"):
        to_libsvm(model.model_)
    session = onnxruntime.InferenceSession(to_onnx(model.model_), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["value"], {"X": T})[0], model.predict(T), atol=1e-9)


def test_model_of_another_machine__is_refused(digits):
    model = OneClassSVM().fit(digits[0]).model_
    with pytest.raises(InputError, match="SVC is for models that tell labels; this is one of one-class"):
        SVC.from_model(model)


def test_estimator__of_a_model(digits):
    X, y, T = digits
    for scheme in ("ovo", "ovr"):
        fitted = SVC(multi_class=scheme, kernel="poly", degree=2).fit(X, y)
        again = SVC.from_model(fitted.model_)
        np.testing.assert_array_equal(again.predict(T), fitted.predict(T))
        np.testing.assert_array_equal(again.decision_function(T), fitted.decision_function(T))
        if scheme == "ovo":
            np.testing.assert_array_equal(again.n_support_, fitted.n_support_)
        assert again.get_params()["kernel"] == "poly"
    back = SVC.from_model(from_libsvm(to_libsvm(SVC().fit(X, y).model_), n_features=64))
    np.testing.assert_array_equal(back.predict(sparse.csr_matrix(T)), SVC().fit(X, y).predict(T))
