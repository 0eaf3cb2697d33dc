"""Run scikit-learn's own tests of its searches, from the installed package, with this project's in their place.

The searches and the machines that they search are ours. `python tests/svmcore/run_sklearn_search_tests.py [options]`;
exit code and output are pytest's.
"""

from __future__ import annotations

import sys

import pytest
import sklearn.model_selection
import sklearn.svm

from svmcore import estimator

MODULE = "sklearn.model_selection.tests.test_search"

# Tests that do not hold for ours, each with its reason.
ABOUT_OURS = {
    "test_custom_run_search": "another search must have all fitted attributes of GridSearchCV, also its search_plan_",
}


class InTheirPlace:
    """pytest plugin: swap the classes before the test module is imported, and leave out what is listed above."""

    def pytest_configure(self, config: pytest.Config) -> None:
        for name in ("GridSearchCV", "RandomizedSearchCV"):
            setattr(sklearn.model_selection, name, getattr(estimator, name))
        for name in ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM"):
            setattr(sklearn.svm, name, getattr(estimator, name))

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if ABOUT_OURS.keys() & {item.originalname, item.name}]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def main(options: list[str]) -> int:
    """Run them; returns pytest's exit code."""
    fixed = ["--pyargs", MODULE, "-c", "/dev/null", "-p", "no:cacheprovider"]
    return int(pytest.main([*fixed, *options], plugins=[InTheirPlace()]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
