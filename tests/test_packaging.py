"""The source distribution builds from scratch, and what it installs works without this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

USE = """
import lsqindex, numpy
assert "site" in lsqindex.__file__, lsqindex.__file__
x = numpy.random.default_rng(0).standard_normal((300, 8))
print(lsqindex.make_encoder("lsq", bits=32).fit(x).encode(x).shape)
"""


def test_the_sdist_has_all_it_needs_to_build_a_wheel_that_works(tmp_path: Path) -> None:
    backend = (
        "import setuptools.build_meta as backend, sys; "
        "print(getattr(backend, 'build_' + sys.argv[1])(sys.argv[2]), file=sys.stderr)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(arguments: list[str], folder: Path, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=folder, env={**environment, **variables}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(["-c", backend, "sdist", str(tmp_path)], ROOT)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        assert {"cython_src/kernels.pyx", "cython_src/flips.h", "LICENSE", "lsqindex/py.typed"} <= set(names)
        assert not [name for name in names if name.endswith((".c", ".so"))]
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.10.12, 3.11.4
        archive.extractall(tmp_path, **safe)
    run(["-c", backend, "wheel", str(tmp_path)], tmp_path / sdist.name.removesuffix(".tar.gz"))
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as built:
        assert {"lsqindex/py.typed", "lsqindex/_kernels.pyi"} <= set(built.namelist())
        built.extractall(tmp_path / "site")
    assert run(["-c", USE], tmp_path, PYTHONPATH=str(tmp_path / "site")) == "(300, 4)\n"
