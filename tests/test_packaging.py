"""The source distribution builds from scratch, and what it installs works without this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from tests.settings import ROOT

EXTENSIONS = tuple(path.stem for path in (ROOT / "cython_src").glob("*.pyx"))


@dataclass(frozen=True)
class Built:
    """One sdist of this checkout, a wheel that was made of nothing else, and a folder where that is installed."""

    sdist: Path
    wheel: Path
    site: Path
    sources: list[str]
    contents: list[str]


def run(arguments: list[str], folder: Path, **variables: str) -> str:
    """Run Python in ``folder`` with the packages of this environment, but without the paths of this process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**environment, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """As a packager does it, but offline: no isolation, and the build requirements of this environment."""
    folder = tmp_path_factory.mktemp("dist")
    build = ["-m", "build", "--no-isolation", "--outdir", str(folder)]
    run([*build, "--sdist", str(ROOT)], folder)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        sources = [name.partition("/")[2] for name in archive.getnames()]
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.10.12, 3.11.4
        archive.extractall(folder, **safe)
    run([*build, "--wheel", str(folder / sdist.name.removesuffix(".tar.gz"))], folder)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    pip = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    run([*pip, "--target", str(site), str(wheel)], folder)
    with zipfile.ZipFile(wheel) as archived:
        return Built(sdist, wheel, site, sources, archived.namelist())


def test_the_sdist_has_what_building_needs_and_nothing_built(built: Built) -> None:
    kernels = {f"cython_src/{path.name}" for path in (ROOT / "cython_src").iterdir() if path.suffix in (".pyx", ".h")}
    stubs = {f"lsqindex/_compiled/{name}.pyi" for name in EXTENSIONS}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "lsqindex").rglob("*.py")}
    files = {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "setup.py"}
    files |= {"lsqindex/py.typed", "lsqindex/cli/digits.npz"}
    assert kernels | stubs | modules | files <= set(built.sources)
    assert not [name for name in built.sources if name.endswith((".c", ".so", ".pyd", ".o", ".pyc"))]
    assert not [name for name in built.sources if name.startswith(("build/", "dist/", ".venv", ".github/"))]


def test_the_wheel_has_the_package_and_no_sources_of_kernels(built: Built) -> None:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "lsqindex").rglob("*.py")}
    extensions = {f"lsqindex/_compiled/{name}{end}" for name in EXTENSIONS for end in (suffix, ".pyi")}
    assert modules | extensions | {"lsqindex/py.typed", "lsqindex/cli/digits.npz"} <= set(built.contents)
    assert not [name for name in built.contents if name.endswith((".c", ".h", ".pyx", ".pyc"))]
    beside = {name for name in built.contents if not name.startswith(("lsqindex/", "lsqindex-"))}
    integrations = ("document_stores", "components/retrievers")  # where Haystack looks for them
    assert beside == {f"haystack_integrations/{place}/lsqindex/__init__.py" for place in integrations}
    assert [name for name in built.contents if name.endswith("/licenses/LICENSE")]


def test_the_metadata_are_such_as_an_index_of_packages_takes(built: Built) -> None:
    said = run(["-m", "twine", "check", "--strict", str(built.sdist), str(built.wheel)], built.site)
    assert said.count("PASSED") == 2, said
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (name for name in built.contents if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "MIT"
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert {line.partition(">=")[0] for line in needed} == {"numpy", "lmdb", "msgpack"}


def test_what_is_installed_indexes_and_searches_without_this_checkout(built: Built) -> None:
    # (-S and explicit paths: an editable installation of this checkout would come first.)
    paths = [str(built.site), *(path for path in sys.path if path.endswith("site-packages"))]
    code = f"import runpy; runpy.run_path({str(ROOT / 'tests' / 'smoke.py')!r}, run_name='__main__')"
    said = run(["-S", "-W", "error", "-c", code], built.site, PYTHONPATH=os.pathsep.join(paths))
    assert f" in {built.site / 'lsqindex'}, " in said
