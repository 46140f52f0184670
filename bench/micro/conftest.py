"""Vectors of the microbenchmarks, the same in every run."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

DIM = 64


@pytest.fixture(scope="session")
def vectors() -> NDArray[np.float32]:
    """Clusters, as embeddings have them."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((200, DIM))
    return (np.repeat(centres, 100, axis=0) + 0.5 * rng.standard_normal((20_000, DIM))).astype(np.float32)
