"""Run scikit-learn's own tests of its kernel machines, from the installed package, with this project's in their place.

`python tests/svmcore/run_sklearn_tests.py [pytest options]`; exit code and output are pytest's.
"""

from __future__ import annotations

import sys

import pytest
import sklearn.svm

from svmcore import estimator

MODULES = ("sklearn.svm.tests.test_svm", "sklearn.svm.tests.test_sparse")
MACHINES = ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM")

LINEAR = "LinearSVC, LinearSVR and LIBLINEAR alone"

# Tests in which no kernel machine occurs.
OTHERS = {
    "test_linearsvr_fit_sampleweight": LINEAR,
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
    "test_linear_svm_convergence_warnings": LINEAR,
    "test_linearsvm_liblinear_sample_weight": LINEAR,
    "test_dual_auto": LINEAR,
    "test_dual_auto_edge_cases": LINEAR,
}

# Tests that use them and do not hold for them here, whole or with one parameter; at most six.
TWO_RUNS = (
    "two fits at tol 1e-3, on a kernel and on its values, must agree in alpha to 6 digits, which tol does not promise; "
    "test_estimator.py and test_machines.py compare them at tol 1e-8"
)
ABOUT_OURS = {
    "test_tweak_params": "assigns to the private _dual_coef_ to probe the binding of LIBSVM; there is no binding here",
    "test_precomputed": TWO_RUNS,
    "test_svc_clone_with_callable_kernel": TWO_RUNS,
    "test_custom_kernel_not_array_input[SVR]": TWO_RUNS,
    "test_negative_weight_equal_coeffs[partial-mask-label-2-NuSVR]": "two coefficients must agree to 1e-3 at tol 1e-3, "
    "which tol does not promise; test_machines.py has it at tol 1e-8",
    "test_svr_errors": "a kernel of the wrong shape must be refused by predict alone; here fit refuses it",
}


class InTheirPlace:
    """pytest plugin: swap the classes before the test modules are imported, and leave out what is listed above."""

    def pytest_configure(self, config: pytest.Config) -> None:
        for name in MACHINES:
            setattr(sklearn.svm, name, getattr(estimator, name))

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        listed = OTHERS | ABOUT_OURS
        left_out = [item for item in items if listed.keys() & {item.originalname, item.name}]
        unknown = set(listed) - {name for item in left_out for name in (item.originalname, item.name)}
        if unknown and not config.getoption("keyword"):
            raise pytest.UsageError(f"listed, but not a test of this scikit-learn: {sorted(unknown)}")
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def main(options: list[str]) -> int:
    """Run them; returns pytest's exit code."""
    fixed = ["--pyargs", *MODULES, "-c", "/dev/null", "-p", "no:cacheprovider"]
    return int(pytest.main([*fixed, *options], plugins=[InTheirPlace()]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
