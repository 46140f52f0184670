"""The names of encoders: built-in ones, plugins, and one function that creates any of them.

Names are known without importing anything: built-in encoders from the table below, plugins from the entry-point group
``lsqindex.encoders`` of their distribution. A class is imported when it is first used.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import DuplicateEncoderError, ParameterError, PluginError, UnknownEncoderError
from .base import Encoder, constructor_names

# Imported where plugins are asked for: it would cost every start some milliseconds.
if TYPE_CHECKING:
    from importlib import metadata

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
    """Return a class decorator that registers an encoder under ``name`` in this process.

    Parameters
    ----------
    name
        The name for :func:`make_encoder` and ``Index(encoder=…)``.

    Returns
    -------
    callable
        The decorator, which returns the class.

    Raises
    ------
    ParameterError
        If the name is empty, is not a string, or begins or ends with spaces.
    DuplicateEncoderError
        If the name belongs to another encoder.

    Examples
    --------
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
    """List the encoders that :func:`make_encoder` can create.

    Returns
    -------
    tuple of str
        The names, sorted.

    Examples
    --------
    >>> {"lsq", "itq", "ckmeans", "okmeans", "pq", "kmeans", "lsh", "flat"} <= set(available_encoders())
    True
    """
    return tuple(sorted({*_BUILT_IN, *_registered, *(point.name for point in _entry_points())}))


def encoder_class(name: str) -> type[Encoder]:
    """Return the class of an encoder, and import it if needed.

    Parameters
    ----------
    name
        The name of the encoder.

    Returns
    -------
    type
        The class.

    Raises
    ------
    UnknownEncoderError
        If no encoder has this name; the message suggests similar names.
    DuplicateEncoderError
        If two installed packages claim the name.
    PluginError
        If the plugin cannot be loaded.

    Examples
    --------
    >>> encoder_class("itq").__name__
    'ITQ'
    """
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
        f"no encoder is named {name!r}{guess} Available: {', '.join(known)}. "
        "To use a plugin, install its package or import the module that registers it."
    )


def is_registered(name: str) -> bool:
    """Whether this process has already loaded an encoder of this name; it loads nothing and reads no metadata."""
    return name in _registered


def make_encoder(encoder: str | Encoder, **parameters: Any) -> Encoder:
    """Create an encoder.

    Parameters
    ----------
    encoder
        The name of an encoder. An :class:`Encoder` is returned as it is.
    **parameters
        The parameters of the encoder, such as ``bits=256``.

    Returns
    -------
    Encoder
        The encoder, not fitted unless it was passed so.

    Raises
    ------
    ParameterError
        If a parameter is unknown or invalid, or if parameters are passed with an :class:`Encoder`.
    UnknownEncoderError
        If no encoder has this name.

    Examples
    --------
    >>> make_encoder("pq", bits=64).config["bits"]
    64
    """
    if isinstance(encoder, Encoder):
        if parameters:
            raise ParameterError(
                "parameters can be passed only with the name of an encoder; set them when you create the encoder"
            )
        if not hasattr(encoder, "name"):
            raise ParameterError(
                f"{type(encoder).__name__} is not registered; put @register_encoder('…') before its class"
            )
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
    """Name and version of the installed distribution that an encoder comes from; ("", "") if there is none."""
    from importlib import metadata

    top = cls.__module__.partition(".")[0]
    for point in _entry_points():
        if point.name == cls.name and point.dist is not None and point.value.partition(":")[0] == cls.__module__:
            return point.dist.name, point.dist.version
    names = _packages().get(top, [])
    return (names[0], metadata.version(names[0])) if names else ("", "")


@cache
def _packages() -> Mapping[str, list[str]]:
    """Top-level package → distributions; reads every installed file list, so once is enough."""
    from importlib import metadata

    return metadata.packages_distributions()


def _entry_points() -> metadata.EntryPoints:
    from importlib import metadata

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
        raise PluginError(
            f"encoder {point.name!r} of {_distribution(point)}: {point.value} is not a subclass of Encoder"
        )
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
