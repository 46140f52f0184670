"""Messages in the words of the command line.

The messages of the library tell a Python programmer what to do: ``save(path)``, ``upsert=True``. On the command line
there are commands and options instead. Every message that leaves through the command line passes through
:func:`for_the_shell`, and nothing else needs to know about it.
"""

from __future__ import annotations

import re

#: Parts of a message, and the words for them; the first rule that fits a place wins.
_RULES: tuple[tuple[str, str], ...] = (
    # Advice that a command cannot follow, or has a better way for.
    (r"open it with Index\.open(?:, or remove it first)?", "choose another name, or remove it first"),
    (r"Index\.open(?:\([^)]*\))? opens (?:it|that one)(?: again| for writing| here)?", "run the command again"),
    (r"open it again", "run the command again"),
    (r"wait=True waits(?: for it)?", "try again later"),
    (r"set_subset\('multi-index'\) adds one", "create one with --subset multi-index"),
    (r"set_subset\('cells'\) or \('multi-index'\) adds one", "create one with --subset cells or multi-index"),
    (r"this index was created with ids='str'", "the ids of this index are strings"),
    (r"pass one for each vector", "give one for each vector with --ids or --id-column"),
    (r"pass ids\b", "give them with --ids"),
    # Calls that are commands.
    (r"(?:Index|index)?\.?\bsave\([^)]*\)", "lsqindex copy"),
    (r"Index\.create\((?:…|\.\.\.)?,? *", "lsqindex create "),
    (r"(?:\b[Ii]ndex\.)?\b(add|check|compact|create|delete|get|reencode|search|stats|train)\([^)]*\)", r"lsqindex \1"),
    (r"\bIndex\.(add|check|compact|create|delete|get|reencode|search|train)\b", r"lsqindex \1"),
    # Arguments that are options.
    (r"\bupsert=True", "--upsert"),
    (r"\bread_only=True|\bread_only=False|\bIndex\.open(?:\([^)]*\))?", "lsqindex"),
    (r"\bfilter=", "--filter "),
    (
        r"\b(bits|candidates|dim|distance|encoder|ids|k|keep_vectors|metric|probes|rerank|strategy|subset|table_bits"
        r"|threads|train_size)=(?:'([^']*)'|\b(None)\b|([\w.-]+))\)?",
        "",
    ),
    (r"(?<!-p )\b(axes|field_bits|iterations|lam|levels|refine|rotations|scalar|seed)=", r"-p \1="),
)
_COMPILED = [(re.compile(pattern), words) for pattern, words in _RULES]
#: What a user gave, which is shown in quotes, and encoders, such as ``LSH(bits=32)``, stay as they are. (Quotes after
#: = and ( are those of an argument.)
_QUOTED = re.compile(r"((?<![=(\w])'[^']*'|\b[A-Z]\w*\(\w+=[^)]*\))")


def for_the_shell(message: str) -> str:
    """``message`` with commands and options in the place of Python calls and arguments.

    >>> for_the_shell("ids: 'upsert=True' is in the index already; upsert=True replaces, delete(ids) removes")
    "ids: 'upsert=True' is in the index already; --upsert replaces, lsqindex delete removes"
    >>> for_the_shell("use bits=64 or less, or keep_vectors='float32' or 'int8'")
    "use --bits 64 or less, or --keep-vectors float32 or 'int8'"
    """
    parts = _QUOTED.split(message)
    return "".join(part if i % 2 else _rewritten(part) for i, part in enumerate(parts))


def _rewritten(text: str) -> str:
    for pattern, words in _COMPILED:
        text = pattern.sub(words or _option, text)
    return text


def _option(found: re.Match[str]) -> str:
    """``keep_vectors='int8'`` as ``--keep-vectors int8``."""
    value = found[2] if found[2] is not None else (found[3] or found[4])
    return f"--{found[1].replace('_', '-')} {value.lower() if value == 'None' else value}"
