"""Run scikit-learn's own tests of SVC, from the installed package, with this project's SVC in its place.

`python tests/svmcore/run_sklearn_tests.py [pytest options]`; exit code and output are pytest's.
"""

from __future__ import annotations

import sys

import pytest
import sklearn.svm

from svmcore.estimator import SVC

MODULES = ("sklearn.svm.tests.test_svm", "sklearn.svm.tests.test_sparse")

SVR, ONE, LINEAR = "SVR, NuSVR or LinearSVR alone", "OneClassSVM alone", "LinearSVC and LIBLINEAR alone"

# Tests in which no SVC occurs.
OTHERS = {
    "test_svr": SVR,
    "test_linearsvr": SVR,
    "test_linearsvr_fit_sampleweight": SVR,
    "test_svr_errors": SVR,
    "test_svr_predict": SVR,
    "test_svm_regressor_sided_sample_weight": SVR,
    "test_sparse_fit_support_vectors_empty": SVR,
    "test_svr_coef_sign": SVR,
    "test_oneclass": ONE,
    "test_oneclass_decision_function": ONE,
    "test_oneclass_score_samples": ONE,
    "test_sparse_oneclasssvm": ONE,
    "test_n_support": "OneClassSVM, SVR and NuSVR",
    "test_linearsvc_parameters": LINEAR,
    "test_linearsvc": LINEAR,
    "test_linearsvc_crammer_singer": LINEAR,
    "test_linearsvc_fit_sampleweight": LINEAR,
    "test_crammer_singer_binary": LINEAR,
    "test_linearsvc_iris": LINEAR,
    "test_dense_liblinear_intercept_handling": LINEAR,
    "test_sparse_liblinear_intercept_handling": LINEAR,
    "test_liblinear_set_coef": LINEAR,
    "test_linearsvc_verbose": LINEAR,
    "test_lsvc_intercept_scaling_zero": LINEAR,
    "test_linear_svm_convergence_warnings": "LinearSVC and LinearSVR",
    "test_linearsvm_liblinear_sample_weight": "LinearSVC and LinearSVR",
    "test_dual_auto": "a private function of LinearSVC",
    "test_dual_auto_edge_cases": "a private function of LinearSVC",
}

# Tests that use SVC and do not hold for it here; at most six.
TWO_RUNS = (
    "two fits at tol 1e-3, on a kernel and on its values, must agree in alpha to 6 digits, which tol does not promise; "
    "test_estimator.py compares them at tol 1e-8"
)
ABOUT_SVC = {
    "test_tweak_params": "assigns to the private _dual_coef_ to probe the binding of LIBSVM; there is no binding here",
    "test_precomputed": TWO_RUNS,
    "test_svc_clone_with_callable_kernel": TWO_RUNS,
}


class InPlaceOfSVC:
    """pytest plugin: swap the class before the test modules are imported, and leave out what is listed above."""

    def pytest_configure(self, config: pytest.Config) -> None:
        sklearn.svm.SVC = SVC

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        listed = OTHERS | ABOUT_SVC
        left_out = [item for item in items if item.originalname in listed]
        unknown = set(listed) - {item.originalname for item in left_out}
        if unknown and not config.getoption("keyword"):
            raise pytest.UsageError(f"listed, but not a test of this scikit-learn: {sorted(unknown)}")
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def main(options: list[str]) -> int:
    """Run them; returns pytest's exit code."""
    fixed = ["--pyargs", *MODULES, "-c", "/dev/null", "-p", "no:cacheprovider"]
    return int(pytest.main([*fixed, *options], plugins=[InPlaceOfSVC()]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
