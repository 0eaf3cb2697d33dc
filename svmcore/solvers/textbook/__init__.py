"""SMO as the textbooks have it: the maximal violating pair, Platt's rules and the simplified rule."""

from svmcore.runtime.plugins import import_siblings

import_siblings(__name__, list(__path__))
