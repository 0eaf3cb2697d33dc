import dataclasses
import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC
from sklearn.utils.class_weight import compute_class_weight

from pipeline.answers import problem as problems
from pipeline.answers import solve
from pipeline.answers.problem import ProblemTask, bounds, held_out_counts
from pipeline.answers.result import find_result, read_result, stored_decision
from pipeline.answers.solve import solve_chains, solve_problem
from pipeline.compute.workers import InlineWorkers
from pipeline.config.load import load_experiment
from pipeline.kernel.columns import computed_columns
from pipeline.kernel.gram import compute_gram, open_gram
from pipeline.rows.dataset import ingest, open_dataset
from pipeline.storage.leases import LeaseLost
from pipeline.storage.sealed import Sealed
from svmcore.kernels import Kernel
from svmcore.solvers import shrinking
from svmcore.sources import ResidentGram, resident
from svmcore.train.posing.plan import cached

from ..stored_numbers import numbers

GAMMA, C = 0.1, 5.0


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """400 rows, 60 of them copies, three uneven classes that overlap."""
    rng = np.random.default_rng(1)
    y = rng.choice(3, size=340, p=[0.6, 0.3, 0.1])
    X = rng.normal(size=(340, 5)) + 1.2 * y[:, None]
    X, y = np.concatenate([X, X[:60]]), np.concatenate([y, y[:60]])
    path = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(path, X=X, y=y)
    return path, X, y


def a_task(path, root, target, **changes):
    """One class against the rest on a finished Gram."""
    data = ingest(load_experiment({"data": {"source": str(path)}}), root)
    kernel = Kernel.create({"name": "rbf", "gamma": GAMMA})
    gram = compute_gram(data, kernel, np.float64, root, InlineWorkers())
    task = ProblemTask(
        root=str(root),
        dataset=str(data.path),
        gram=str(gram.path),
        data=data.fingerprint,
        kernel_id=gram.fingerprint,
        kernel=kernel.spec(),
        machine={"name": "svc", "loss": "hinge", "bias": "free"},
        multiclass="ovr",
        target=target,
        C=C,
        class_weight=None,
        solver={"name": "smo", "tol": 1e-6},
    )
    return dataclasses.replace(task, **changes)


@pytest.fixture(scope="module")
def task(rows, tmp_path_factory):
    """Class 1 of `rows` against the rest."""
    return a_task(rows[0], tmp_path_factory.mktemp("cache"), 1)


def elsewhere(task, tmp_path, **changes):
    """The same problem with a cache of its own, so that no answer is found."""
    return dataclasses.replace(task, root=str(tmp_path), **changes)


def original(task, decision):
    """Decision values of the original rows from those of the merged ones."""
    return decision[open_dataset(task.dataset).inverse()]


def test_problem__agrees_with_libsvm_in_objective_and_decision(task, rows, tmp_path):
    task = elsewhere(task, tmp_path)
    result = solve_problem(task)
    _, X, y = rows
    sign = np.where(y == 1, 1.0, -1.0)
    peer = SVC(C=C, gamma=GAMMA, tol=1e-8).fit(X, sign)
    coef = np.zeros(len(X))
    coef[peer.support_] = peer.dual_coef_[0]
    K = np.exp(-GAMMA * ((X[:, None] - X) ** 2).sum(axis=2))
    dual = np.abs(coef).sum() - 0.5 * coef @ K @ coef
    assert result.status == "converged"
    assert result.certificate["kkt_gap"] <= 1e-6
    assert result.certificate["dual"] == pytest.approx(dual, rel=1e-6)
    assert original(task, stored_decision(task)) == pytest.approx(peer.decision_function(X), abs=1e-4)
    assert result.norm2 == pytest.approx(coef @ K @ coef, rel=1e-5)


def test_problem__counts_are_of_original_rows(task, tmp_path):
    task = elsewhere(task, tmp_path)
    result = solve_problem(task)
    counts = open_dataset(task.dataset).counts()
    assert counts.max() == 2
    assert result.n_support == counts[result.support].sum()
    at_bound = np.abs(result.beta) >= C * counts[result.support]
    assert 0 < result.n_bounded == counts[result.support][at_bound].sum() < result.n_support


def test_problem__is_found_again_until_its_bytes_change(task, tmp_path):
    task = elsewhere(task, tmp_path)
    first = solve_problem(task)
    assert not first.reused
    again = solve_problem(task)
    assert again.reused
    assert np.array_equal(again.beta, first.beta)
    file = task.file
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert find_result(task) is None
    assert not solve_problem(task).reused
    assert find_result(task) is not None


def test_problem__one_whose_numbers_were_changed_is_solved_again(task, tmp_path):
    """Not only its arrays are under a hash."""
    task = elsewhere(task, tmp_path)
    bias = solve_problem(task).bias
    first, rest = task.file.read_bytes().split(b"\n", 1)
    task.file.write_bytes(json.dumps(json.loads(first) | {"bias": bias + 1.0}).encode() + b"\n" + rest)
    assert find_result(task) is None
    assert solve_problem(task).bias == bias


def test_problem__one_that_ran_out_of_time_is_readable_but_not_finished(task, tmp_path):
    hard = {"name": "smo", "tol": 1e-9, "time_limit": 1e-9}
    task = elsewhere(task, tmp_path, C=1e5, solver=hard)
    result = solve_problem(task)
    assert result.status == "time_limit"
    assert find_result(task) is None
    assert read_result(task).certificate == result.certificate


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data", "other"),
        ("kernel_id", "other"),
        ("kernel", {"name": "linear"}),
        ("target", 2),
        ("C", 6.0),
        ("C", None),
        ("class_weight", "balanced"),
        ("machine", {"name": "svc", "loss": "squared_hinge", "bias": "free"}),
        ("machine", {"name": "svc", "loss": "hinge", "bias": "none"}),
        ("machine", {"name": "nu-svc", "nu": 0.1}),
        ("solver", {"name": "smo", "tol": 1e-5}),
        ("multiclass", "ovo"),
        ("fold", (5, 0, 1)),
        ("warm", "0" * 64),
    ],
)
def test_fingerprint__covers_what_changes_the_answer(task, field, value):
    assert dataclasses.replace(task, **{field: value}).fingerprint != task.fingerprint


@pytest.mark.parametrize("field", ["root", "dataset", "gram"])
def test_fingerprint__does_not_depend_on_where_things_are(task, field):
    assert dataclasses.replace(task, **{field: "/elsewhere"}).fingerprint == task.fingerprint


def test_bounds__balanced_weights_are_those_of_scikit_learn(task, rows):
    _, _, y = rows
    weights = compute_class_weight("balanced", classes=np.arange(3), y=y)
    data = open_dataset(task.dataset)
    expected = C * data.counts() * weights[data.targets()]
    assert bounds(dataclasses.replace(task, class_weight="balanced")) == pytest.approx(expected)
    given = dataclasses.replace(task, class_weight=[1.0, 2.0, 0.5])
    assert bounds(given) == pytest.approx(C * data.counts() * np.array([1.0, 2.0, 0.5])[data.targets()])


def test_bounds__hard_margin_leaves_the_held_out_rows_at_zero(task):
    C_i = bounds(dataclasses.replace(task, C=None, fold=(5, 0, 2)))
    assert set(np.unique(C_i)) == {0.0, np.inf}


def test_fold__decision_is_the_prediction_of_a_model_trained_without_it(task, rows, tmp_path):
    _, X, y = rows
    folds = StratifiedKFold(4, shuffle=True, random_state=7).split(X, y)
    for index, (train, test) in enumerate(folds):
        if index in (0, 3):
            fold = elsewhere(task, tmp_path, fold=(4, 7, index))
            solve_problem(fold)
            peer = SVC(C=C, gamma=GAMMA, tol=1e-8).fit(X[train], np.where(y[train] == 1, 1, -1))
            decision = np.full(open_dataset(task.dataset).n_merged, np.nan)
            decision[held_out_counts(fold.dataset, fold.fold) > 0] = stored_decision(fold)
            ours = original(fold, decision)[test]
            assert ours == pytest.approx(peer.decision_function(X[test]), abs=1e-4)


def test_warm_start__from_the_own_optimum_takes_no_step(task, tmp_path):
    cold = solve_problem(elsewhere(task, tmp_path))
    warm = solve_problem(elsewhere(task, tmp_path, warm=cold.fingerprint))
    assert cold.n_iter > 10
    assert warm.n_iter <= 1
    assert warm.certificate["dual"] == pytest.approx(cold.certificate["dual"], rel=1e-9)


def some_tasks(task, tmp_path):
    return [elsewhere(task, tmp_path, target=target) for target in range(3)]


def alone(tasks):
    """Each problem as a chain of its own."""
    return [(task,) for task in tasks]


def test_problems__threads_and_worker_processes_give_the_same_bytes(task, two_workers, tmp_path):
    here, there = (some_tasks(task, tmp_path / name) for name in ("threads", "workers"))
    solve_chains(alone(here))
    solve_chains(alone(there), two_workers)
    for ours, theirs in zip(map(read_result, here), map(read_result, there), strict=True):
        assert np.array_equal(ours.beta, theirs.beta)
        assert (ours.bias, ours.certificate) == (theirs.bias, theirs.certificate)
    assert all(ended.reused for ended in solve_chains(alone(there)))


def test_problems__read_the_dataset_once_for_all_of_them(task, tmp_path, monkeypatch):
    """Opening it reads and checks arrays: five times what a problem of 150 rows takes."""
    solve_problem(elsewhere(task, tmp_path))
    seen, read = [], Sealed.read
    monkeypatch.setattr(Sealed, "read", lambda self, name, *rows: seen.append(name) or read(self, name, *rows))
    for each in (1.0, 2.0, 3.0):
        solve_problem(elsewhere(task, tmp_path, C=each))
    assert seen == []


def test_problems__on_threads_share_one_mapping_of_K(task, monkeypatch):
    def slowly(path):
        time.sleep(0.1)
        return opened(path)

    opened = problems.open_gram
    monkeypatch.setattr(problems, "open_gram", slowly)
    problems._resident.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(problems.stored_source, [task] * 4))
    assert len({id(source) for source in found}) == 1


def test_problems__are_under_way_at_once_on_a_k_in_memory_and_one_by_one_on_a_cache(task, tmp_path, monkeypatch):
    def counted(work, threads, give_up):
        used.append(threads)
        return side_by_side(work, threads, give_up)

    used, side_by_side = [], solve.side_by_side
    monkeypatch.setattr(solve, "side_by_side", counted)
    monkeypatch.setattr(resident, "n_threads", lambda: 2)
    kernel, there = Kernel.create(task.kernel).centred(), some_tasks(task, tmp_path / "mapped")
    local = computed_columns(task.dataset, kernel, np.float32)
    for source in (ResidentGram(open_gram(task.gram), local), cached(local, 1 << 20)):
        here = some_tasks(task, tmp_path / type(source).__name__)
        solve_chains(alone(here), source=source)
        for ours, theirs in zip(map(read_result, here), map(solve_problem, there), strict=True):
            assert ours.certificate["dual"] == pytest.approx(theirs.certificate["dual"], rel=1e-5)
    assert used == [2, 1]


def test_problems__that_leave_rows_out_are_under_way_at_once_on_a_cache_too(task, tmp_path, monkeypatch):
    used, solved_together = [], solve.solved_together
    monkeypatch.setattr(solve, "solved_together", lambda *given: used.append(given[2]) or solved_together(*given))
    monkeypatch.setattr(shrinking, "LEAST", 16)
    monkeypatch.setattr(solve, "n_threads", lambda: 2)
    kernel, there = Kernel.create(task.kernel).centred(), some_tasks(task, tmp_path / "mapped")
    here = some_tasks(task, tmp_path / "columns")
    solve_chains(alone(here), source=cached(computed_columns(task.dataset, kernel, np.float32), 1 << 20))
    assert used == [2]
    for ours, theirs in zip(map(read_result, here), map(solve_problem, there), strict=True):
        assert ours.status == "converged"
        assert ours.certificate["dual"] == pytest.approx(theirs.certificate["dual"], rel=1e-5)


def test_problems__progress_ends_with_every_label_and_leaves_no_folder(task, tmp_path):
    told = []
    tasks = some_tasks(task, tmp_path)
    names = dict(zip((task.fingerprint for task in tasks), "abc", strict=True))
    solve_chains(
        alone(tasks), progress=lambda stage, done, total, **info: told.append((done, total, info)), names=names
    )
    ended = [info["label"] for _, _, info in told if info["status"] == "converged"]
    assert sorted(ended) == ["a", "b", "c"]
    assert told[-1][:2] == (3, 3)
    assert not (tmp_path / "live").exists()


@pytest.mark.parametrize(("quiet", "told"), [(-1.0, ["converged"]), (3600.0, [])], ids=["long", "short"])
def test_problem__a_long_one_says_itself_that_it_has_ended(task, tmp_path, monkeypatch, quiet, told):
    monkeypatch.setattr(solve, "QUIET_SECONDS", quiet)
    live = tmp_path / "live"
    live.mkdir()
    task = elsewhere(task, tmp_path)
    found = solve_problem(task, live=str(live))
    lines = [json.loads(file.read_text()) for file in live.iterdir()]
    assert [line[3] for line in lines] == told
    assert [line[2] for line in lines] == [found.certificate["kkt_gap"]] * len(told)


def test_problems__an_interrupt_stops_the_running_ones_within_a_second(task, noise_npz, tmp_path):
    endless = a_task(noise_npz, tmp_path, 0, C=1e6, solver={"name": "smo", "tol": 1e-13})
    tasks = [elsewhere(task, tmp_path), endless]

    def interrupt(stage, done, total, status, **info):
        if threading.current_thread() is threading.main_thread() and done == 1:
            interrupted.append(time.monotonic())
            raise KeyboardInterrupt

    interrupted = []
    with pytest.raises(KeyboardInterrupt):
        solve_chains(alone(tasks), progress=interrupt)
    assert time.monotonic() - interrupted[0] < 1.5
    assert find_result(tasks[0]) is not None
    assert find_result(tasks[1]) is None


# ---- taken over
@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """200 rows of three classes that do not meet: from some C on none is at its bound."""
    rng = np.random.default_rng(2)
    y = np.arange(200) % 3
    X = rng.normal(size=(200, 5)) + 6.0 * np.eye(5)[y]
    path = tmp_path_factory.mktemp("apart") / "rows.npz"
    np.savez(path, X=X, y=y)
    return path, X, y


def chain_of(path, root, *Cs):
    chain = [dataclasses.replace(a_task(path, root, 1), C=Cs[0])]
    for C_ in Cs[1:]:
        chain.append(dataclasses.replace(chain[-1], C=C_, warm=chain[-1].fingerprint))
    return chain


def test_chain__an_answer_that_wider_boxes_leave_is_taken_over_with_its_proof(apart, tmp_path):
    path, X, y = apart
    chain = chain_of(path, tmp_path, 0.05, 100.0, 1000.0)
    assert [step.status for step in solve.solve_chain(chain)] == ["converged"] * 3
    first, free, wider = (read_result(task) for task in chain)
    assert first.n_bounded > 0 < free.n_iter  # bounds that moved: solved again
    assert free.n_bounded == 0 == wider.n_iter
    np.testing.assert_array_equal(wider.beta, free.beta)
    peer = SVC(C=1000.0, gamma=GAMMA, tol=1e-9).fit(X, y == 1)
    coef, K = peer.dual_coef_[0], rbf_kernel(X[peer.support_], gamma=GAMMA)
    dual = np.abs(coef).sum() - 0.5 * coef @ K @ coef
    assert wider.certificate["dual"] == pytest.approx(dual, rel=1e-6)
    assert wider.certificate["dual"] <= dual * (1 + 1e-9) <= wider.certificate["primal"] * (1 + 1e-6)
    assert wider.certificate["bar"] <= 1e-6 * wider.certificate["primal"]


def test_chain__an_answer_is_taken_over_to_the_same_bytes_where_the_chain_was_cut(apart, tmp_path):
    whole, cut = (chain_of(apart[0], tmp_path / name, 100.0, 1000.0) for name in ("whole", "cut"))
    solve.solve_chain(whole)
    solve.solve_chain(cut[:1])
    solve.solve_chain(cut)
    ours, theirs = read_result(cut[1]), read_result(whole[1])
    assert numbers(cut[1]) == numbers(whole[1])
    assert (ours.certificate, ours.bias, ours.n_iter) == (theirs.certificate, theirs.bias, 0)


# ---- cut short or given up
def test_stopped__an_answer_is_not_kept_and_not_read(task, tmp_path):
    task = elsewhere(task, tmp_path)
    assert solve_problem(task, live=str(tmp_path / "gone")).status == "stopped"
    with pytest.raises(FileNotFoundError):
        read_result(task)


@pytest.mark.parametrize("cut", [{}, {"time_limit": 1e-9}], ids=["stopped", "time limit"])
def test_cut_short__never_stands_where_another_run_finished_meanwhile(task, tmp_path, monkeypatch, cut):
    """The other run is faster: it finishes the same problem while this one is inside its solver."""
    whole = elsewhere(task, tmp_path, C=1e4)
    ours = dataclasses.replace(whole, solver=whole.solver | cut)
    assert ours.fingerprint == whole.fingerprint
    solver = type(solve.Solver.create(task.solver))
    alone = solver.solve

    def overtaken(self, *args):
        monkeypatch.setattr(solver, "solve", alone)
        assert solve_problem(whole).status == "converged"
        return alone(self, *args)

    monkeypatch.setattr(solver, "solve", overtaken)
    assert solve_problem(ours, live=None if cut else str(tmp_path / "gone")).status == "converged"
    assert read_result(whole).status == "converged"


def test_time_limit__of_another_run_enters_no_model(task, tmp_path):
    whole = elsewhere(task, tmp_path, C=1e4)
    limited = [dataclasses.replace(whole, solver=whole.solver | {"time_limit": s}) for s in (1e-9, 2e-9)]
    assert [solve_problem(one).status for one in limited] == ["time_limit"] * 2
    assert [read_result(one).status for one in limited] == ["time_limit"] * 2
    for other in (whole, dataclasses.replace(whole, solver=whole.solver | {"time_limit": 3e-9})):
        with pytest.raises(FileNotFoundError):
            read_result(other)
    assert solve_problem(whole).status == "converged"
    assert [read_result(one).status for one in limited] == ["converged"] * 2


def test_problems__stopped_by_others_are_no_answers(task, noise_npz, tmp_path):
    """Whoever removes the folder for progress stops the problems; the run must not go on with what they have."""
    endless = a_task(noise_npz, tmp_path, 0, C=1e6, solver={"name": "smo", "tol": 1e-13})

    def remove(*args, **info):
        for folder in tmp_path.glob("live/*"):
            shutil.rmtree(folder, ignore_errors=True)

    with pytest.raises(LeaseLost, match="run the command again"):
        solve_chains(alone([elsewhere(task, tmp_path), endless]), progress=remove)
    assert not list(endless.file.parent.glob(f"*{endless.file.name}*"))
