"""The code of a vector of zeros under cosine.

A vector of zeros has no direction: its cosine to every query is 0, and its distance 1. Its reconstruction must not be
zeros, however. Codes estimate the distance of unit vectors, (1 − 2 q·x̂ + ‖x̂‖²) / 2, and that is 1/2 at x̂ = 0: nearer
than most rows, so that zeros would win searches and crowd out the candidates for re-ranking.

So of all codes that the encoder has, zeros get one whose distance is as near to 1 as possible, for every query alike.
It is found through the encoder's own tables, so it serves every encoder, with row scalars or without:

    likely queries   reconstructions of random codes, which are distributed much as the training vectors are
    the code         field by field, the value that brings their distances closest to the goal, until nothing changes
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._inputs.vectors import Vectors
from . import Encoder
from .linalg import lengths, settled

#: So many queries at most, and so many numbers in their tables.
_QUERIES, _NUMBERS = 256, 1 << 22

#: Rounds over all fields at most. Two to seven were enough for every encoder that we tried.
_ROUNDS = 16


def zero_code(encoder: Encoder) -> NDArray[np.uint8]:
    """The code, shape (code_size,), that a fitted encoder's index stores for a vector of zeros under cosine.

    >>> from lsqindex.encoders import make_encoder
    >>> vectors = np.random.default_rng(0).standard_normal((500, 16))
    >>> encoder = make_encoder("pq", bits=32, field_bits=4).fit(vectors / lengths(vectors))
    >>> tables = encoder.tables(vectors[:100], "cosine")
    >>> fields = encoder.layout.unpack(zero_code(encoder)[None])[0]
    >>> distances = tables.bias + tables.values[:, encoder.layout.starts[:-1] + fields].sum(axis=1)
    >>> bool(abs(distances.mean() - 1) < 0.1)
    True
    """
    layout = encoder.layout
    queries = _likely(encoder)
    tables = encoder._checked_tables(queries, "cosine", encoder.distances("cosine")[0])
    # Settled, so that the last bits of a matrix product do not decide about a field.
    values, bias = settled(tables.values).astype(np.float64), tables.bias.astype(np.float64)
    firsts = layout.starts[:-1]
    own = firsts + layout.unpack(encoder.encode(queries))
    distances = bias[:, None] + sum(values[:, places] for places in own.T)
    # Where distances are no cosines (a symmetric one may count bits) an unrelated vector tells what is far.
    goal = max(1.0, float(distances.mean()))
    places, missed = own[0], distances[:, 0] - goal
    for _ in range(_ROUNDS):
        before = places.copy()
        for j, (first, end) in enumerate(zip(layout.starts[:-1], layout.starts[1:], strict=True)):
            others = (missed - values[:, places[j]])[:, None] + values[:, first:end]
            best = int(np.argmin(np.square(others).sum(axis=0)))
            places[j], missed = first + best, others[:, best]
        if (places == before).all():
            break
    code: NDArray[np.uint8] = layout.pack((places - firsts).astype(np.uint16)[None])[0]
    return code


def _likely(encoder: Encoder) -> Vectors:
    """Unit vectors as the encoder expects them."""
    layout, rng = encoder.layout, np.random.default_rng(0)
    n = int(np.clip(_NUMBERS // layout.starts[-1], 16, _QUERIES))
    fields = rng.integers(0, layout.level_counts, (n, len(layout.levels))).astype(np.uint16)
    vectors = encoder.decode(layout.pack(fields))
    return vectors / lengths(vectors)
