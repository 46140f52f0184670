"""Every built-in encoder keeps the contract of ``lsqindex.testing``."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from lsqindex import Encoder, make_encoder
from lsqindex.testing import EncoderConformance
from lsqindex.vectors import Vectors

DIGITS: Vectors = load_digits().data.astype(np.float32)


class TestLsq(EncoderConformance):
    """The defaults: 256 bits, more than there are dimensions."""

    dim = 32
    # Many weak bits count as much as the strong ones in a Hamming distance.
    min_symmetric_correlation = 0.15

    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", iterations=6)


class TestLsqOnDigits(EncoderConformance):
    """Columns that never change, whole numbers, many ties."""

    @property
    def vectors(self) -> Vectors:
        return DIGITS[:900]

    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=64)


class TestLsqThreeLevels(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=48, levels=3)


class TestLsqFourLevels(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=64, levels=4)


class TestLsqSixteenLevels(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=64, levels=16)


class TestLsqPublishedBinary(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=24, refine=0)


class TestLsqPublishedSixteenLevels(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", m=20, refine=0, levels=16)


class TestLsqWithoutScalar(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=48, scalar=None)


class TestLsqWithNorm(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=48, scalar="norm", scalar_bits=6)


class TestItq(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("itq", bits=24)


class TestItqOnDigits(EncoderConformance):
    """As many bits as dimensions, fewer directions than bits."""

    @property
    def vectors(self) -> Vectors:
        return DIGITS[:900]

    def make_encoder(self) -> Encoder:
        return make_encoder("itq", bits=64)


class TestOkmeans(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("okmeans", bits=20)


class TestCkmeans(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("ckmeans", bits=24, field_bits=4, rotations=10)


class TestPqNibbles(EncoderConformance):
    """25 dimensions in 8 parts."""

    dim = 25

    def make_encoder(self) -> Encoder:
        return make_encoder("pq", bits=32, field_bits=4)


class TestPqBytes(EncoderConformance):
    """25 dimensions in 3 parts."""

    dim = 25

    def make_encoder(self) -> Encoder:
        return make_encoder("pq", bits=24, field_bits=8)


class TestKmeans(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("kmeans", bits=6)


class TestLsh(EncoderConformance):
    """More bits than dimensions, and no multiple of them."""

    def make_encoder(self) -> Encoder:
        return make_encoder("lsh", bits=100)


class TestFlat(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("flat")
