"""The extension modules and nothing else; all metadata is in pyproject.toml."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# Compiled for the ABI's floor: wider bodies come from function attributes (cython_src/simd.h).
# No contraction: a fused multiply-add would give other bits than the portable body.
flags = ["/O2", "/utf-8"] if sys.platform == "win32" else ["-O3", "-ffp-contract=off", "-fno-math-errno"]
links: list[str] = []
if os.environ.get("LSQINDEX_SANITIZE"):
    flags += ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    links += ["-fsanitize=address,undefined"]

headers = sorted(str(path) for path in Path("cython_src").glob("*.h"))
setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        [
            Extension(
                f"lsqindex._compiled.{name}",
                [f"cython_src/{name}.pyx"],
                include_dirs=["cython_src"],
                depends=headers,
                extra_compile_args=flags,
                extra_link_args=links,
                libraries=[] if sys.platform == "win32" else ["m"],
            )
            for name in ("gate", "encoding", "records", "scan", "exact", "multi_index", "ranking", "assign")
        ],
        include_path=["cython_src"],
    ),
)
