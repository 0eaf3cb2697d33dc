"""Classifiers that keep w alone: the perceptron, gradient descent and its stochastic form."""

from svmcore.runtime.plugins import import_siblings

import_siblings(__name__, list(__path__))
