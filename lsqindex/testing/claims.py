"""What the claims of an encoder are tested with: the encoder, vectors, and what it should raise.

``fit_claims.py`` and its neighbours have the claims, by what they are about; ``conformance.py`` puts them together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from .._inputs.vectors import Vectors
from ..encoders import Encoder, Tables


@lru_cache(maxsize=8)
def clustered_vectors(dim: int, n: int = 1000) -> Vectors:
    """Make reproducible vectors with clusters, strong and weak directions, and a mean that is not zero.

    Parameters
    ----------
    dim
        Dimensions.
    n
        The number of vectors.

    Returns
    -------
    numpy.ndarray
        float32, shape (n, dim), read-only.

    Examples
    --------
    >>> clustered_vectors(8).shape
    (1000, 8)
    """
    rng = np.random.default_rng(dim)
    centres = rng.standard_normal((12, dim))
    spread = np.linspace(1.0, 0.2, dim)
    rows = centres[rng.integers(0, 12, n)] + 0.5 * rng.standard_normal((n, dim))
    out: Vectors = ((rows * spread) @ np.linalg.qr(rng.standard_normal((dim, dim)))[0] + 0.3).astype(np.float32)
    out.flags.writeable = False
    return out


def raises(kind: type[BaseException], act: Callable[[], object], *words: str) -> str:
    """Assert that ``act`` raises ``kind`` with a message that has all ``words``; the message.

    >>> raises(ZeroDivisionError, lambda: 1 / 0, "division")
    'division by zero'
    """
    try:
        act()
    except kind as error:
        message = str(error)
        missing = [word for word in words if word not in message]
        assert not missing, f"{message!r} does not say {missing}"
        return message
    except BaseException as error:
        raise AssertionError(f"{kind.__name__} was due, got {type(error).__name__}: {error}") from error
    raise AssertionError(f"{kind.__name__} was due, nothing was raised")


class Claims(ABC):
    """An encoder, fitted or not, and the vectors it is tested with."""

    #: Dimensions of the default ``vectors``.
    dim: int = 24

    _fitted: ClassVar[dict[type, Encoder]] = {}

    @abstractmethod
    def make_encoder(self) -> Encoder:
        """Return a new, unfitted encoder, always with the same parameters."""

    @property
    def vectors(self) -> Vectors:
        """The vectors that the encoder is trained on and encodes."""
        return clustered_vectors(self.dim)

    def fitted(self) -> Encoder:
        """Return the encoder, fitted once per class; tests do not change it."""
        kind = type(self)
        if kind not in self._fitted:
            self._fitted[kind] = self.make_encoder().fit(self.vectors)
        return self._fitted[kind]

    def _small_integers(self) -> Vectors:
        """Rows that int8, uint8, float16 and float64 hold exactly."""
        rows = self.vectors[:64]
        low, high = float(rows.min()), float(rows.max())
        whole: Vectors = np.rint((rows - low) / max(high - low, 1e-9) * 100).astype(np.float32)
        return whole


def snapshot(encoder: Encoder) -> tuple[Any, ...]:
    """All that makes a fitted encoder, to compare."""
    arrays = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in encoder.state.items()}
    return type(encoder), encoder.dim, encoder.config, arrays


def assert_equal_tables(one: Tables, other: Tables) -> None:
    """Bit by bit."""
    assert np.array_equal(one.values, other.values)
    assert np.array_equal(one.bias, other.bias)
