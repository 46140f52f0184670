"""The extension modules and nothing else; all metadata is in pyproject.toml."""

import os
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

# Compiled for the ABI's floor: wider bodies come from function attributes (cython_src/simd.h).
# No contraction: a fused multiply-add would give other bits than the portable body.
flags = ["/O2", "/utf-8"] if sys.platform == "win32" else ["-O3", "-ffp-contract=off", "-fno-math-errno"]
links: list[str] = []
if os.environ.get("LSQINDEX_SANITIZE"):
    flags += ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    links += ["-fsanitize=address,undefined"]

headers: dict[str, tuple[str, ...]] = {
    "gate": (),
    "encoding": ("simd", "feedback", "flips", "descend", "product", "pack"),
    "records": ("checksum", "pages", "rows"),
    "scan": ("simd", "checksum", "rows", "nibbles", "codes", "sums", "nearest", "progressive", "scan"),
    "exact": ("simd", "checksum", "rows", "exact", "misses"),
    "multi_index": ("simd", "checksum", "rows", "nibbles", "codes", "lists", "probes", "scores"),
}
setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        [
            Extension(
                f"lsqindex._compiled.{name}",
                [f"cython_src/{name}.pyx"],
                include_dirs=["cython_src"],
                depends=[f"cython_src/{header}.h" for header in depends],
                extra_compile_args=flags,
                extra_link_args=links,
                libraries=[] if sys.platform == "win32" else ["m"],
            )
            for name, depends in headers.items()
        ]
    ),
)
