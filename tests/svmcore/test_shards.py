"""Shards: the same state as in memory, whatever is lost on the way; messages whose size does not grow with the rows."""

import dataclasses
import pickle
import threading

import numpy as np
import pytest
from scipy import sparse

from svmcore import certify
from svmcore.errors import SVMError
from svmcore.kernels import Kernel, Linear
from svmcore.kernels.exact import ExactKernel
from svmcore.shards import Host, ShardedSource
from svmcore.shards.packed import Packed
from svmcore.solvers import SMO
from svmcore.sources import CachedColumns, ComputedColumns
from svmcore.state import MemoryState
from svmcore.tasks import SVC, SVR, NuSVC, OneClass, classification

from ..small_programs import of_integers

KINDS = ["none", "one", "two", "two and none", "rows", "shift", "rows and shift"]


class Wire:
    """Messages to shards of this process, pickled as on a network; `fate(k, shard)` may lose what it likes."""

    def __init__(self, X, fate=None):
        self.host, self.fate = Host(lambda _, start, stop: X[start:stop]), fate
        self.sizes, self.lock = [], threading.Lock()

    def __call__(self, index, envelope):
        sent = pickle.dumps(envelope)
        with self.lock:
            self.sizes.append(len(sent))
            k = len(self.sizes)
        fate = self.fate(k) if self.fate else ""
        if fate == "before":
            self.host.drop(envelope.key)
        reply = self.host.answer(pickle.loads(sent))
        if fate == "twice":
            reply = self.host.answer(pickle.loads(sent))
        if fate == "after":
            self.host.drop(envelope.key)
        back = pickle.dumps(reply)
        with self.lock:
            self.sizes.append(len(back))
        return pickle.loads(back)


def in_shards(X, kernel, edges, dtype=np.float32, sample=None, fate=None, limit=1 << 26):
    wire = Wire(X, fate)
    sample = X[:512] if sample is None else sample
    return ShardedSource.open(None, edges, kernel, sample, dtype, wire, limit), wire


def integers_in_shards(qp, fate=None):
    """The same program, its rows in three shards, every number exact."""
    G = qp.source.rows
    n = len(G)
    balanced = np.vstack([G, -G])  # the mean of these is 0, so that no digit is lost
    source, _ = in_shards(G, Linear(), [0, 1, n // 2, n], np.float64, balanced, fate)
    return dataclasses.replace(qp, source=source)


def same(state, other, rng):
    """All that may be asked of two states."""
    m = state.m
    assert state.kkt_gap() == other.kkt_gap()
    np.testing.assert_array_equal(state.centres(), other.centres())
    np.testing.assert_array_equal(state.support(), other.support())
    np.testing.assert_array_equal(state.snapshot(), other.snapshot())
    idx = rng.permutation(m)[: m // 2]
    for mine, theirs in zip(state.part(idx), other.part(idx), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(state.importance(idx), other.importance(idx))
    mine, theirs = np.empty((len(idx), 3)), np.empty((len(idx), 3))
    at = rng.permutation(len(idx))
    state.square(idx, idx[:3], mine, at)
    other.square(idx, idx[:3], theirs, at)
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_state__in_shards_is_that_in_memory_to_the_last_bit(kind, seed):
    qp, beta = of_integers(kind, seed, m=12)
    rng = np.random.default_rng(seed)
    memory, shards = MemoryState(qp, beta.copy()), integers_in_shards(qp).source.state(qp, beta, None)
    same(shards, memory, np.random.default_rng(seed))
    for size in (1, 2, 7, 12):
        idx = rng.permutation(qp.m)[:size]
        changed = np.choose(rng.integers(0, 3, size), [qp.lo[idx], qp.hi[idx], memory.beta[idx]])
        memory.apply(idx, changed)
        shards.apply(idx, changed)
        same(shards, memory, np.random.default_rng(size))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [1, 2, 6, 9, 100])
def test_candidates__in_shards_are_those_in_memory(kind, q):
    for seed in range(4):
        qp, beta = of_integers(kind, seed, m=24)
        rng = np.random.default_rng(seed)
        s, outside = rng.permutation(24) / 4.0 - 2.5, rng.random(24) < 0.8  # no two alike
        shards = integers_in_shards(qp).source.state(qp, beta, s)
        for mask in (np.ones(24, bool), outside):
            np.testing.assert_array_equal(shards.candidates(q, mask), MemoryState(qp, beta, s).candidates(q, mask))


@pytest.mark.parametrize("fate", ["before", "after", "twice"])
@pytest.mark.parametrize("kind", ["one", "two and none", "rows and shift"])
def test_state__is_the_same_where_shards_are_lost_or_asked_twice(fate, kind):
    """Every third message finds its shard gone, loses it after it was answered, or arrives a second time."""
    qp, beta = of_integers(kind, 5, m=12)
    rng = np.random.default_rng(5)
    sharded = integers_in_shards(qp, lambda k: fate if k > 12 and k % 6 < 2 else "")
    memory, shards = MemoryState(qp, beta.copy()), sharded.source.state(qp, beta, None)
    for size in (3, 12, 1, 7, 4):
        idx = rng.permutation(qp.m)[:size]
        changed = np.choose(rng.integers(0, 3, size), [qp.lo[idx], qp.hi[idx], memory.beta[idx]])
        memory.apply(idx, changed)
        shards.apply(idx, changed)
        same(shards, memory, np.random.default_rng(size))
    assert (sum(line.losses for line in sharded.source.group.lines) > 0) == (fate != "twice")


def test_shard__that_is_lost_for_ever_is_an_error():
    qp, beta = of_integers("one", 1, m=12)
    lost = []
    source = integers_in_shards(qp, lambda k: "lost" if lost else "").source
    lost.append(True)
    for line in source.group.lines:
        line.transport = lambda index, envelope: type("Reply", (), {"generation": None})()
    with pytest.raises(SVMError, match="was lost 100 times in a row"):
        source.state(qp, beta, None)


# ---- solving
RNG = np.random.default_rng(0)
X = RNG.normal(size=(1500, 6))
Y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 0.8 + 0.3 * RNG.normal(size=1500) > 0, 1.0, -1.0)
PIXELS = np.random.default_rng(1).integers(0, 9, (1500, 20)).astype(np.float32)
TABLES = {
    "dense": (X, Kernel.create({"name": "rbf", "gamma": 0.5})),
    "off the origin": (
        X + 5.0,
        Kernel.create({"name": "polynomial", "degree": 2, "gamma": 0.1, "coef0": 1.0}).centred(),
    ),
    "lattice": (PIXELS, Kernel.create({"name": "rbf", "gamma": 0.01})),
    "sparse": (sparse.csr_matrix(np.where(np.abs(X) > 1.9, X, 0.0)), Kernel.create({"name": "rbf", "gamma": 0.5})),
    "linear": (X, Linear().centred()),
}


def in_memory(rows, kernel):
    points = kernel.prepare_gram(rows, np.float64)
    return ComputedColumns(kernel, points, np.float64, ExactKernel(kernel, rows, like=points))


@pytest.mark.parametrize("table", TABLES)
def test_solve__in_shards_is_proved_and_its_proof_is_that_of_one_process(table):
    rows, kernel = TABLES[table]
    source, _ = in_shards(rows, kernel, [0, 300, 900, 1500])
    found = SMO().solve(classification(source, Y, 3.0))
    judge = classification(in_memory(rows, kernel), Y, 3.0)
    assert found.status == "converged"
    assert found.certificate.proves(1e-3)
    truth = certify(judge, found.beta)
    assert found.certificate.kkt_gap == pytest.approx(truth.kkt_gap, abs=2e-5)
    assert found.certificate.dual == pytest.approx(truth.dual, rel=1e-6)
    assert found.certificate.primal == pytest.approx(truth.primal, rel=1e-6)
    one = SMO().solve(judge)
    assert found.certificate.dual == pytest.approx(one.certificate.dual, rel=1e-3)
    assert found.bias == pytest.approx(one.bias, abs=0.05 * (1.0 + abs(one.bias)))


MACHINES = {
    "svc": (SVC(), Y, 1.0),
    "squared hinge": (SVC(loss="squared_hinge"), Y, 1.0),
    "penalised": (SVC(bias="penalised"), Y, 1.0),
    "nu-svc": (NuSVC(nu=0.3), Y, 1.0),
    "svr": (SVR(epsilon=0.1), X[:, 0] + X[:, 1] ** 2, 1.0),
    "one-class": (OneClass(nu=0.2), np.ones(1500), 1.0),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_solve__every_machine_in_shards(machine):
    task, y, C = MACHINES[machine]
    kernel = TABLES["dense"][1]
    source, _ = in_shards(X, kernel, [0, 700, 1500])
    found = SMO().solve(task.program(source, y, np.full(1500, C)))
    one = SMO().solve(task.program(in_memory(X, kernel), y, np.full(1500, C)))
    assert found.certificate.proves(1e-3)
    assert found.certificate.dual == pytest.approx(one.certificate.dual, rel=2e-3, abs=1e-3)


def test_solve__shards_lost_in_mid_run_leave_the_same_certificate():
    kernel, rng = TABLES["dense"][1], np.random.default_rng(3)
    source, _ = in_shards(X, kernel, [0, 500, 1000, 1500], fate=lambda k: rng.choice(["", "", "", "before", "after"]))
    found = SMO(newcomers=64).solve(classification(source, Y, 3.0))
    assert found.status == "converged"
    assert certify(classification(in_memory(X, kernel), Y, 3.0), found.beta).proves(1e-3)
    assert sum(line.losses for line in source.group.lines) > 5


def test_solve__goes_on_with_float64_columns_where_float32_cannot_prove_it():
    rows, kernel = TABLES["dense"]
    source, _ = in_shards(rows, kernel, [0, 700, 1500])
    found = SMO(tol=2e-6).solve(classification(source, Y, 100.0))
    assert found.certificate.proves(2e-6)


def test_solve__starts_from_an_answer_and_its_scores():
    source, _ = in_shards(X, TABLES["dense"][1], [0, 700, 1500])
    qp = classification(source, Y, 3.0)
    first = SMO().solve(qp)
    assert SMO().solve(qp, first.beta, score=first.score).n_iter == 0
    assert SMO().solve(qp, first.beta).n_iter <= 50


def test_columns__are_kept_within_their_bytes():
    source, wire = in_shards(X, TABLES["dense"][1], [0, 700, 1500], limit=800 * 4 * 100)
    assert source.capacity == 100
    assert SMO().solve(classification(source, Y, 3.0)).certificate.proves(1e-3)
    assert all(shard.columns.arena.nbytes <= 800 * 4 * 115 for shard in wire.host.shards.values())


# ---- traffic
def bytes_per_round(n):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 8))
    y = np.where(np.sin(2 * rows[:, 0]) + rows[:, 1] ** 2 > 0.8, 1.0, -1.0)
    source, wire = in_shards(rows, Kernel.create({"name": "rbf", "gamma": 0.2}), [0, n // 2, n])
    qp = classification(source, y, 1.0)
    state = source.state(qp, np.zeros(n), None)
    outside, members, spent = np.ones(n, bool), np.empty(0, np.int64), []
    for _ in range(6):
        wire.sizes.clear()
        fresh = state.candidates(256, outside)
        outside[fresh] = False
        members = np.concatenate([members, fresh])
        strip = np.empty((len(fresh), len(members)), np.float32)
        state.square(fresh, members, strip, np.arange(len(fresh)))
        assert np.isfinite(state.part(members).score).all()
        state.apply(members, state.snapshot()[members] + rng.uniform(0.1, 0.9, len(members)) * y[members])
        spent.append(sum(wire.sizes))
    return np.array(spent)


def test_traffic__of_a_round_does_not_depend_on_the_rows():
    few, many = bytes_per_round(6_000), bytes_per_round(48_000)
    assert np.abs(many / few - 1.0).max() < 0.02
    newcomers, members = 256, 6 * 256
    assert many.max() < 3 * newcomers * 8 * 8 + 2 * 321 * 16 + 4 * members * 40 + 20_000


def test_candidates__of_a_growing_set_are_told_unasked():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8_000, 8)), np.where(rng.random(8_000) < 0.5, 1.0, -1.0)
    source, _ = in_shards(X, Kernel.create({"name": "rbf", "gamma": 0.2}), [0, 3_000, 8_000])
    state = source.state(classification(source, y, 1.0), np.zeros(8_000), None)
    each, asked, outside = source.group.each, [], np.ones(8_000, bool)
    source.group.each = lambda name, *given: asked.append(name) or each(name, *given)
    for q in (256, 256, 320, 401, 501, 627, 784, 980, 1024, 1024):
        outside[state.candidates(q, outside)] = False
        state.apply(np.flatnonzero(~outside), 0.5 * y[~outside])
    assert "look" not in asked


def test_traffic__of_a_beginning_is_a_byte_a_row():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20_000, 2)), np.where(rng.random(20_000) < 0.5, 1.0, -1.0)
    source, wire = in_shards(X, Kernel.create({"name": "rbf", "gamma": 1.0}), [0, 20_000])
    wire.sizes.clear()
    qp = classification(source, y, 1.0)
    source.state(qp, np.zeros(20_000), None)
    assert sum(wire.sizes) < 20_000 + 16 * 1024 + 5_000  # bounds, and candidates; the diagonal of K is one number


@pytest.mark.parametrize("n_kinds", [1, 256, 257])
def test_packed__vectors_come_back_as_they_were(n_kinds):
    rng = np.random.default_rng(n_kinds)
    C = rng.permutation(np.r_[np.arange(n_kinds), rng.integers(0, n_kinds, 700)]) / 3.0
    vectors = [C, -C, np.where(C > 0, np.inf, -np.inf), (C > 0).astype(np.int8)]
    packed = Packed.of(vectors)
    assert (packed.kinds is None) == (n_kinds > 256)
    for one, other in zip(packed.vectors(), vectors, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_programs__under_way_at_once_share_messages_and_columns():
    kernel = TABLES["dense"][1]
    source, wire = in_shards(X, kernel, [0, 700, 1500])
    wire.sizes.clear()
    targets = [np.where(X[:, f] > 0.5, 1.0, -1.0) for f in range(4)]
    found = [None] * 4

    def solve(f):
        found[f] = SMO().solve(classification(source, targets[f], 3.0))

    threads = [threading.Thread(target=solve, args=(f,)) for f in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for f, one in enumerate(found):
        assert certify(classification(in_memory(X, kernel), targets[f], 3.0), one.beta).proves(1e-3)


def test_cached_columns__of_some_rows_serve_columns_of_all():
    kernel = TABLES["dense"][1]
    source, wire = in_shards(X, kernel, [0, 700, 1500])
    source.group.meet(np.array([3, 1200]))
    numbers = np.array([1200, 3])
    first = next(shard for shard in wire.host.shards.values() if shard.columns.n == 700)  # threads race to be the first
    source.group.each("outputs", [(numbers, np.ones(2)), None], numbers)
    points = kernel.prepare_gram(X, np.float32)
    whole = ComputedColumns(kernel, points, np.float32).columns(numbers)
    assert isinstance(first.columns, CachedColumns)
    np.testing.assert_allclose(first.columns.columns(numbers), whole[:, :700], rtol=1e-4)
