"""All programs of one training set: what is solved, with what, under which limits, on which form of the kernel."""

from svmcore.train.control import Control
from svmcore.train.fit import train
from svmcore.train.posing.recipe import Recipe
from svmcore.train.trained import Training

__all__ = ["Control", "Recipe", "Training", "train"]
