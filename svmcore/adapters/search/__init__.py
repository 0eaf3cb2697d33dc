"""GridSearchCV and RandomizedSearchCV: scikit-learn's, with the trainings of our machines solved together first.

scikit-learn's own code does the search. Before it fits and scores, all candidates on all folds are trained on shared
kernel matrices (`svmcore.train.shared`); its fits then find their trainings ready (`svmcore.adapters.prepared`). A
fit that finds none trains as always, so whatever cannot be shared is what it is without this package.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from joblib import effective_n_jobs, parallel_config
from sklearn import model_selection
from sklearn.utils import indexable

from svmcore.adapters.prepared import preparing
from svmcore.adapters.search.plan import Ready, SearchPlan
from svmcore.adapters.search.tables import Data, machine_of, prepare

__all__ = ["GridSearchCV", "RandomizedSearchCV", "SearchPlan"]


class _Sharing:
    """What both searches add to scikit-learn's."""

    search_plan_: SearchPlan
    _routed: Any

    def fit(self, X: Any, y: Any = None, **params: Any) -> Any:
        """As scikit-learn's `fit`; `search_plan_` says afterwards what was shared."""
        self._given, self._routed, self._ready = indexable(X, y), None, Ready()
        self._jobs = effective_n_jobs(self.n_jobs)  # type: ignore[attr-defined]
        ours = machine_of(self.estimator)[0] is not None  # type: ignore[attr-defined]
        try:  # what is ready is found in this process alone
            with parallel_config(backend="sequential") if ours else contextlib.nullcontext():
                super().fit(X, y, **params)  # type: ignore[misc]
            self.search_plan_ = self._ready.plan()
        finally:
            del self._given, self._routed, self._ready, self._jobs
        return self

    def _get_routed_params_for_fit(self, params: Any) -> Any:
        self._routed = super()._get_routed_params_for_fit(params)  # type: ignore[misc]
        return self._routed

    def _run_search(self, evaluate_candidates: Callable[..., Any], *, callback_ctx: Any = None) -> None:
        def evaluate(candidates: Any, cv: Any = None, **given: Any) -> Any:
            drawn = _Drawn(cv or self._checked_cv_orig, *self._given, **self._routed.splitter.split)  # type: ignore[attr-defined]
            candidates = list(candidates)
            self._ready = self._prepared(candidates, drawn.splits)
            with preparing(self._ready.trainings):
                return evaluate_candidates(candidates, cv=drawn, **given)

        context = {} if callback_ctx is None else {"callback_ctx": callback_ctx}
        super()._run_search(evaluate, **context)  # type: ignore[misc]

    def _prepared(self, candidates: list[dict[str, Any]], splits: list[Any]) -> Ready:
        X, y = self._given
        data = Data(X, y, self._routed.estimator.fit, splits, self.return_train_score, self._jobs)  # type: ignore[attr-defined]
        watched = bool(getattr(self, "_skl_callbacks", None))
        return prepare(self.estimator, candidates, data, watched)  # type: ignore[attr-defined]

    def _format_results(self, candidate_params: Any, n_splits: int, out: Any, more_results: Any = None) -> Any:
        for place in self._ready.places:  # shared seconds in equal parts
            out[place]["fit_time"] += self._ready.seconds / len(self._ready.places)
        return super()._format_results(candidate_params, n_splits, out, more_results)  # type: ignore[misc]


class _Drawn:
    """Splits as they were drawn: a splitter may draw others the next time."""

    def __init__(self, cv: Any, *data: Any, **given: Any) -> None:
        self.splits = list(cv.split(*data, **given))

    def split(self, *_: Any, **__: Any) -> list[Any]:
        """All splits."""
        return self.splits


class GridSearchCV(_Sharing, model_selection.GridSearchCV):
    """scikit-learn's GridSearchCV, which trains our machines on shared kernel matrices.

    The estimator may be SVC, NuSVC, SVR, NuSVR or OneClassSVM, or a Pipeline that ends in one; any other is searched by
    scikit-learn's code as it is. Parameters, methods and results are those of `sklearn.model_selection.GridSearchCV`.

    Attributes
    ----------
    search_plan_
        `SearchPlan`: what was shared, what that saved, and why some fits were not.

    >>> from svmcore.estimator import SVC
    >>> X, y = [[-2.0, 0], [-1, 1], [-1, 0], [1, 0], [1, 1], [2, 0]], [0, 0, 0, 1, 1, 1]
    >>> search = GridSearchCV(SVC(), {"C": [1.0, 10.0], "gamma": [0.1, 1.0]}, cv=3).fit(X, y)
    >>> plan = search.search_plan_
    >>> float(search.best_score_), plan.shared, plan.kernels, plan.products
    (1.0, 12, 2, 1)
    """


class RandomizedSearchCV(_Sharing, model_selection.RandomizedSearchCV):
    """scikit-learn's RandomizedSearchCV, which trains our machines on shared kernel matrices; see `GridSearchCV`.

    Candidates that are drawn share a kernel matrix where they share its parameters; the others share the products.
    """
