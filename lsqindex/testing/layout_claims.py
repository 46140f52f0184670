"""What an encoder says of its codes, as tests: part of :class:`lsqindex.testing.EncoderConformance`.

A search believes a layout without checking it, so a wrong claim does not raise an error. It makes searches worse.
Each test here takes one claim, measures whether it holds, and names the claim in its message:

    levels     no field holds more values
    linear     asymmetric look-ups are affine in the bits of their field, so the scan may cut fields at nibbles
    scalars    so many leading fields are row scalars, and no other field is one
    head       the first bytes of a code rank nearly as well as all of it
    hashes     near vectors share fields of their codes
    tables     sums of look-ups find the nearest as well as the reconstructions do, and the kernels find the same
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..encoders import Encoder
from ..encoders.base import Distance, Metric
from ..encoders.layout import MARGIN_SHARES
from ..index import Index
from ..metrics import METRICS, NAMES
from . import reference
from .claims import Claims


class LayoutClaims(Claims):
    """Tests of what ``layout``, ``hashes`` and ``tables`` say."""

    #: The share of the nearest that reconstructions find and sums of look-ups have to find, too.
    min_share_of_decode: float = 0.8

    def test_fields_are_below_their_levels(self) -> None:
        """``layout.levels`` says how many values each field takes, and tables have no look-ups for others."""
        encoder = self.fitted()
        if encoder.layout.floats:
            return
        fields = encoder._encode(np.array(self.vectors))
        assert fields.shape == (len(self.vectors), len(encoder.layout.levels)), (
            f"layout.levels has {len(encoder.layout.levels)} fields, _encode gives {fields.shape[1]}"
        )
        most = fields.max(axis=0)
        for j in np.flatnonzero(most >= encoder.layout.level_counts):
            raise AssertionError(
                f"layout.levels says that field {j} is below {encoder.layout.levels[j]}, _encode gives {most[j]}"
            )

    def test_a_linear_layout_has_look_ups_affine_in_their_bits(self) -> None:
        """``layout.linear``: the scan cuts such fields into bits and adds up what each bit counts."""
        encoder = self.fitted()
        layout = encoder.layout
        if not layout.linear:
            return
        for metric, distance in _offered(encoder):
            tables = encoder.tables(self.vectors[:8], metric, distance)
            # Symmetric look-ups of code dimensions need not be affine.
            last = len(layout.bits) if distance == "asymmetric" else layout.scalars
            for j in range(last):
                own = tables.values[:, layout.starts[j] : layout.starts[j + 1]].astype(np.float64)
                away = np.abs(own - _affine(own)).max()
                assert away <= 1e-4 * np.abs(tables.values).max(), (
                    f"layout.linear is True, but {distance} look-ups of field {j} are not affine in its bits "
                    f"(metric {metric}, off by {away:.3g}); use linear=False"
                )

    def test_row_scalars_are_the_leading_fields_that_the_layout_says(self) -> None:
        """``layout.scalars``: what a row scalar adds does not depend on the query's direction, and is no dimension."""
        encoder = self.fitted()
        layout = encoder.layout
        fixed = (name for name in NAMES if METRICS[name].base == "l2")
        metric = next((m for m in fixed if "asymmetric" in encoder.distances(m)), None)
        if layout.floats or metric is None:
            return
        values = encoder.tables(self.vectors[:64], metric, "asymmetric").values.astype(np.float64)
        scale = np.abs(values).max()
        for j, (first, end) in enumerate(pairwise(layout.starts)):
            own = values[:, first:end] - values[:, first : first + 1]
            if np.abs(own).max() <= 1e-4 * scale:
                continue
            same = np.abs(own - own[:1]).max() <= 1e-4 * max(np.abs(own).max(), 1e-3 * scale)
            if j < layout.scalars:
                orders = np.unique(np.sign(np.where(np.abs(own) > 1e-4 * scale, own, 0)), axis=0)
                assert len(orders) == 1, (
                    f"layout.scalars={layout.scalars}: field {j} is no row scalar, because its look-ups rank its "
                    f"values differently for different queries; use scalars={j}"
                )
            else:
                assert not same, (
                    f"layout.scalars={layout.scalars}: the look-ups of field {j} are the same for all queries, so it "
                    f"is a row scalar and no dimension of the code; put row scalars first and count them in scalars"
                )

    def test_the_head_of_a_code_ranks_nearly_as_well_as_all_of_it(self) -> None:
        """``layout.head`` and ``layout.margins``: what the progressive scan leaves after its head is not wanted."""
        encoder = self.fitted()
        layout = encoder.layout
        metric = next((m for m in NAMES if "asymmetric" in encoder.distances(m)), None)
        if not layout.head or metric is None:
            return
        codes = encoder.encode(self.vectors)
        exact, _ = reference.nibble_tables(layout, encoder.tables(self.vectors[:100], metric, "asymmetric"))
        nothing = np.zeros(len(exact), np.float32)
        heads = reference.nibble_distances(codes[:, : layout.head], exact[:, : 2 * layout.head], nothing)
        whole = reference.nibble_distances(codes, exact, nothing)
        limits = heads.mean(axis=1) - layout.margins[0] * heads.std(axis=1)
        wanted = max(1, round(MARGIN_SHARES[0] * len(codes)))
        near = np.argpartition(whole, wanted - 1, axis=1)[:, :wanted]
        passing = float((np.take_along_axis(heads, near, axis=1) <= limits[:, None]).mean())
        assert passing > 0.9, (
            f"layout.head={layout.head} with layout.margins={layout.margins}: only {passing:.2f} of the nearest rows "
            f"pass by their heads; use smaller margins, a longer head, or head=0"
        )

    def test_near_vectors_share_fields_where_the_encoder_hashes(self) -> None:
        """``hashes``: an index looks for near vectors under the fields of the query's code."""
        encoder = self.fitted()
        layout = encoder.layout
        if layout.floats or not encoder.hashes:
            return
        rows = self.vectors[:500]
        fields = layout.unpack(encoder.encode(rows))[:, layout.scalars :]
        away = METRICS["l2"].pairs(rows.astype(np.float64), rows.astype(np.float64))
        np.fill_diagonal(away, np.inf)
        near = np.argpartition(away, 4, axis=1)[:, :5]
        shared = float((fields[:, None] == fields[near]).mean())
        usual = float((fields[:, None] == fields[np.random.default_rng(0).permutation(500)[near]]).mean())
        assert shared > usual + 0.1 * (1 - usual), (
            f"hashes is True, but near vectors share {shared:.3f} of the fields of their codes, and any two share "
            f"{usual:.3f}; use hashes=False"
        )

    def test_look_ups_find_the_nearest_as_well_as_reconstructions(self) -> None:
        """``tables``: sums may estimate distances better than ``decode`` tells them, but not much worse."""
        encoder = self.fitted()
        if encoder.layout.floats:
            return
        queries, rows = self.vectors[:60], self.vectors[60:]
        codes = encoder.encode(rows)
        decoded = encoder.decode(codes)
        for metric in ("l2", "ip"):
            if "asymmetric" not in encoder.distances(metric):
                continue
            wide = queries.astype(np.float64)
            true, told = (METRICS[metric].pairs(wide, vectors.astype(np.float64)) for vectors in (rows, decoded))
            sums = reference.distances(codes, encoder.layout, encoder.tables(queries, metric, "asymmetric"))
            found, possible = _recall(true, sums), _recall(true, told)
            # Codes of few bits have many equal distances, and chance decides which of them are found.
            assert found >= self.min_share_of_decode * possible - 0.05, (
                f"tables disagree with decode for metric {metric}: sums of look-ups find {found:.2f} of the nearest, "
                f"distances to the reconstructions find {possible:.2f}"
            )

    def test_the_kernels_find_what_the_look_ups_say(self) -> None:
        """What an index finds by its compiled scan is what look-ups by field give, one after another."""
        encoder = self.fitted()
        layout = encoder.layout
        if layout.floats:
            return
        queries, k = self.vectors[:20], min(100, len(self.vectors))
        for metric, distance in _offered(encoder):
            rows = np.array(self.vectors)
            if METRICS[metric].unit:
                rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-30))
            with Index(dim=rows.shape[1], metric=metric, encoder=encoder, keep_vectors=None) as index:
                index.add(rows)
                found = index.search(queries, k=k, distance=distance, strategy="scan", rerank=0).distances
            sums = reference.distances(encoder.encode(rows), layout, encoder.tables(queries, metric, distance))
            near = np.sort(sums, axis=1)[:, :k]
            METRICS[metric].clamp(near)  # as an index does
            away = float(np.abs(found - near).max())
            assert away <= 1e-3 * float(np.ptp(sums)) + 1e-6, (
                f"the scan disagrees with the look-ups for metric {metric}, distance {distance} (off by {away:.3g}): "
                f"layout.linear={layout.linear}, layout.levels or layout.bits is wrong"
            )


def _offered(encoder: Encoder) -> Iterator[tuple[Metric, Distance]]:
    for metric in NAMES:
        for distance in encoder.distances(metric):
            yield metric, distance


def _affine(look_ups: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the look-ups of a field would be if each bit counted by itself."""
    numbers = np.arange(look_ups.shape[1])
    out = np.repeat(look_ups[:, :1], len(numbers), axis=1)
    for k in range((len(numbers) - 1).bit_length()):
        out += (look_ups[:, 1 << k] - look_ups[:, 0])[:, None] * (numbers >> k & 1)
    return out


def _recall(true: NDArray[np.float64], estimated: NDArray[np.float64] | NDArray[np.float32]) -> float:
    """Recall10@10; rows of equal distance count as equally near."""
    limit = np.sort(true, axis=1)[:, 9:10]
    found = np.argsort(estimated, axis=1, kind="stable")[:, :10]
    return float((np.take_along_axis(true, found, axis=1) <= limit).mean())
