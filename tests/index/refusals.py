"""An error leaves no trace: an index is the same before and after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, LsqIndexError

VECTORS: NDArray[np.float32] = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
TWO = VECTORS[:2]


@dataclass
class Seen:
    """All that can be seen of an index."""

    count: int
    ids: list[Any]
    found: list[Any]
    vectors: NDArray[np.float32]
    trained: bool

    @classmethod
    def of(cls, index: Index) -> Seen:
        assert index.check() == []
        found = index.search(VECTORS[:5], 6)
        ids = index.ids()
        names = ids.tolist() if isinstance(ids, np.ndarray) else ids
        answer = [found.ids.tolist(), found.distances.tolist()]
        return cls(len(index), names, answer, index.get(names), index.is_trained)

    def assert_same(self, index: Index) -> None:
        now = Seen.of(index)
        assert (now.count, now.ids, now.found, now.trained) == (self.count, self.ids, self.found, self.trained)
        assert np.array_equal(now.vectors, self.vectors)


def refused(
    kind: type[LsqIndexError], built_in: type[Exception], words: tuple[str, ...], action: Callable[[], object]
) -> str:
    """The message of ``action``'s error, which is exactly of ``kind``, also a ``built_in``, and has all ``words``."""
    with pytest.raises(LsqIndexError) as caught:
        action()
    message = str(caught.value)
    assert type(caught.value) is kind, f"{type(caught.value).__name__}: {message}"
    assert isinstance(caught.value, built_in)
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"
    assert "np." not in message, "values are shown as a user writes them"
    return message


def names(numbers: Any, kind: str) -> list[Any]:
    return [str(number) for number in numbers] if kind == "str" else list(numbers)
