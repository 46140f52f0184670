"""The door for single arguments: numbers, switches and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ParameterError, shown


def check_int(name: str, value: Any, low: int, high: int) -> int:
    """``value`` as an int within [low, high], or a ParameterError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise ParameterError(f"{name}={shown(value)}: a whole number from {low} to {high} is needed")
    return int(value)


def check_bool(name: str, value: Any) -> bool:
    """``value`` as a bool: a string or a number would be true without being meant."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name}={shown(value)}: True or False is needed")
    return bool(value)


def is_among(value: Any, names: Sequence[str]) -> bool:
    """Whether ``value`` is one of these names; it may be any object, an array for example."""
    return isinstance(value, str) and value in names
