"""The choice of C, proved: what optima between solved values say, and a search until none can be much better."""

from svmcore.train.choice.between import End, Rows
from svmcore.train.choice.fewest import Fewest, is_provable, output_error
from svmcore.train.choice.search import Choice, choose

__all__ = ["Choice", "End", "Fewest", "Rows", "choose", "is_provable", "output_error"]
