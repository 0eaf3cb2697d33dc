"""What a training gives: the model, the rules of its classes, and probabilities from its outputs."""

from svmcore.model.multiclass import Target, targets, vote
from svmcore.model.trained import Model, Part, assemble, model_of, model_of_rows, support_of

__all__ = ["Model", "Part", "Target", "assemble", "model_of", "model_of_rows", "support_of", "targets", "vote"]
