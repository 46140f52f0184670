"""Every instruction set of this machine: the kernels must give the same bits on each."""

from __future__ import annotations

from typing import Any

from lsqindex._compiled import encoding as _kernels


def on_every_level(act: Any) -> list[Any]:
    """What ``act`` gives on each."""
    before = _kernels.simd_level()
    try:
        results = []
        for level in _kernels.simd_levels():
            _kernels.use_simd(level)
            results.append(act())
        return results
    finally:
        _kernels.use_simd(before)
