"""The users' address of the estimators."""

from svmcore.adapters.classifiers import SVC, NuSVC
from svmcore.adapters.one_class import OneClassSVM
from svmcore.adapters.regressors import SVR, NuSVR

__all__ = ["SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM"]
