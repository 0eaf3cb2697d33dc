"""The choice of C, proved: what optima between solved values say, and a search until none can be much better."""

from svmcore.train.choice.search import Choice, choose

__all__ = ["Choice", "choose"]
