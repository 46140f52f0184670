"""Bare loops in C, which kernels are compared with: compiled by the system's compiler for this machine."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

from lsqindex._compiled import encoding as _kernels


def compiled(source: Path, directory: Path) -> ctypes.CDLL | None:
    """The functions of a C file, for the best instruction set of this machine; None without a compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or os.name != "posix":
        return None
    flags = ["-mavx2"] if "avx2" in _kernels.simd_levels() else []
    path = directory / f"{source.stem}.so"
    done = subprocess.run([compiler, "-O3", *flags, "-shared", "-fPIC", "-o", str(path), str(source)])
    if done.returncode:
        return None
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # nothing may be run from there
        return None
