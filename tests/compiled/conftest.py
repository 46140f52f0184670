"""What tests of the kernels share. They are copied out of the checkout and import nothing of the other tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lsqindex._compiled import encoding as _kernels


@pytest.fixture(params=_kernels.simd_levels())
def simd(request: pytest.FixtureRequest) -> Iterator[str]:
    """An instruction set, which is in use."""
    before = _kernels.simd_level()
    _kernels.use_simd(request.param)
    yield request.param
    _kernels.use_simd(before)
