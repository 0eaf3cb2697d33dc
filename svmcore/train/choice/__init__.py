"""The choice of C, proved: what optima between solved values say, and a search until none can be much better."""

from svmcore.train.choice.between import End, Rows
from svmcore.train.choice.claim import Choice
from svmcore.train.choice.fewest import Fewest, objection, output_error
from svmcore.train.choice.search import choose

__all__ = ["Choice", "End", "Fewest", "Rows", "choose", "objection", "output_error"]
