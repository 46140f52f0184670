"""The command line and the hosts stand on what every user can import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lsqindex"


def imported(path: Path) -> Iterator[str]:
    """The modules that a file of the package imports, by their full names."""
    here = ["lsqindex", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{name.name}" for name in node.names)


def private(module: str) -> bool:
    """Whether a part of a module's name of ours begins with an underscore."""
    parts = module.split(".")
    return parts[0] == "lsqindex" and any(part.startswith("_") and not part.startswith("__") for part in parts)


@pytest.mark.parametrize("room", ["cli", "hosts"])
def test_nothing_private_is_imported(room: str) -> None:
    found = {path.name: [name for name in imported(path) if private(name)] for path in (PACKAGE / room).glob("*.py")}
    assert found
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_private_imports_would_be_seen() -> None:
    """The index itself uses private rooms: the test above must be able to fail."""
    assert any(private(name) for name in imported(PACKAGE / "index.py"))
    assert not private("lsqindex.__version__")
