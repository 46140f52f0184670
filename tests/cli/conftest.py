"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .running import VECTORS, run


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    np.save(tmp_path / "vectors.npy", VECTORS)
    return tmp_path / "vectors.npy"


@pytest.fixture
def index(tmp_path: Path, vectors: Path) -> Path:
    """Trained, with kept vectors and a multi-index."""
    path = tmp_path / "some.lsq"
    run("create", path, "--dim", 8, "--encoder", "lsh", "--bits", 32, "--keep-vectors", "float32",
        "--subset", "multi-index", "--table-bits", 8, "--train-size", 500)  # fmt: skip
    run("add", path, vectors)
    return path
