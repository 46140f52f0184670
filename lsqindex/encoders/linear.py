"""Encoders whose reconstruction is linear in their fields: their asymmetric tables are made in C."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from .._compiled.encoding import Linear
from .._inputs.vectors import Vectors
from .base import Distance, Encoder, Metric
from .layout import Tables

if TYPE_CHECKING:
    from .linear_tables import LinearTables
    from .lsq_length import LengthTables


class LinearEncoder(Encoder):
    """An encoder that makes asymmetric tables by ``_linear``, and symmetric ones by ``_tables``."""

    @property
    @abstractmethod
    def _linear(self) -> LinearTables | LengthTables:
        """What makes them."""

    def _checked_tables(self, queries: Vectors, metric: Metric, distance: Distance) -> Tables:
        return self._table_maker(metric, distance)(queries)

    def _table_maker(self, metric: Metric, distance: Distance) -> Callable[[Vectors], Tables]:
        if distance == "asymmetric":
            return partial(self._linear.of, metric=metric)
        return partial(super()._checked_tables, metric=metric, distance=distance)

    def _linear_tables(self, metric: Metric, distance: Distance) -> Linear | None:
        return self._linear.linear(metric) if distance == "asymmetric" else None
