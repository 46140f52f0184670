"""Look-up tables, as tests: part of :class:`lsqindex.testing.EncoderConformance`."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from .._inputs.vectors import Vectors
from ..encoders.base import Distance, Metric
from ..errors import ParameterError
from ..metrics import METRICS, NAMES
from . import reference
from .claims import Claims, assert_equal_tables, raises

_UNKNOWN = cast(Metric, "manhattan")


class TableClaims(Claims):
    """Tests of ``tables`` and ``probe_tables``."""

    #: The least correlation between estimated and true distances.
    min_correlation: float = 0.5
    #: The same for symmetric distances.
    min_symmetric_correlation: float = 0.3

    def test_tables_have_the_shape_of_the_layout(self) -> None:
        """Finite float32, one entry per level of every field, one bias per query."""
        encoder = self.fitted()
        queries = self.vectors[:6]
        width = encoder.dim if encoder.layout.floats else int(encoder.layout.starts[-1])
        for metric in NAMES:
            assert encoder.distances(metric)
            assert set(encoder.distances(metric)) <= {"asymmetric", "symmetric"}
            for distance in encoder.distances(metric):
                tables = encoder.tables(queries, metric, distance)
                assert tables.values.shape == (6, width)
                assert tables.bias.shape == (6,)
                assert tables.values.dtype == tables.bias.dtype == np.float32
                assert np.isfinite(tables.values).all()
                assert np.isfinite(tables.bias).all()

    def test_sums_of_look_ups_follow_the_true_distances(self) -> None:
        """For l2, ip, and (on unit vectors) cosine: nearer vectors have smaller sums."""
        for metric in NAMES:
            encoder, rows = self.fitted(), self.vectors
            if METRICS[metric].unit:
                rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
                encoder = self.make_encoder().fit(rows)
            codes = encoder.encode(rows[50:450])
            # For cosine the door normalizes queries: any length gives the same.
            queries = rows[:50] * np.float32(3 if METRICS[metric].unit else 1)
            exact = true_distances(rows[:50], rows[50:450], metric)
            for distance in encoder.distances(metric):
                tables = encoder.tables(queries, metric, distance)
                if encoder.layout.floats:
                    assert np.allclose(tables.values, rows[:50], rtol=1e-5, atol=1e-6), (metric, "queries themselves")
                    continue
                sums = reference.distances(codes, encoder.layout, tables)
                fit = np.corrcoef(exact.ravel(), sums.ravel())[0, 1]
                least = self.min_correlation if distance == "asymmetric" else self.min_symmetric_correlation
                assert fit > least, f"{metric}, {distance}: correlation {fit:.3f}"

    def test_the_symmetric_distance_to_the_own_code_is_the_least(self) -> None:
        """No code is nearer to a query than its own, in squared L2."""
        encoder, unknown = self.fitted(), cast(Distance, "nearest")
        if encoder.layout.floats or "symmetric" not in encoder.distances():
            raises(ParameterError, lambda: encoder.tables(self.vectors[:1], "l2", unknown), "distance")
            return
        queries = self.vectors[:20]
        tables = encoder.tables(queries, "l2", "symmetric")
        own = np.diag(reference.distances(encoder.encode(queries), encoder.layout, tables))
        starts = encoder.layout.starts
        fields = [tables.values[:, a:b] for a, b in pairwise(starts)]
        least = tables.bias + np.sum([field.min(axis=1) for field in fields], axis=0)
        most = tables.bias + np.sum([field.max(axis=1) for field in fields], axis=0)
        assert (most > least).all()
        assert (own <= least + 1e-4 * (most - least)).all()

    def test_tables_of_one_query_are_those_of_the_batch(self) -> None:
        """Up to rounding: queries do not know each other."""
        encoder = self.fitted()
        for distance in encoder.distances():
            many = encoder.tables(self.vectors[:9], distance=distance)
            one = encoder.tables(self.vectors[4:5], distance=distance)
            scale = float(np.abs(many.values).max())
            assert np.allclose(one.values[0], many.values[4], rtol=1e-4, atol=1e-5 * scale)

    def test_tables_refuse_unknown_metrics_and_distances(self) -> None:
        """ParameterError, naming what there is."""
        encoder, unknown = self.fitted(), cast(Distance, "near")
        raises(ParameterError, lambda: encoder.tables(self.vectors[:1], _UNKNOWN), "l2")
        raises(ParameterError, lambda: encoder.tables(self.vectors[:1], "l2", unknown), encoder.distances()[0])

    def test_probe_tables_have_the_shape_of_the_layout(self) -> None:
        """Finite float32; nothing for row scalars, no bias; the same when asked again, and no query written to."""
        encoder = self.fitted()
        queries = np.array(self.vectors[:6])
        if encoder.layout.floats:
            raises(ParameterError, lambda: encoder.probe_tables(queries), "no probe tables")
            return
        for metric in NAMES:
            tables = encoder.probe_tables(queries, metric)
            assert tables.values.shape == (6, int(encoder.layout.starts[-1]))
            assert tables.bias.shape == (6,)
            assert tables.values.dtype == tables.bias.dtype == np.float32
            assert np.isfinite(tables.values).all()
            assert not tables.bias.any()
            assert not tables.values[:, : encoder.layout.starts[encoder.layout.scalars]].any()
            assert_equal_tables(tables, encoder.probe_tables(queries.tolist(), metric))
            assert np.array_equal(queries, self.vectors[:6])

    def test_probe_tables_of_one_query_are_those_of_the_batch(self) -> None:
        """Up to rounding: queries do not know each other."""
        encoder = self.fitted()
        if encoder.layout.floats:
            return
        for metric in NAMES:
            many, one = (encoder.probe_tables(rows, metric).values for rows in (self.vectors[:40], self.vectors[33:34]))
            scale = float(np.abs(many).max())
            assert np.allclose(one[0], many[33], rtol=1e-4, atol=1e-5 * scale)

    def test_probe_tables_are_smaller_for_a_query_s_own_code_than_for_others(self) -> None:
        """For l2 and, on unit vectors, cosine: what is looked under first is where the query would have been put."""
        for metric in (name for name in NAMES if METRICS[name].base == "l2"):
            encoder, rows = self.fitted(), self.vectors
            if encoder.layout.floats:
                return
            if METRICS[metric].unit:
                rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
                encoder = self.make_encoder().fit(rows)
            queries = rows[:50] * np.float32(3 if METRICS[metric].unit else 1)
            sums = reference.distances(encoder.encode(rows[:50]), encoder.layout, encoder.probe_tables(queries, metric))
            share = float((np.diag(sums)[:, None] <= sums).mean())
            assert share > 0.9, f"{metric}: only {share:.2f} of other codes cost as much as a query's own"

    def test_probe_tables_refuse_unknown_metrics(self) -> None:
        """ParameterError, naming what there is."""
        raises(ParameterError, lambda: self.fitted().probe_tables(self.vectors[:1], _UNKNOWN), "l2")


def true_distances(queries: Vectors, rows: Vectors, metric: Metric) -> NDArray[np.float64]:
    """The distances that tables estimate, exactly.

    >>> true_distances(np.eye(2, dtype=np.float32)[:1], np.eye(2, dtype=np.float32), "l2")
    array([[0., 2.]])
    """
    return METRICS[metric].pairs(queries.astype(np.float64), rows.astype(np.float64))
