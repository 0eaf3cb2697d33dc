"""Plug-ins: frozen dataclasses found by name, so that adding a kernel or a solver touches one file.

A family (Kernel, Solver, Loss) is a direct subclass of `Plugin`; each concrete class below it carries a `name`. The
fields of the dataclass are its hyperparameters and the keys of its YAML form; there is no second list anywhere.
"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from svmcore.errors import InputError, UnknownPlugin, did_you_mean

__all__ = ["Plugin", "import_siblings"]


class Plugin:
    """Base of every family of plug-ins; see `create`, `spec`, `names`."""

    name: ClassVar[str]
    family: ClassVar[str] = ""
    _registry: ClassVar[dict[str, type["Plugin"]]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if Plugin in cls.__bases__:
            cls._registry = {}
            cls.family = cls.__name__.lower()
        elif "name" in cls.__dict__:
            # a reload, or dataclass(slots=True), defines the same class twice: no clash
            known = cls._registry.get(cls.name)
            if known is not None and (known.__module__, known.__qualname__) != (
                cls.__module__,
                cls.__qualname__,
            ):
                raise TypeError(f"two {cls.family}s are named {cls.name!r}: {known} and {cls}")
            cls._registry[cls.name] = cls

    @classmethod
    def names(cls) -> list[str]:
        """Names of all registered members of this family, sorted."""
        return sorted(cls._registry)

    @classmethod
    def named(cls, name: str) -> type[Self]:
        """Return the class registered under `name`; raises UnknownPlugin with the nearest name."""
        if not isinstance(name, str) or name not in cls._registry:
            known = ", ".join(cls.names())
            hint = did_you_mean(name, cls.names())
            raise UnknownPlugin(f"unknown {cls.family} {name!r}; known: {known}{hint}")
        return cls._registry[name]  # type: ignore[return-value]

    @classmethod
    def create(cls, spec: "Mapping[str, Any] | str | Self") -> Self:
        """Build a member from `{"name": ..., parameter: value}`, a bare name, or an instance (returned as it is).

        Raises
        ------
        UnknownPlugin, InputError
            An unknown name or parameter (with the nearest known one), or a value out of range.
        """
        if isinstance(spec, cls):
            return spec
        if isinstance(spec, str):
            spec = {"name": spec}
        if not isinstance(spec, Mapping) or "name" not in spec:
            raise InputError(f"a {cls.family} needs a 'name', one of {', '.join(cls.names())}; given {spec!r}")
        member = cls.named(spec["name"])
        return member(**member._parameters({key: value for key, value in spec.items() if key != "name"}))

    @classmethod
    def _parameters(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Check names against the fields and build nested plug-ins; required fields must be there."""
        fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        for key in given:
            if key not in fields:
                accepted = ", ".join(fields) or "no parameters"
                hint = did_you_mean(key, fields)
                raise InputError(f"{cls.family} {cls.name!r} has no {key!r}; accepted: {accepted}{hint}")
        for key, field in fields.items():
            optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
            if key not in given and not optional:
                raise InputError(f"{cls.family} {cls.name!r} needs the parameter {key!r}")
        return given

    def spec(self) -> dict[str, Any]:
        """Return the `{"name": ..., parameter: value}` form, the inverse of `create`."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {"name": self.name} | {
            key: value.spec() if isinstance(value, Plugin) else value for key, value in values.items()
        }


def import_siblings(package: str, path: list[str]) -> None:
    """Import every public module of a package, so that dropping in a file registers its plug-ins."""
    for module in pkgutil.iter_modules(path):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package}.{module.name}")
