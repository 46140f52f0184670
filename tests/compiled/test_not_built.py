"""A source tree that was not built says what to do; an installed package is not affected by it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lsqindex

PACKAGE = Path(lsqindex.__file__).parent


def _import(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """``import lsqindex`` in a shell whose directory is ``folder``."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-c", "import lsqindex; print(lsqindex.__file__)"],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the package as a checkout has it before a build."""
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "checkout" / "lsqindex", ignore=ignored)
    return tmp_path / "checkout"


def test_sources_that_were_not_built_say_what_to_do(sources: Path) -> None:
    done = _import(sources)
    assert done.returncode != 0
    told = done.stderr.splitlines()[-1]
    assert told.startswith("ImportError: the compiled modules of lsqindex are missing")
    assert "pip install --editable ." in told
    assert "start Python in another directory" in told
    assert "circular import" not in done.stderr


def test_elsewhere_the_installed_package_is_imported(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    done = _import(tmp_path / "elsewhere", PYTHONPATH=str(PACKAGE.parent))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == PACKAGE


def test_a_module_that_cannot_be_loaded_keeps_its_own_error(sources: Path) -> None:
    names = [path.name for path in (PACKAGE / "_compiled").iterdir() if path.suffix in (".so", ".pyd")]
    for name in names:
        (sources / "lsqindex" / "_compiled" / name).write_bytes(b"not a module")
    done = _import(sources)
    assert done.returncode != 0
    assert "compiled modules of lsqindex are missing" not in done.stderr
    assert any(name.partition(".")[0] in done.stderr.splitlines()[-1] for name in names)
