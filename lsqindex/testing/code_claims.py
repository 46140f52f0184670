"""Codes, and what is made of them, as tests: part of :class:`lsqindex.testing.EncoderConformance`."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._inputs.vectors import BLOCK_ROWS, Vectors
from ..encoders import Encoder
from ..errors import CodeError, ParameterError
from .claims import Claims, raises, snapshot


class CodeClaims(Claims):
    """Tests of ``encode``, ``decode`` and ``embed``."""

    def test_codes_are_uint8_rows_of_code_size(self) -> None:
        """Shape and dtype of codes."""
        encoder = self.fitted()
        codes = encoder.encode(self.vectors)
        assert codes.dtype == np.uint8
        assert codes.shape == (len(self.vectors), encoder.code_size)
        assert encoder.code_size == encoder.layout.code_size == -(-sum(encoder.layout.bits) // 8)
        assert len(encoder.layout.bits) == len(encoder.layout.levels)
        assert all(2 <= n <= 1 << bits for n, bits in zip(encoder.layout.levels, encoder.layout.bits, strict=True))

    def test_encoding_again_gives_the_same_codes(self) -> None:
        """Deterministic, and the input is not written to."""
        vectors = np.array(self.vectors)
        codes = self.fitted().encode(vectors)
        differ = (codes != self.fitted().encode(vectors)).any(axis=1)
        assert not differ.any(), (
            f"encode is not deterministic: {int(differ.sum())} rows get other codes when asked again"
        )
        assert np.array_equal(vectors, self.vectors), "encode writes to its input"

    def test_different_vectors_get_different_codes(self) -> None:
        """An encoder that says the same of everything says nothing."""
        assert len(np.unique(self.fitted().encode(self.vectors), axis=0)) > 1

    def test_a_row_has_one_code_alone_and_in_any_batch(self) -> None:
        """Exactly equal: batching is not part of a code."""
        rows = self.vectors[:231]
        codes = self.fitted().encode(self.vectors)[:231]
        for size in (1, 2, 7, 33):
            parts = [self.fitted().encode(rows[i : i + size]) for i in range(0, len(rows), size)]
            differ = (np.concatenate(parts) != codes).any(axis=1)
            assert not differ.any(), f"in batches of {size} rows {np.flatnonzero(differ)[:5]} get other codes"

    def test_a_row_on_the_edge_of_its_code_has_one_code_alone_and_in_any_batch(self) -> None:
        """Where the last bit of a sum decides, that bit must not depend on the batch."""
        rows = edge_rows(self.fitted(), self.vectors)
        codes = self.fitted().encode(rows)
        for size in (1, 2, 7, 33):
            parts = [self.fitted().encode(rows[i : i + size]) for i in range(0, len(rows), size)]
            differ = (np.concatenate(parts) != codes).any(axis=1)
            assert not differ.any(), f"in batches of {size}, {int(differ.sum())} of {len(rows)} rows get other codes"

    def test_a_row_has_one_code_at_any_place_in_a_batch(self) -> None:
        """Reversed input gives reversed codes."""
        rows = edge_rows(self.fitted(), self.vectors)
        assert np.array_equal(self.fitted().encode(rows[::-1])[::-1], self.fitted().encode(rows))

    def test_codes_are_equal_for_any_number_of_threads(self) -> None:
        """Threads make it faster, not different; an odd last block included."""
        rows = np.resize(self.vectors, (2 * BLOCK_ROWS + 37, self.vectors.shape[1]))
        codes = self.fitted().encode(rows)
        for threads in (2, 3):
            assert np.array_equal(self.fitted().encode(rows, threads=threads), codes)
        wrong: list[Any] = [0, -1, 1.5, True, "2"]
        for bad in wrong:
            raises(ParameterError, partial(self.fitted().encode, rows[:1], threads=bad), "threads")

    def test_no_rows_are_encoded_to_no_codes(self) -> None:
        """Zero rows are no error anywhere."""
        encoder = self.fitted()
        none = np.empty((0, self.vectors.shape[1]), np.float32)
        codes = encoder.encode(none)
        assert codes.shape == (0, encoder.code_size)
        assert codes.dtype == np.uint8
        assert encoder.decode(codes).shape == none.shape
        assert encoder.embed(none).shape == (0, encoder.embed_dim)
        for distance in encoder.distances():
            tables = encoder.tables(none, distance=distance)
            assert len(tables.values) == 0
            assert tables.bias.shape == (0,)
        if not encoder.layout.floats:
            assert encoder.probe_tables(none).values.shape == (0, encoder.layout.starts[-1])

    def test_equal_numbers_of_any_dtype_get_equal_codes(self) -> None:
        """Float16, float64, integers, big-endian numbers and lists."""
        rows = self._small_integers()
        codes = self.fitted().encode(rows)
        for dtype in (np.float16, np.float64, np.int8, np.uint8, np.int32, np.int64, np.longdouble, ">f4", ">i2"):
            assert np.array_equal(self.fitted().encode(rows.astype(dtype)), codes), dtype
        assert np.array_equal(self.fitted().encode(rows.tolist()), codes)

    def test_fit_sees_equal_numbers_of_any_dtype_alike(self) -> None:
        """Training on float64 or integers equals training on the same float32."""
        whole = np.rint(self.vectors * 20).astype(np.float32)
        data = snapshot(self.make_encoder().fit(whole))
        for dtype in (np.float64, np.int16):
            assert snapshot(self.make_encoder().fit(np.asfortranarray(whole.astype(dtype)))) == data, dtype

    def test_equal_numbers_in_any_memory_get_equal_codes(self) -> None:
        """Fortran order, strides, read-only and memory-mapped arrays."""
        rows = np.array(self.vectors[:100])
        codes = self.fitted().encode(rows)
        n, dim = rows.shape
        wide = np.zeros((2 * n, 3 * dim), np.float32)
        wide[::2, ::3] = rows
        read_only = rows.copy()
        read_only.flags.writeable = False
        odd = np.frombuffer(b"\0" + rows.tobytes(), np.uint8)[1:].view(np.float32).reshape(rows.shape)
        cases = {
            "Fortran": np.asfortranarray(rows),
            "strided": wide[::2, ::3],
            "backwards": np.ascontiguousarray(rows[::-1])[::-1],
            "read-only": read_only,
            "unaligned": odd,
        }
        for what, same in cases.items():
            assert np.array_equal(self.fitted().encode(same), codes), what
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder, "rows.npy"), rows)
            mapped = np.load(Path(folder, "rows.npy"), mmap_mode="r")
            assert np.array_equal(self.fitted().encode(mapped), codes)
            del mapped

    def test_decode_gives_finite_float32_vectors(self) -> None:
        """Shape and dtype of reconstructions."""
        encoder = self.fitted()
        decoded = encoder.decode(encoder.encode(self.vectors))
        assert decoded.shape == self.vectors.shape
        assert decoded.dtype == np.float32
        assert np.isfinite(decoded).all()

    def test_decode_is_nearer_than_the_mean(self) -> None:
        """A code tells something of its vector."""
        encoder = self.fitted()
        error = np.square(self.vectors - encoder.decode(encoder.encode(self.vectors)), dtype=np.float64).sum()
        spread = np.square(self.vectors - self.vectors.mean(axis=0), dtype=np.float64).sum()
        assert error < spread, f"relative error {error / spread:.3f}"

    def test_decode_refuses_what_is_no_code(self) -> None:
        """CodeError for a wrong width, dtype or number of axes."""
        encoder = self.fitted()
        codes = encoder.encode(self.vectors[:3])
        wrong: list[Any] = [codes[:, :-1], np.concatenate([codes, codes], axis=1), codes[0], codes.astype(np.int16)]
        for bad in wrong:
            raises(CodeError, partial(encoder.decode, bad), str(encoder.code_size))

    def test_decode_takes_codes_of_any_memory(self) -> None:
        """Strided, Fortran-ordered and read-only codes."""
        encoder = self.fitted()
        codes = encoder.encode(self.vectors[:40])
        decoded = encoder.decode(codes)
        codes.flags.writeable = False
        assert np.array_equal(encoder.decode(codes), decoded)
        assert np.array_equal(encoder.decode(np.asfortranarray(codes)), decoded)
        assert np.array_equal(encoder.decode(np.repeat(codes, 2, axis=0)[::2]), decoded)

    def test_embed_gives_embed_dim_numbers(self) -> None:
        """Feature vectors: finite float32, equal for equal codes."""
        encoder = self.fitted()
        features = encoder.embed(self.vectors[:50])
        assert features.shape == (50, encoder.embed_dim)
        assert features.dtype == np.float32
        assert np.isfinite(features).all()
        assert np.array_equal(features, encoder.embed(self.vectors)[:50])


def edge_rows(encoder: Encoder, vectors: Vectors, pairs: int = 150) -> Vectors:
    """Vectors as near as float32 goes to where one code becomes another: both sides of each edge."""
    left, right = (np.array(part, np.float64) for part in (vectors[:pairs], vectors[pairs : 2 * pairs]))
    codes = encoder.encode(left)
    for _ in range(40):
        middle = (left + right) / 2
        stays = (encoder.encode(middle) == codes).all(axis=1)[:, None]
        left, right = np.where(stays, middle, left), np.where(stays, right, middle)
    return np.concatenate([left, right]).astype(np.float32)
