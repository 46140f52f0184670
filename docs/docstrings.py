r"""Turn our docstrings, which are written for readers of the source, into Markdown for the reference.

    :class:`Layout`, :meth:`search`     a link, if the reference has the object
    doctests                            blocks of code
    lam, iterations, seed               one entry each
    as follows::                        as follows:
    #: Dimensions of the vectors.       the docstring of the attribute below

This is an extension of Griffe, which reads the source for mkdocstrings.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Alias, Attribute, Docstring, Extension, NameResolutionError, Object, get_logger

_logger = get_logger("docstrings")

_ROLE = re.compile(r":(?:class|meth|func|attr|mod):`([\w.]+)`")
_DOCTEST = re.compile(r"^([ ]*)>>> .*(?:\n\1\S.*|\n\1[ ]+\S.*)*", re.MULTILINE)
_SECTION = re.compile(r"^-{3,}$", re.MULTILINE)
_EXAMPLES = re.compile(r"^Examples\n-{3,}$", re.MULTILINE)
_GROUP = re.compile(r"^(\w+(?:, \w+)+)((?:\n[ ]{4}.*)+)", re.MULTILINE)


class Docstrings(Extension):
    """Rewrites each docstring after the whole package has been read."""

    def on_package(self, *, pkg: Object, **_: Any) -> None:
        """Walk through the package."""
        self._walk(pkg)

    def _walk(self, thing: Object) -> None:
        _take_comment(thing)
        if thing.docstring:
            thing.docstring.value = as_markdown(thing.docstring.value, thing)
        for member in thing.members.values():
            if not isinstance(member, Alias):
                self._walk(member)


def as_markdown(text: str, owner: Object) -> str:
    """``text`` with links and marked blocks of code, and without reStructuredText."""
    text = _ROLE.sub(lambda role: _link(role[1], owner), text)
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
    return fenced(parted(text))


def parted(text: str) -> str:
    """``text`` with one entry per parameter; Griffe gives parameters that share an entry the type of the first.

    >>> print(parted("Parameters\\n----------\\nsize, seed\\n    How many; where\\n    it begins."))
    Parameters
    ----------
    size
        How many
    seed
        where it begins.
    """

    def entries(found: re.Match[str]) -> str:
        names, description = found[1].split(", "), " ".join(found[2].split())
        parts = description.split("; ")
        parts = parts if len(parts) == len(names) else [description] * len(names)
        return "".join(f"{name}\n    {part}\n" for name, part in zip(names, parts, strict=True)).rstrip("\n")

    return _GROUP.sub(entries, text) if _SECTION.search(text) else text


def fenced(text: str) -> str:
    """``text`` with its doctests in fences; after a section such as Parameters, they get a section of their own.

    >>> fenced("One:\\n\\n>>> 1 + 1\\n2\\n\\nTwo.")
    'One:\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n\\nTwo.'
    """
    if _EXAMPLES.search(text):
        return text
    if _SECTION.search(text):
        return _DOCTEST.sub(lambda block: f"Examples\n--------\n{block[0]}", text, count=1)
    return _DOCTEST.sub(lambda block: f"{block[1]}```pycon\n{block[0]}\n{block[1]}```", text)


def _link(name: str, owner: Object) -> str:
    """A link to ``name`` as ``owner`` knows it; plain code if the reference does not have it."""
    first, dot, rest = name.partition(".")
    shown = name
    try:
        if first == "lsqindex":
            path, shown = name, name.rpartition(".")[2]
        else:
            path = owner.resolve(first) + dot + rest
    except NameResolutionError:
        if first in owner.package["errors"].members:  # raised further inside, so not imported here
            return f'<autoref optional identifier="{owner.package.path}.errors.{name}">`{name}`</autoref>'
        if "._" not in owner.path:  # private things are not in the reference
            _logger.warning(f"{owner.path}: nothing is called {name!r}")
        return f"`{name}`"
    return f'<autoref optional identifier="{path}">`{shown}`</autoref>'


def _take_comment(thing: Object) -> None:
    """Take the ``#:`` lines above an attribute, or above its group, as its docstring."""
    if thing.docstring or not isinstance(thing, Attribute) or thing.lineno is None:
        return
    try:
        lines = thing.lines_collection[thing.filepath]  # type: ignore[index]
    except (KeyError, ValueError):
        return
    row = thing.lineno - 2
    while row >= 0 and re.match(r"\s*\w+\s*:\s*\S", lines[row]) and not lines[row].lstrip().startswith("#"):
        row -= 1
    comment: list[str] = []
    while row >= 0 and lines[row].lstrip().startswith("#:"):
        comment.insert(0, lines[row].lstrip().removeprefix("#:").strip())
        row -= 1
    if comment:
        thing.docstring = Docstring(" ".join(comment), lineno=row + 2, parent=thing)
