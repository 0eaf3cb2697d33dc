"""GridSearchCV and RandomizedSearchCV: scikit-learn's, with the trainings of our machines solved together first.

scikit-learn's own code does the search. Before it fits and scores, all candidates on all folds are trained on shared
kernel matrices (`svmcore.train.shared`); its fits then find their trainings ready (`svmcore.adapters.prepared`). A
fit that finds none trains as always, so whatever cannot be shared is what it is without this package.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
from joblib import effective_n_jobs, parallel_config
from sklearn import config_context, model_selection
from sklearn.utils import _safe_indexing, indexable

from svmcore.adapters.prepared import preparing
from svmcore.adapters.search.choice import Along, along_C, proved
from svmcore.adapters.search.plan import Ready, SearchPlan
from svmcore.adapters.search.rows import SearchRows, search_rows
from svmcore.adapters.search.tables import Data, machine_of, prepare
from svmcore.errors import Unsupported
from svmcore.train.choice import Choice

__all__ = ["GridSearchCV", "RandomizedSearchCV", "SearchPlan"]


class _Sharing:
    """What both searches add to scikit-learn's."""

    search_plan_: SearchPlan
    _routed: Any
    _splits: list[Any]

    def fit(self, X: Any, y: Any = None, **params: Any) -> Any:
        """As scikit-learn's `fit`; `search_plan_` says afterwards what was shared."""
        machine, steps = machine_of(self.estimator)  # type: ignore[attr-defined]
        ours = machine is not None
        X = search_rows(X) if ours and steps is None else X
        self._given, self._routed, self._ready, self._splits = indexable(X, y), None, Ready(), []
        self._jobs = effective_n_jobs(self.n_jobs)  # type: ignore[attr-defined]
        try:  # what is ready is found in this process alone
            with parallel_config(backend="sequential") if ours else nullcontext():
                super().fit(X, y, **params)  # type: ignore[misc]
            self.search_plan_ = self._ready.plan()
            self._along = self._beside_the_best()
        finally:
            del self._given, self._routed, self._ready, self._splits, self._jobs
        return self

    @property
    def choice_of_C_(self) -> Choice:
        """What is proved of every C between those of the grid, all else as in the best candidate.

        It is computed when it is asked for, from the trainings of the search, which are not stored with it.

        Raises
        ------
        AttributeError
            Where nothing can be proved, saying why: for another machine than an SVC with the hinge loss and a kernel
            by name, another score than the accuracy, trainings that were not shared, one C, or no best candidate.
        """
        along = self.__dict__.get("_along")
        if along is None:
            raise AttributeError("choice_of_C_: no shared trainings of a best candidate that is ranked by accuracy")
        try:
            return proved(along)
        except Unsupported as error:
            raise AttributeError(f"choice_of_C_: {error}") from error

    def _beside_the_best(self) -> Along | None:
        """The trainings that `choice_of_C_` is made of."""
        metric = self.refit if self.multimetric_ else self.scoring or "accuracy"  # type: ignore[attr-defined]
        y = self._given[1]
        if y is None or metric != "accuracy" or not hasattr(self, "best_index_"):
            return None
        labels = [np.asarray(_safe_indexing(y, test)) for _, test in self._splits]
        name = "accuracy" if self.multimetric_ else "score"  # type: ignore[attr-defined]
        return along_C(self._ready, self.cv_results_, self.best_index_, labels, name)  # type: ignore[attr-defined]

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_along"}

    def _get_routed_params_for_fit(self, params: Any) -> Any:
        self._routed = super()._get_routed_params_for_fit(params)  # type: ignore[misc]
        return self._routed

    def _run_search(self, evaluate_candidates: Callable[..., Any], *, callback_ctx: Any = None) -> None:
        def evaluate(candidates: Any, cv: Any = None, **given: Any) -> Any:
            drawn = _Drawn(cv or self._checked_cv_orig, *self._given, **self._routed.splitter.split)  # type: ignore[attr-defined]
            candidates = list(candidates)
            self._splits = drawn.splits
            self._keep_parts(drawn.splits)
            self._ready = self._prepared(candidates, drawn.splits)
            checked = len(self._ready.trainings) == self._ready.fits  # all numbers were looked at, once
            with preparing(self._ready.trainings), config_context(assume_finite=True) if checked else nullcontext():
                return evaluate_candidates(candidates, cv=drawn, **given)

        context = {} if callback_ctx is None else {"callback_ctx": callback_ctx}
        super()._run_search(evaluate, **context)  # type: ignore[misc]

    def _keep_parts(self, splits: list[Any]) -> None:
        """Take the rows of each fold once, where nobody but our machines is given them."""
        rows, machine = self._given[0], machine_of(self.estimator)[0]  # type: ignore[attr-defined]
        if isinstance(rows, SearchRows):
            alone = not self.return_train_score, _is_named(self.scoring)  # type: ignore[attr-defined]
            parts = [part for split in splits for part, kept in zip(split, alone, strict=True) if kept]
            rows.keep(parts, int(machine.cache_size * 2**20))  # type: ignore[union-attr]

    def _prepared(self, candidates: list[dict[str, Any]], splits: list[Any]) -> Ready:
        X, y = self._given
        data = Data(X, y, self._routed.estimator.fit, splits, self.return_train_score, self._jobs)  # type: ignore[attr-defined]
        watched = bool(getattr(self, "_skl_callbacks", None))
        return prepare(self.estimator, candidates, data, watched)  # type: ignore[attr-defined]

    def _format_results(self, candidate_params: Any, n_splits: int, out: Any, more_results: Any = None) -> Any:
        for place in self._ready.places:  # shared seconds in equal parts
            out[place]["fit_time"] += self._ready.seconds / len(self._ready.places)
        return super()._format_results(candidate_params, n_splits, out, more_results)  # type: ignore[misc]


def _is_named(scoring: Any) -> bool:
    """Whether scikit-learn's scorers alone see the rows that are scored: they change nothing in them."""
    return scoring is None or isinstance(scoring, str)


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
    choice_of_C_
        `svmcore.train.choice.Choice`: how many rows any C between those of the grid could have right beyond the best.

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
