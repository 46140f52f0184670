"""The extension modules and nothing else; all metadata is in pyproject.toml."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# Those that take longest to compile come first, so that no processor waits for the last one.
_MODULES = ("search", "cells", "exact", "scan", "gate", "encoding", "assign", "multi_index", "records", "ranking")
_SHARED = "lsqindex._compiled.shared"  # Cython's code for memoryviews: once, instead of once in every module

# Compiled for the ABI's floor: wider bodies come from function attributes (cython_src/simd.h).
# No contraction: a fused multiply-add would give other bits than the portable body.
# No debug information, which Python's own flags ask for: it takes a fifth of the time.
_FLAGS = ["/O2", "/utf-8"] if sys.platform == "win32" else ["-O3", "-g0", "-ffp-contract=off", "-fno-math-errno"]
_LINKS: list[str] = []
if os.environ.get("LSQINDEX_SANITIZE"):
    _FLAGS += ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    _LINKS += ["-fsanitize=address,undefined"]
# Modules without a kernel: nothing to vectorize.
_PLAIN_FLAGS = _FLAGS if sys.platform == "win32" else [*_FLAGS, "-O1"]


def _module(name: str, source: str, flags: list[str]) -> Extension:
    return Extension(
        name,
        [source],
        include_dirs=["cython_src"],
        depends=sorted(str(path) for path in Path("cython_src").glob("*.h")),
        extra_compile_args=flags,
        extra_link_args=_LINKS,
        libraries=[] if sys.platform == "win32" else ["m"],
    )


if __name__ == "__main__":  # Cython's worker processes may import this file
    modules = [
        _module(f"lsqindex._compiled.{name}", f"cython_src/{name}.pyx", _PLAIN_FLAGS if name == "gate" else _FLAGS)
        for name in _MODULES
    ]
    # Cython takes the module's full name from this file's: as plain "shared" it would be in everyone's sys.modules.
    modules.append(_module(_SHARED, f"cython_src/{_SHARED}.c", _PLAIN_FLAGS))
    setup(
        options={"build_ext": {"parallel": os.cpu_count()}},
        ext_modules=cythonize(
            modules,
            nthreads=os.cpu_count(),
            include_path=["cython_src"],
            shared_utility_qualified_name=_SHARED,
            compiler_directives={"auto_pickle": False, "emit_code_comments": False},  # less to compile
        ),
    )
