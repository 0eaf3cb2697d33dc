"""The users' address of the estimators and of the searches over their parameters."""

from svmcore.adapters.choice import choose_C
from svmcore.adapters.classifiers import SVC, NuSVC
from svmcore.adapters.one_class import OneClassSVM
from svmcore.adapters.regressors import SVR, NuSVR
from svmcore.adapters.search import GridSearchCV, RandomizedSearchCV

__all__ = ["SVC", "SVR", "GridSearchCV", "NuSVC", "NuSVR", "OneClassSVM", "RandomizedSearchCV", "choose_C"]
