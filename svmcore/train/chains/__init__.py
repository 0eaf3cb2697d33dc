"""Chains of problems on one K: `loop` is the one loop that solves, `same` tells where none is needed.

`held_out` has decision values of rows by models that have not seen them.
"""

from svmcore.train.chains.held_out import held_out_decisions
from svmcore.train.chains.loop import NOWHERE, Handover, Kept, Problem, Solved, Start, answers
from svmcore.train.chains.same import restored, same_optimum

__all__ = [
    "NOWHERE",
    "Handover",
    "Kept",
    "Problem",
    "Solved",
    "Start",
    "answers",
    "held_out_decisions",
    "restored",
    "same_optimum",
]
