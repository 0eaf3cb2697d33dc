"""What people train, as programs: rows and targets become a `SignedQP`, its solution a model.

Every module of this package is imported, so a machine is added by adding one file (`docs/adding_a_machine.md`).
"""

from svmcore.runtime.plugins import import_siblings
from svmcore.tasks.base import Answer, Task
from svmcore.tasks.nu_svc import NuSVC
from svmcore.tasks.one_class import OneClass
from svmcore.tasks.svc import SVC, classification
from svmcore.tasks.svr import SVR, NuSVR

__all__ = ["SVC", "SVR", "Answer", "NuSVC", "NuSVR", "OneClass", "Task", "classification"]

import_siblings(__name__, list(__path__))
