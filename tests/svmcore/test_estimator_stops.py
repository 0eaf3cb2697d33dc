"""A fit that is ended early, by a limit, Ctrl-C or a callback, leaves a usable model that says how far it got."""

import _thread
import io
import signal
import threading
import time
from contextlib import redirect_stdout

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from svmcore import Status
from svmcore.estimator import SVC
from svmcore.runtime.interrupt import stop_on_interrupt


@pytest.fixture(scope="module")
def hopeless():
    """2,000 rows with random labels: at C = 1e7 and tol 1e-9 no solver ends soon."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(2000, 3)), rng.integers(0, 2, 2000)


def endless(**given):
    return SVC(C=1e7, tol=1e-9, gamma=0.5, **given)


def check_usable(model, X, status):
    assert model.status_ == (status,)
    assert model.fit_status_ == 1
    assert model.predict(X).shape == (len(X),)
    certificate = model.certificate_[0]
    assert certificate.dual <= certificate.primal
    assert certificate.kkt_gap > 1e-9
    assert certificate.infeasibility <= 1e-6 * model.C


def test_time_limit__ends_within_a_second(hopeless):
    began = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match=r"time_limit=0.3.*KKT gap is \d"):
        model = endless(time_limit=0.3).fit(*hopeless)
    assert time.perf_counter() - began < 3.0
    check_usable(model, hopeless[0], Status.TIME_LIMIT)


def test_time_limit__is_for_all_problems_together(hopeless):
    X = hopeless[0]
    y = np.random.default_rng(1).integers(0, 4, len(X))
    began = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="of 6 problems did not converge"):
        model = endless(time_limit=0.3).fit(X, y)
    assert time.perf_counter() - began < 3.0
    assert len(model.certificate_) == 6


def test_max_iter__counts_pair_steps(hopeless):
    with pytest.warns(ConvergenceWarning, match=r"max_iter=50.*KKT gap"):
        model = endless(max_iter=50).fit(*hopeless)
    assert model.n_iter_.tolist() == [50]
    check_usable(model, hopeless[0], Status.MAX_ITER)


def test_keyboard_interrupt__leaves_a_certified_model(hopeless):
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    with pytest.warns(ConvergenceWarning, match=r"interrupted.*KKT gap is \d"):
        model = endless(time_limit=60).fit(*hopeless)
    timer.join()
    check_usable(model, hopeless[0], Status.STOPPED)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_keyboard_interrupt_twice__is_raised():
    with stop_on_interrupt() as interrupted:
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_a_thread__signals_are_left_alone(hopeless):
    X, y = hopeless[0][:200], hopeless[1][:200]
    fitted = []
    thread = threading.Thread(target=lambda: fitted.append(SVC().fit(X, y)))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(fitted[0].dual_coef_, SVC().fit(X, y).dual_coef_)


class Recorder:
    """A callback that notes the tasks, and asks to stop at the end of the task named `stop_at`."""

    def __init__(self, stop_at=None):
        self.stop_at, self.log = stop_at, []

    def setup(self, estimator, context):
        self.log.append(("setup", context.task_name))

    def teardown(self, estimator, context):
        self.log.append(("teardown", context.task_name))

    def on_fit_task_begin(self, estimator, context):
        self.log.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context):
        self.log.append(("end", context.task_name))
        return context.task_name == self.stop_at


@pytest.fixture(scope="module")
def three():
    from sklearn.datasets import load_iris

    return load_iris(return_X_y=True)


def test_callbacks__see_every_problem(three):
    recorder = Recorder()
    SVC().set_callbacks(recorder).fit(*three)
    assert recorder.log[:2] == [("setup", "fit"), ("begin", "fit")]
    assert recorder.log[-2:] == [("end", "fit"), ("teardown", "fit")]
    for event in ("begin", "end"):
        assert recorder.log.count((event, "problem")) == 3
        assert recorder.log.count((event, "report")) >= 3


def test_callback__can_stop_a_fit(hopeless):
    with pytest.warns(ConvergenceWarning, match="stopped by a callback"):
        model = endless(time_limit=60).set_callbacks(Recorder(stop_at="report")).fit(*hopeless)
    check_usable(model, hopeless[0], Status.STOPPED)


def test_scoring_monitor__scores_the_fitted_model(three):
    from sklearn.callback import ScoringMonitor

    X, y = three
    monitor = ScoringMonitor(scoring="accuracy")
    model = SVC().set_callbacks(monitor).fit(X, y)
    scores = [row["accuracy"] for row in monitor.get_logs().data if "accuracy" in row]
    assert scores == [model.score(X, y)]


def test_progress_bar__runs_through_a_search(three, capsys):
    from sklearn.callback import ProgressBar

    search = GridSearchCV(SVC(), {"C": [0.1, 1.0]}, cv=2)
    search.set_callbacks(ProgressBar(max_propagation_depth=None)).fit(*three)
    assert "SVC" in capsys.readouterr().out


def test_verbose__tells_the_gap(three):
    with redirect_stdout(io.StringIO()) as out:
        SVC(verbose=True).fit(*three)
    assert out.getvalue().startswith("[SVC] problem 0: ")
    assert "KKT gap" in out.getvalue()
