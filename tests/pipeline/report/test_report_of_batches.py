"""Reports of batches: points in order, curves and heat maps through the best one, and what is held or hidden."""

from pipeline.report.batch import batch_of
from pipeline.report.record import read_run

from .taken_apart import Page


def point(mean, **params):
    return {"params": params, "mean_score": mean, "std_score": 0.01, "fold_scores": [mean], "seconds": 1.0}


def test_batch__ranks_by_score_then_support_vectors_from_results(runs):
    run = read_run(runs["batch"])
    batch = batch_of(run.metrics, run.rows)
    keys = [(-p.mean_score, p.n_support) for p in batch.points]
    assert keys == sorted(keys)
    assert [p.is_best for p in batch.points] == [True] + [False] * 14
    assert batch.worst_gap == max(float(row["kkt_gap"]) for row in run.rows)
    assert batch.within(run.tol) == 15
    assert batch.statuses() == [("converged", 15)]


def test_batch__heat_map_and_curves_hold_the_other_parameters_at_the_best():
    grid = [(C, g, s) for C in (1, 10) for g in (0.1, 0.2) for s in ("none", "standard")]
    points = [point((50 + k) / 100, **{"C": C, "kernel.gamma": g, "data.scale": s}) for k, (C, g, s) in enumerate(grid)]
    batch = batch_of({"points": points, "best": points[-1]}, [])
    heat = batch.heat_map()
    assert (heat.rows, heat.columns, heat.fixed) == (("0.1", "0.2"), ("1", "10"), "data.scale = standard")
    assert [[p.mean_score for p in row] for row in heat.cells] == [[0.51, 0.55], [0.53, 0.57]]
    curves = batch.curves()
    assert [(label, [p.mean_score for p in line]) for label, line in curves.series] == [
        ("gamma 0.1", [0.51, 0.55]),
        ("gamma 0.2", [0.53, 0.57]),
    ]


def test_batch__many_curves_are_thinned_and_keep_the_best():
    points = [point(0.9 if (C, g) == (1, 7) else 0.5, C=C, gamma=g) for C in (1, 2) for g in range(30)]
    curves = batch_of({"points": points, "best": {"params": {"C": 1, "gamma": 7}}}, []).curves(most=8)
    assert len(curves.series) == 8
    assert curves.hidden == 22
    assert {"gamma 0", "gamma 7", "gamma 29"} <= {label for label, _ in curves.series}


def test_batch__says_what_is_held_and_what_is_hidden(edited):
    def widen(metrics, evaluation):
        grid = [(C, g, s) for C in (1, 2) for g in range(10) for s in ("none", "maxabs")]
        metrics["points"] = [point(0.9, **{"C": C, "kernel.gamma": g, "data.scale": s}) for C, g, s in grid]
        metrics["best"] = metrics["points"][0]

    text = Page(edited("batch", widen)).text
    assert "one standard deviation of the fold scores; data.scale = none; 2 curves not shown" in text


def test_batch__of_kernels_has_no_curve_but_a_leaderboard(edited):
    def kernels(metrics, evaluation):
        specs = [{"name": "linear"}, {"name": "rbf", "gamma": 0.5}]
        metrics["points"] = [point(0.9 - 0.1 * k, kernel=spec) for k, spec in enumerate(specs)]
        metrics["best"] = {"kernel": {"name": "linear"}}

    text = Page(edited("batch", kernels)).text
    assert "rbf(gamma=0.5)" in text
    assert "Score along" not in text
    assert "Mean score over" not in text
