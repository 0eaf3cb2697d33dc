"""The base of all machines: targets to a program, and back."""

from abc import ABC, abstractmethod

from svmcore._plugins import Plugin
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.sources.base import Source

__all__ = ["Task"]


class Task(Plugin, ABC):
    """A machine as data; the fields are its hyperparameters apart from kernel and solver."""

    @abstractmethod
    def program(self, source: Source, target: Floats, C: Floats | float) -> SignedQP:
        """The program over `source` (n rows) for targets (n,) and C_i (n,) >= 0; C_i = 0 leaves a row out."""
