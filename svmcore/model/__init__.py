"""What a training gives: the model, the rules of its classes, and probabilities from its outputs."""

from svmcore.model.multiclass import Target, targets, vote
from svmcore.model.trained import Model, assemble

__all__ = ["Model", "Target", "assemble", "targets", "vote"]
