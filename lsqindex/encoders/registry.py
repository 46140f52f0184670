"""Names of encoders: what is built in, what plugins bring, and one way to make any of them.

Names are known without importing anything: built-in encoders by the table below, plugins by the
entry-point group ``lsqindex.encoders`` of their distribution. A class is loaded when it is asked for.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from typing import Any, TypeVar

from ..errors import DuplicateEncoderError, ParameterError, PluginError, UnknownEncoderError
from .base import Encoder, constructor_names

ENTRY_POINT_GROUP = "lsqindex.encoders"

_BUILT_IN = {
    "lsq": "lsqindex.encoders.lsq",
    "itq": "lsqindex.encoders.itq",
    "ckmeans": "lsqindex.encoders.ckmeans",
    "okmeans": "lsqindex.encoders.okmeans",
    "pq": "lsqindex.encoders.pq",
    "kmeans": "lsqindex.encoders.kmeans",
    "lsh": "lsqindex.encoders.lsh",
    "flat": "lsqindex.encoders.flat",
}

_registered: dict[str, type[Encoder]] = {}

EncoderType = TypeVar("EncoderType", bound=type[Encoder])


def register_encoder(name: str) -> Callable[[EncoderType], EncoderType]:
    """Class decorator: make an encoder known by ``name`` in this process.

    >>> from lsqindex.encoders.lsh import LSH
    >>> @register_encoder("my-lsh")
    ... class MyLSH(LSH):
    ...     pass
    >>> make_encoder("my-lsh", bits=64)
    MyLSH(bits=64, seed=0)
    """

    def register(cls: EncoderType) -> EncoderType:
        if not isinstance(name, str) or not name or name != name.strip():
            raise ParameterError(f"register_encoder({name!r}): a plain, non-empty name is needed")
        other = _owner_of_other(name, cls)
        if other is not None:
            raise DuplicateEncoderError(
                f"encoder {name!r} is claimed by {cls.__module__}.{cls.__qualname__} and already belongs to "
                f"{other}; give one of them another name"
            )
        cls.name = name
        _registered[name] = cls
        return cls

    return register


def available_encoders() -> tuple[str, ...]:
    """All names that :func:`make_encoder` knows, sorted.

    >>> {"lsq", "itq", "ckmeans", "okmeans", "pq", "kmeans", "lsh", "flat"} <= set(available_encoders())
    True
    """
    return tuple(sorted({*_BUILT_IN, *_registered, *(point.name for point in _entry_points())}))


def encoder_class(name: str) -> type[Encoder]:
    """The class of that name, loaded now if it was not; UnknownEncoderError with near names."""
    if name in _registered:
        return _registered[name]
    if name in _BUILT_IN:
        importlib.import_module(_BUILT_IN[name])
        return _registered[name]
    points = [point for point in _entry_points() if point.name == name]
    if len({point.value for point in points}) > 1:
        owners = " and ".join(f"{_distribution(point)} ({point.value})" for point in points)
        raise DuplicateEncoderError(f"encoder {name!r} is claimed by {owners}; uninstall one of them")
    if points:
        return _load(points[0])
    known = available_encoders()
    near = difflib.get_close_matches(str(name).lower(), known, n=3)
    guess = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    raise UnknownEncoderError(
        f"no encoder is named {name!r}{guess} Known here: {', '.join(known)}. "
        "An encoder from a plugin needs its package installed, or the module imported that registers it."
    )


def is_registered(name: str) -> bool:
    """Whether this process has an encoder of that name already; nothing is loaded, and no metadata is read."""
    return name in _registered


def make_encoder(encoder: str | Encoder, **parameters: Any) -> Encoder:
    """The encoder of that name with these parameters; an Encoder is returned as it is.

    >>> make_encoder("pq", bits=64).config["bits"]
    64
    """
    if isinstance(encoder, Encoder):
        if parameters:
            raise ParameterError("parameters go with an encoder's name; this encoder is made already")
        if not hasattr(encoder, "name"):
            raise ParameterError(f"{type(encoder).__name__} has no name: put @register_encoder('…') before its class")
        return encoder
    if not isinstance(encoder, str):
        raise ParameterError(f"encoder={encoder!r}: a name or an Encoder is needed")
    cls = encoder_class(encoder)
    names = constructor_names(cls)
    unknown = [key for key in parameters if key not in names]
    if unknown:
        raise ParameterError(
            f"encoder {encoder!r} takes no {', '.join(map(repr, unknown))}; its parameters are {', '.join(names)}"
        )
    return cls(**parameters)


def distribution_of(cls: type[Encoder]) -> tuple[str, str]:
    """Name and version of the installed distribution an encoder comes from; ("", "") if from none."""
    top = cls.__module__.partition(".")[0]
    for point in _entry_points():
        if point.name == cls.name and point.dist is not None and point.value.partition(":")[0] == cls.__module__:
            return point.dist.name, point.dist.version
    names = _packages().get(top, [])
    return (names[0], metadata.version(names[0])) if names else ("", "")


@cache
def _packages() -> Mapping[str, list[str]]:
    """Top-level package → distributions; reads every installed file list, so once is enough."""
    return metadata.packages_distributions()


def _entry_points() -> metadata.EntryPoints:
    return metadata.entry_points(group=ENTRY_POINT_GROUP)


def _distribution(point: metadata.EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown distribution"


def _load(point: metadata.EntryPoint) -> type[Encoder]:
    try:
        cls = point.load()
    except Exception as error:
        raise PluginError(
            f"encoder {point.name!r} of {_distribution(point)} cannot be loaded from {point.value}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not (isinstance(cls, type) and issubclass(cls, Encoder)):
        raise PluginError(f"encoder {point.name!r} of {_distribution(point)}: {point.value} is no Encoder class")
    if point.name not in _registered:
        register_encoder(point.name)(cls)
    return cls


def _owner_of_other(name: str, cls: type[Encoder]) -> str | None:
    """Who owns ``name``, if that is not ``cls`` (a module run again may register its class again)."""
    owner = _registered.get(name)
    if owner is not None:
        same = (owner.__module__, owner.__qualname__) == (cls.__module__, cls.__qualname__)
        return None if same else f"{owner.__module__}.{owner.__qualname__}"
    if name in _BUILT_IN:
        # Installed plugins are not asked: reading their metadata would cost every start some milliseconds.
        return f"lsqindex itself ({_BUILT_IN[name]})" if cls.__module__ != _BUILT_IN[name] else None
    for point in _entry_points():
        if point.name == name and point.value.partition(":")[0] != cls.__module__:
            return f"{_distribution(point)} ({point.value})"
    return None
