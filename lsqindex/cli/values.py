"""What is typed becomes what the index takes: parameters of encoders, ids, and filters."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import typer

from .. import Index
from .source import InputError, is_file

_WORDS = {"none": None, "true": True, "false": False}


def parameters(pairs: list[str] | None, bits: int | None) -> dict[str, Any]:
    """``["axes=64", "scalar=none"]`` and ``--bits`` as the keyword arguments they stand for.

    >>> parameters(["axes=64", "scalar=none", "lam=0.5"], 256)
    {'bits': 256, 'axes': 64, 'scalar': None, 'lam': 0.5}
    """
    made: dict[str, Any] = {} if bits is None else {"bits": bits}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{pair!r}: not of the form NAME=VALUE, such as axes=64")
        if name in made:
            raise typer.BadParameter(f"{name} is given twice")
        made[name] = _value(text)
    return made


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def id_kind(index: Index) -> str:
    """ "int" or "str"."""
    return str(index.stats()["ids"])


def ids_of(texts: list[str], kind: str, where: str = "ids") -> Any:
    """Ids as an index with ids of that kind takes them."""
    if kind == "str":
        return texts
    try:
        return np.array([int(text) for text in texts], np.int64)
    except (ValueError, OverflowError):
        odd = next(text for text in texts if not _fits(text))
        raise InputError(f"{where}: {odd!r} is not a 64-bit integer, as the ids of this index are") from None


def _fits(text: str) -> bool:
    try:
        return -(1 << 63) <= int(text) < 1 << 63
    except ValueError:
        return False


def ids_in_file(name: str, kind: str) -> Any:
    """Ids from a .npy file, or from a text file with one in a line; - is stdin."""
    if name.lower().endswith(".npy"):
        try:
            array = np.load(name, allow_pickle=False)
        except ValueError as error:
            raise InputError(f"{name}: cannot be read as an array of ids ({error})") from error
        return array if kind == "int" else [str(item) for item in array.tolist()]
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not a text file with one id per line ({error.reason})") from error
    return ids_of([line for line in text.splitlines() if line.strip()], kind, name)


def ids_asked(given: list[str] | None, file: str | None, kind: str) -> Any:
    """The ids of a command that takes them as arguments or in a file."""
    if bool(given) == bool(file):
        raise typer.BadParameter("give ids, or a file of them with --ids")
    return ids_in_file(file, kind) if file else ids_of(given or [], kind)


def read_filter(text: str | None, kind: str) -> Any:
    """``--filter``: a JSON object is a filter over payloads; anything else is ids, or a file of them.

    >>> read_filter('{"lang": "en"}', "str"), read_filter("a, b", "str"), read_filter('["a, b"]', "str")
    ({'lang': 'en'}, ['a', 'b'], ['a, b'])
    """
    if text is None:
        return None
    text = text.strip()
    if text.startswith("{"):
        return _payload_filter(text)
    if text.startswith("@"):
        return ids_in_file(text[1:], kind)
    if text == "-" or is_file(text):
        return ids_in_file(text, kind)
    return ids_of(_listed(text), kind, "--filter")


def _payload_filter(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f'--filter: not a JSON object: {error}; write a filter over payloads as \'{{"lang": "en"}}\', '
            "or put ids that begin with a brace into a file"
        ) from None


def _listed(text: str) -> list[str]:
    """Ids with commas between them, or, where an id has a comma itself, a JSON list."""
    if text.startswith("["):
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError):
            listed = None
        if isinstance(listed, list) and all(isinstance(one, str | int) and not isinstance(one, bool) for one in listed):
            return [str(one) for one in listed]
    return [part.strip() for part in text.split(",") if part.strip()]
