"""Which keys, scores and solvers go with which task: everything else is refused when the file is loaded."""

import pytest

from pipeline.config.load import load_experiment
from pipeline.config.machines import keys_of
from pipeline.kinds import KINDS, kind_of
from svmcore.errors import InputError, SVMError, UnknownPlugin
from svmcore.tasks import SVR, NuSVC, OneClass, Task

DATA = {"data": {"source": "sklearn:diabetes"}}


@pytest.mark.parametrize(
    ("given", "machine"),
    [
        ({"task": "svr", "epsilon": 2.5, "C": 3}, SVR(2.5)),
        ({"task": "nu-svc", "nu": 0.1, "multiclass": "ovo"}, NuSVC(0.1)),
        ({"task": "one-class"}, OneClass(0.5)),
    ],
)
def test_machine__is_what_the_keys_say_and_comes_back_from_what_is_written(given, machine):
    exp = load_experiment(DATA | given)
    assert exp.machine == machine
    again = load_experiment(exp.to_dict())
    assert again == exp
    assert again.fingerprint() == exp.fingerprint()
    written = exp.to_dict()
    assert {*keys_of(exp.task)} - {"class_weight"} <= {*written}
    assert not {"loss", "bias"} & {*written}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epsilon": 0.1}, "epsilon is no key of task svc, which takes C, loss, bias, class_weight, multiclass"),
        ({"nu": 0.1}, "nu is no key of task svc.*nu belongs to nu-svc, nu-svr, one-class"),
        ({"task": "one-class", "C": 1}, "C is no key of task one-class, which takes nu"),
        ({"task": "svr", "loss": "hinge"}, "loss is no key of task svr, which takes C, epsilon"),
        ({"task": "svr", "class_weight": "balanced"}, "class_weight is no key of task svr"),
        ({"task": "nu-svc", "C": 1}, "C is no key of task nu-svc, which takes nu, class_weight, multiclass"),
        ({"task": "nu-svr", "bias": "none"}, "bias is no key of task nu-svr, which takes C, nu"),
        ({"task": "svm"}, "unknown task 'svm'.*did you mean 'svr'"),
        ({"task": "svr", "epsilon": -1}, "epsilon is -1.*0 or more, in units of the target"),
        ({"task": "one-class", "nu": 0}, "nu is 0.*above 0, at most 1"),
        ({"task": "nu-svr", "C": float("inf")}, "nu-SVR needs a finite C"),
        ({"task": "svr", "solver": "smo-mvp"}, "needs one variable per row; smo takes several"),
        ({"task": "nu-svc", "nu": 0.1, "solver": "smo-mvp"}, "one equality; smo takes two"),
        ({"task": "svr", "scoring": "accuracy"}, "scoring 'accuracy' is not for task svr .*accepted: r2"),
        ({"scoring": "r2"}, "scoring 'r2' is not for task svc .it compares values.; accepted: accuracy"),
        ({"scoring": ["accuracy", "neg_log_loss"]}, "it needs probabilities"),
        ({"scoring": "rokauc"}, "no such scorer - did you mean 'roc_auc'"),
        ({"scoring": []}, "scoring is .*a list of such names"),
        ({"sweep": {"refit": "r2"}}, "scoring 'r2' is not for task svc"),
        ({"scoring": "roc_auc", "sweep": {"refit": "accuracy"}}, "'accuracy', which scoring does not name"),
        ({"task": "one-class", "sweep": {"refit": "rejected"}}, "ranks nothing"),
        ({"task": "svr", "sweep": {"grid": {"loss": ["hinge"]}}}, "loss is no key of task svr"),
        ({"sweep": {"grid": {"task": ["svc", "svr"]}}}, "'task' cannot be swept"),
        ({"data": {"source": "sklearn:iris", "label": None}}, "task svc learns from labels"),
    ],
)
def test_key__of_another_task_is_refused_naming_what_is_accepted(given, said):
    with pytest.raises(SVMError, match=said):
        load_experiment(DATA | given)


def test_set__a_key_of_another_task_names_the_option():
    with pytest.raises(InputError, match="--set loss: loss is no key of task svr"):
        load_experiment(DATA | {"task": "svr"}, ["loss=hinge"])
    with pytest.raises(UnknownPlugin, match="--set task"):
        load_experiment(DATA, ["task=swr"])


def test_refit__is_the_first_score_unless_another_is_named():
    assert load_experiment(DATA | {"task": "svr", "sweep": {}}).refit == "r2"
    assert load_experiment(DATA | {"sweep": {}}).refit == "accuracy"
    assert load_experiment(DATA | {"task": "one-class", "sweep": {}}).refit is None
    assert load_experiment(DATA | {"sweep": {"refit": False}}).refit is None
    named = load_experiment(DATA | {"scoring": ["accuracy", "f1_macro"], "sweep": {"refit": "f1_macro"}})
    assert (named.scores, named.refit) == (["f1_macro", "accuracy"], "f1_macro")
    assert load_experiment(named.to_dict()).scores == named.scores


def test_label__null_is_kept():
    exp = load_experiment({"data": {"source": "rows.csv", "label": None}, "task": "one-class"})
    assert load_experiment(exp.to_dict()).data.label is None


def test_fingerprint__covers_the_task_and_its_parameters():
    given = [{}, {"task": "svr"}, {"task": "svr", "epsilon": 0.2}, {"task": "nu-svr"}, {"task": "nu-svr", "nu": 0.1}]
    given += [{"task": "svr", "solver": {"name": "smo", "tol": 1e-4}}, {"task": "svr", "scoring": "r2"}]
    assert len({load_experiment(DATA | one).fingerprint() for one in given}) == len(given)


def test_kinds__every_machine_has_one():
    assert {kind_of(name).answers for name in Task.names()} == {*KINDS}
