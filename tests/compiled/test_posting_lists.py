"""Posting lists give the bits of ``lsqindex.testing.reference``, and damaged ones are not sound."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lsqindex._compiled import multi_index as _multi_index
from lsqindex._compiled import records as _records
from lsqindex.testing import reference

from .posting_lists import MOST_BITS, SPAN, Bytes, Codes, built, many, payload_of, random_codes


@pytest.mark.parametrize("bits", range(1, MOST_BITS + 1))
@pytest.mark.parametrize("n", [0, 1, 31, 33, 1001])
def test_built_lists_are_those_of_the_reference(bits: int, n: int) -> None:
    rng = np.random.default_rng(bits)
    for bit, width, head in ((0, 3, 3), (3, 3, 1), (7, 4, 2), (32 - bits, 4, 4)):
        codes = Codes(width, head)
        codes.add(0, random_codes(rng, n, width, n))
        count, payload = codes.build(bit, bits, 0, n)
        assert count == n
        assert payload.tobytes() == codes.expected(bit, bits, 0, n).tobytes()
        assert _multi_index.sound(payload, n, bits, n) is True


@many
@given(built())
def test_lists_of_any_bits_rows_and_records_are_those_of_the_reference(
    case: tuple[Codes, tuple[int, int, int, int]],
) -> None:
    codes, (bit, bits, first, end) = case
    wanted = codes.expected(bit, bits, first, end)
    count, payload = codes.build(bit, bits, first, end)
    assert payload.tobytes() == wanted.tobytes()
    # Starts, rows, and low bytes where a table has more bits than its directory.
    assert len(payload) == 2 * (2 ** min(bits, 14) + 1) + (3 if bits > 14 else 2) * count
    assert _multi_index.sound(payload, count, bits, end - first) is True


@pytest.mark.parametrize("bits", [8, 12, 13, 14, 15, 20])
@pytest.mark.parametrize("different", [1, SPAN])
def test_a_full_block_has_lists(bits: int, different: int) -> None:
    codes = Codes(3, 3)
    codes.add(5 * SPAN, random_codes(np.random.default_rng(0), SPAN, 3, different))
    count, payload = codes.build(4, bits, 5 * SPAN, 6 * SPAN)
    assert count == SPAN
    assert payload.tobytes() == codes.expected(4, bits, 5 * SPAN, 6 * SPAN).tobytes()
    assert _multi_index.sound(payload, count, bits, SPAN) is True


def test_sizes_that_do_not_fit_are_refused_by_build() -> None:
    codes = Codes(2, 2)
    codes.add(0, np.zeros((40, 2), np.uint8))
    address = _records.address(codes.buffers[0]) + codes.offsets[0]
    good: dict[str, Any] = {
        "starts": np.zeros(1, np.uint32),
        "counts": np.array([40], np.uint32),
        "addresses": np.array([address], np.uint64),
        "width": 2,
        "head": 2,
        "first_bit": 4,
        "bits": 12,
        "first": 0,
        "end": 40,
    }
    assert _multi_index.build(**good)[0] == 40
    wrong: list[dict[str, Any]] = [
        {"starts": np.zeros(2, np.uint32)},
        {"counts": np.zeros(0, np.uint32)},
        {"addresses": np.zeros(2, np.uint64)},
        {"width": 1},
        {"width": 1, "head": 1},
        {"head": 0},
        {"head": 3},
        {"first_bit": -1},
        {"first_bit": 5},
        {"bits": 0},
        {"bits": -1},
        {"width": 9, "bits": 21},
        {"first": 41},
        {"end": SPAN + 1},
        {"first": 1, "end": SPAN + 2},
    ]
    for change in wrong:
        with pytest.raises(ValueError, match=r"build: |a column's arrays"):
            _multi_index.build(**{**good, **change})
    assert _multi_index.build(**{**good, "end": SPAN})[0] == 40
    for name in ("starts", "counts", "addresses"):
        with pytest.raises(TypeError):
            _multi_index.build(**{**good, name: None})


def is_sound(payload: Bytes, count: int, bits: int, span: int) -> bool:
    """Plainly: each bin's rows by the lower bits of their bucket, then rising, all within the block, none twice."""
    upper = min(bits, 14)
    size = 2 * ((1 << upper) + 1)
    if count > span or len(payload) != size + (3 if bits > 14 else 2) * count:
        return False
    starts = payload[:size].copy().view("<u2").tolist()
    rows = payload[size : size + 2 * count].copy().view("<u2").tolist()
    low = payload[size + 2 * count :].tolist() if bits > 14 else [0] * count
    if starts[0] != 0 or starts[-1] != count or starts != sorted(starts):
        return False
    if len(set(rows)) < count or any(row >= span for row in rows) or any(byte >= 1 << (bits - upper) for byte in low):
        return False
    for a, b in pairwise(starts):
        own = list(zip(low[a:b], rows[a:b], strict=True))
        if own != sorted(set(own)):
            return False
    return True


@many
@given(st.integers(1, MOST_BITS), st.integers(0, 60), st.integers(0, 20), st.sampled_from((1, 3, 100)), st.data())
def test_a_changed_payload_is_sound_only_if_it_is_a_plain_one(
    bits: int, n: int, more: int, different: int, data: st.DataObject
) -> None:
    span = n + more
    payload = payload_of(np.random.default_rng(data.draw(st.integers(0, 2**32))), n, bits, span, different)
    assert _multi_index.sound(payload, n, bits, span) is True
    assert is_sound(payload, n, bits, span)
    directory = 2 * (2 ** min(bits, 14) + 1)
    changed = payload.copy()
    for _ in range(data.draw(st.integers(1, 2))):
        # As often among rows and lower bits as among starts.
        inside = st.integers(0, directory - 1)
        at = data.draw(inside | st.integers(directory, len(payload) - 1) if n else inside)
        changed[at] = data.draw(st.integers(0, 255) | st.sampled_from((changed[max(at - 1, 0)], changed[at] ^ 1)))
    assert _multi_index.sound(changed, n, bits, span) is is_sound(changed, n, bits, span)


def test_each_kind_of_damage_is_not_sound() -> None:
    span = 40

    def lists(bits: int) -> tuple[NDArray[np.uint16], Bytes]:
        """Ten rows: seven in the last bin (their lower bits 0 0 0 1 1 2 3), three in the first; as numbers, and all."""
        lower = [0, 0, 0, 1, 1, 2, 3] if bits > 14 else [0] * 7
        last = (1 << bits) - (1 << (bits - min(bits, 14)))
        values = np.array([0, 0, 0, *(last + low for low in lower)])
        payload = reference.list_payload(values, np.arange(20, 30), bits)
        return payload[: 2 * ((1 << min(bits, 14)) + 1) + 20].view(np.uint16), payload

    for bits in (1, 8, 12, 14, 16, 20):
        end = (1 << min(bits, 14)) + 1
        numbers, payload = lists(bits)
        assert _multi_index.sound(payload, 10, bits, span)
        assert _multi_index.sound(payload.tobytes(), 10, bits, span)
        assert _multi_index.sound(payload, 10, bits, 30)
        for count, other in ((9, bits), (11, bits), (10, bits + 1), (10, min(bits, 15) - 1)):
            # (From 15 bits on lists of more bits look alike.)
            assert _multi_index.sound(payload, count, other, span) is (15 < other <= MOST_BITS and count == 10)
        # A row beyond the block; more rows than the block has; a block that is too long.
        assert not _multi_index.sound(payload, 10, bits, 29)
        assert not _multi_index.sound(payload, 10, bits, 9)
        assert not _multi_index.sound(payload, 10, bits, SPAN + 1)
        assert not _multi_index.sound(payload[:-1].copy(), 10, bits, span)
        assert not _multi_index.sound(np.append(payload, payload[-1:]), 10, bits, span)
        assert not _multi_index.sound(payload[:0], 0, bits, span)
        changes = [(0, 1), (end - 1, 9), (end - 1, 11), (end - 2, 11), (end, 40), (end + 3, 65535)]
        # Within a bin: a row twice, rows that fall.
        changes += [(end + 1, 20), (end + 1, 19), (end + 4, 23), (end + 9, 26 if bits <= 14 else 65535)]
        if bits > 1:  # starts that fall
            changes += [(1, 4), (end // 2, 2)]
        for at, number in changes:
            numbers, payload = lists(bits)
            assert numbers[at] != number
            numbers[at] = number
            assert not _multi_index.sound(payload, 10, bits, span), (bits, at, number)
    for bits in (16, 20):
        # Lower bits that fall, or that are more than a bucket's number has; rows of one bucket that do not rise.
        for at, number in ((9, 1), (3, 1), (0, 1), *(((9, 4), (9, 255)) if bits == 16 else ())):
            _, payload = lists(bits)
            payload[len(payload) - 10 + at] = number
            assert not _multi_index.sound(payload, 10, bits, span), (bits, at, number)
        for row, fine in ((26, False), (20, False), (30, True)):
            numbers, payload = lists(bits)
            numbers[(1 << 14) + 1 + 7] = row
            assert _multi_index.sound(payload, 10, bits, span) is fine
        # In another bucket rows begin anew.
        numbers, payload = lists(bits)
        numbers[(1 << 14) + 1 + 6] = 12
        assert _multi_index.sound(payload, 10, bits, span)
    for bits in (0, -1, MOST_BITS + 1, 64):
        assert not _multi_index.sound(np.zeros(4, np.uint8), 0, bits, span)


@pytest.mark.parametrize("bits", [1, 8, 14, 15])
def test_lists_that_name_a_row_twice_are_not_sound(bits: int) -> None:
    payload = reference.list_payload(np.array([0, (1 << bits) - 1]), np.array([3, 3]), bits)
    assert not _multi_index.sound(payload, 2, bits, 40)
