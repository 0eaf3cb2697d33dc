"""The users' address of the estimators."""

from svmcore.adapters.svc import SVC

__all__ = ["SVC"]
