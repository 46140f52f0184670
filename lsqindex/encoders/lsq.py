"""Linear Subspace Quantization: x ≈ mean + Vᵀh, every number of h one of ``levels`` uniform values.

The paper's LSQ (section 2.2.1) codes by h = q_n(Wᵀx). ``refine=0`` is that, as published. The
default goes on from there:

    vector ─▶ principal axes ─▶ decision feedback ─▶ flip search ─▶ bits
                                                                     │
              row scalar ◀─ what the code leaves out, as a query will see it

- V is free (rows need not be orthogonal, there may be more of them than dimensions) and the code
  is searched for, not rounded: the error comes within 1.2 × the Gaussian rate–distortion bound.
- Rows come by falling length, so the first bits of a code alone rank well (``layout.head``, ``lsq_head``).
- One number per row, inside the bit budget, corrects the distance estimate: ``lsq_scalar``.

Asymmetric distances are linear in the bits: ‖q−x‖² ≈ ‖q‖² − 2 (Vq)·h + scalar.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .._compiled.encoding import Bits
from .._inputs.vectors import BLOCK_ROWS, Vectors
from .._threads.cached import cached_property
from ..errors import ParameterError, StateError
from ..metrics import METRICS, Base
from .base import Config, Distance, Fields, Metric, Progress, State, StateReader, check_int
from .layout import MARGIN_SHARES, Layout, Tables, field_bits
from .linalg import Float32, Packed, mean_of, principal_axes, product, ridge, squares
from .linear import LinearEncoder
from .linear_tables import LinearTables
from .lsq_codes import BitCoder, LevelCoder, PublishedCoder, coded_values, make_coder
from .lsq_head import AMONG, QUERIES, learn_head
from .lsq_length import LengthScalar, LengthTables, split_lengths
from .lsq_scalar import RowScalar
from .lsq_training import Budget, train_by_search, train_published
from .probe_tables import ProbeTables
from .registry import register_encoder

Scalar = Literal["learned", "norm", "length"]

MAX_BITS = 4096
#: How often a row that is too long is shortened, at most.
SHRINKS = 4


@register_encoder("lsq")
class LSQ(LinearEncoder):
    """Linear Subspace Quantization, n-ary or binary.

    Parameters
    ----------
    bits, m
        The budget of a row in bits, everything included (256 if neither is given), or the number
        of code dimensions.
    levels
        Values of each dimension. 2, the default, is LSQ(B), and the best for distance estimation
        here; 4, 16, 256… are LSQ(N).
    refine
        Effort per vector: bit flips tried (levels=2), or 32 of it for one sweep of coordinate
        descent (levels>2). 0 trains and codes as the paper writes it; then ``m`` ≤ dim.
    scalar
        The row scalar. "learned" (the default with ``refine``) and "norm" (the length of the
        reconstruction, the default without) serve L2 and cosine. "length" serves inner products: the
        code holds the direction of a vector, the scalar its length. An index with ``metric="ip"``
        uses it by default (``for_metric``). None leaves all bits to the code. With "length" or None
        there is no asymmetric L2 distance.
    scalar_bits
        Its part of the budget; by default what suits the data best (``m`` given: 8).
    lam, iterations, seed
        λ of the paper; rounds of training at most; the seed of everything random.

    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).standard_normal((1000, 32)).astype(np.float32)
    >>> lsq = LSQ(bits=64).fit(vectors)
    >>> lsq.code_size, lsq.layout.m
    (8, 58)
    >>> error = ((vectors - lsq.decode(lsq.encode(vectors))) ** 2).mean()
    >>> bool(error < 0.12)
    True
    """

    #: 2: the state has a head, and the scalar a limit.
    version = 2

    #: Relative reconstruction error on the training sample after each round.
    history_: list[float]
    #: Bytes of the head and its margins; see ``Layout``.
    _head: tuple[int, tuple[float, ...]] = (0, ())

    def __init__(
        self,
        bits: int | None = None,
        *,
        m: int | None = None,
        levels: int = 2,
        refine: int = 128,
        scalar: Scalar | Literal["auto"] | None = "auto",
        scalar_bits: int | None = None,
        lam: float = 1.0,
        iterations: int = 12,
        seed: int = 0,
    ) -> None:
        if bits is not None and m is not None:
            raise ParameterError(
                "lsq: bits and m exclude each other; pass bits (all bits of a row) or m (dimensions of the code)"
            )
        self.levels = check_int("levels", levels, 2, 1 << 16)
        self.refine = check_int("refine", refine, 0, 1 << 20)
        if scalar not in ("auto", "learned", "norm", "length", None):
            raise ParameterError(f"scalar={scalar!r}: 'learned', 'norm', 'length', None or 'auto' is needed")
        if scalar == "length" and not self.refine:
            raise ParameterError(
                "scalar='length' is not available with refine=0, which codes as published; use refine>0"
            )
        if isinstance(lam, bool) or not isinstance(lam, int | float | np.number) or not 0 <= lam < np.inf:
            raise ParameterError(f"lam={lam!r}: a number of at least 0 is needed")
        self.scalar: Scalar | None = ("learned" if self.refine else "norm") if scalar == "auto" else scalar
        self.lam = float(lam)
        self.iterations = check_int("iterations", iterations, 1, 10_000)
        self.seed = check_int("seed", seed, 0, 2**63 - 1)
        width = field_bits(self.levels)
        most = 0
        if self.scalar is not None:
            most = 8 if scalar_bits is None else check_int("scalar_bits", scalar_bits, 1, 16)
        if m is not None:
            m = check_int("m", m, 1, MAX_BITS // width)
            self.bits = m * width + most
        else:
            bits = check_int("bits", 256 if bits is None else bits, 1, MAX_BITS)
            self.bits = bits
            if self.scalar and scalar_bits is None:
                most = min(most, max(2, bits // 8))
        self._given = {"bits": bits, "m": m, "scalar": scalar, "scalar_bits": None if scalar_bits is None else most}
        self._divide(most)

    def _divide(self, scalar_bits: int) -> None:
        """Set how many bits of the budget are the scalar's, and with it ``m``."""
        width = field_bits(self.levels)
        self.scalar_bits = scalar_bits
        self.m = (self.bits - scalar_bits) // width
        if self.m < 1:
            raise ParameterError(
                f"bits={self.bits}: a row scalar of {scalar_bits} bits and one dimension of {width} do not fit; "
                f"use bits={scalar_bits + width} or more, fewer levels, or scalar=None"
            )

    @property
    def config(self) -> Config:
        """The constructor's arguments."""
        return {
            **self._given,
            "levels": self.levels,
            "refine": self.refine,
            "lam": self.lam,
            "iterations": self.iterations,
            "seed": self.seed,
        }

    def for_metric(self, metric: Metric) -> LSQ:
        """For inner products the default row scalar is "length"."""
        if METRICS[metric].base == "ip" and self.refine and self._given["scalar"] == "auto":
            return type(self)(**{**self.config, "scalar": "length"})
        return self

    def distances(self, metric: Metric = "l2") -> tuple[Distance, ...]:
        """Only the scalars "learned" and "norm" tell what L2 needs; "length" tells what cosine needs."""
        asked = METRICS[metric]
        told = ("learned", "norm", "length") if asked.unit else ("learned", "norm")
        return ("asymmetric", "symmetric") if asked.base == "ip" or self.scalar in told else ("symmetric",)

    def _make_layout(self, dim: int) -> Layout:
        if not self.refine and self.m > dim:
            raise ParameterError(
                f"refine=0: the code has {self.m} dimensions, but at most {dim}, those of the vectors, are possible; "
                f"use refine>0, bits={dim * field_bits(self.levels) + self.scalar_bits} or less, or more levels"
            )
        own = Layout.uniform(self.levels, self.m)
        return Layout(
            ((self.scalar_bits,) if self.scalar else ()) + own.bits,
            ((1 << self.scalar_bits,) if self.scalar else ()) + own.levels,
            scalars=1 if self.scalar else 0,
            linear=True,
            head=self._head[0],
            margins=self._head[1],
        )

    @property
    def _ordered(self) -> bool:
        """Whether bits come by falling weight."""
        return self.refine > 0 and self.levels == 2

    # -- training -----------------------------------------------------------------------------

    def _fit(self, sample: Vectors, progress: Progress) -> None:
        rng = np.random.default_rng(self.seed)
        lengths = np.empty(0, np.float32)
        if self.scalar == "length":  # the code is of directions
            lengths, sample = split_lengths(sample)
        self._mean = mean_of(sample)
        centred = sample - self._mean
        variances, axes = principal_axes(centred)
        # Directions past the m-th hold too little to be worth a bit, and only feed over-fitting.
        width = field_bits(self.levels)
        keep = min(len(axes), self.bits // width) if self.refine else len(axes)
        self._axes = np.ascontiguousarray(axes[:keep])
        projected = product(centred, self._axes)
        if self.scalar:
            self._scalar = self._make_scalar()
        by_length = self._length_scalar
        if by_length is not None:
            by_length.learn_frontier(sample, lengths, self._mean, rng)
        if self.scalar in ("learned", "length"):
            around = self._scalar.learn_neighbours(centred, projected, axes, rng)
            if self._given["scalar_bits"] is None and self._given["m"] is None:
                self._scalar.bits = self._scalar.choose_bits(centred, projected, variances, around, self.bits, width)
                self._divide(self._scalar.bits)
        left_out = float(np.square(centred, dtype=np.float64).sum() - np.square(projected, dtype=np.float64).sum())
        budget = Budget(self.m, self.levels, self.lam, self.refine, self.iterations)
        # Long rows are found most often, so V is learned from them the most.
        taught = projected if by_length is None else projected[_by_weight(lengths)]
        given = (taught, variances[:keep], budget, max(left_out, 0.0), rng, progress)
        if self.refine:
            self._rows, self._noise, self.history_ = train_by_search(*given)
        else:
            self._rows, self._start, self.history_ = train_published(*given)
        if self.scalar or self._ordered:
            blocks = range(0, len(projected), BLOCK_ROWS)
            fields = np.concatenate([self._coder(projected[i : i + BLOCK_ROWS]) for i in blocks])
            values = coded_values(fields, self.levels)
            if by_length is not None:
                by_length.fit_lengths(sample, centred, projected, lengths, values, self._rows)
            elif self.scalar:
                self._scalar.fit(centred, projected, values, self._rows)
            if self._ordered:
                self._head = self._learn_head(sample, lengths, centred, projected, fields)

    def _make_scalar(self) -> RowScalar:
        if self.scalar == "length":
            return LengthScalar(self.scalar_bits)
        return RowScalar("learned" if self.scalar == "learned" else "norm", self.scalar_bits)

    @property
    def _length_scalar(self) -> LengthScalar | None:
        return self._scalar if self.scalar == "length" and isinstance(self._scalar, LengthScalar) else None

    def _learn_head(
        self, sample: Vectors, lengths: Float32, centred: Vectors, projected: Vectors, fields: Fields
    ) -> tuple[int, tuple[float, ...]]:
        rng = np.random.default_rng(self.seed)
        among = np.sort(rng.choice(len(fields), size=min(len(fields), AMONG), replace=False))
        asked = np.sort(rng.choice(len(among), size=min(len(among), QUERIES), replace=False))
        bits = fields[among].astype(np.float32)
        if not self.scalar:
            # What a set bit adds to the squared distance: twice what its coded value does, which goes from −1 to 1.
            return learn_head(bits, -4 * product(projected[among[asked]], self._rows), asked, 0)
        powers = np.arange(self.scalar_bits)
        fields = fields[among]
        scalar = self._scalars(lengths[among] if len(lengths) else lengths, centred[among], projected[among], fields)
        bits = np.concatenate([scalar[:, None] >> powers & 1, fields], axis=1, dtype=np.float32)
        if self._length_scalar is not None:
            values = self._linear.of(sample[among[asked]], "ip").values
            own: Float32 = values[:, 1 << powers] - values[:, :1]
            dimensions = values[:, 1 << self.scalar_bits :]
            weights: Float32 = dimensions[:, 1::2] - dimensions[:, ::2]
        else:
            told, steps = self._scalar.tables()
            own = np.tile(steps[1 << powers] - steps[0], (len(asked), 1))
            weights = -4 * product(projected[among[asked]], self._rows) + 2 * told
        return learn_head(bits, np.concatenate([own, weights], axis=1), asked, self.scalar_bits)

    # -- state --------------------------------------------------------------------------------

    def _state(self) -> State:
        state: State = {"mean": self._mean, "axes": self._axes, "rows": self._rows}
        state["head"] = np.array([self._head[0], *(self._head[1] or (0.0,) * len(MARGIN_SHARES))], np.float32)
        if self.refine:
            state["noise"] = np.array([self._noise], np.float32)
        else:
            state["start"] = self._start
        if self.scalar:
            state["scalar_bits"] = np.array([self.scalar_bits], np.uint8)
            state.update(self._scalar.state())
        return state

    def _restore(self, state: StateReader) -> None:
        dim = self.dim or 0
        shape = state.shape("axes")
        d = shape[0] if len(shape) == 2 and 1 <= shape[0] <= dim else 1
        if self.scalar:
            self._divide(check_int("scalar_bits", int(state.array("scalar_bits", (1,), np.uint8)[0]), 1, 16))
        self._mean = state.array("mean", (dim,))
        self._axes = state.array("axes", (d, dim))
        self._rows = state.array("rows", (self.m, d))
        if self.refine:
            self._noise = max(0.0, float(state.array("noise", (1,))[0]))
        else:
            self._start = state.array("start", (self.m, d))
        self.history_ = []
        if self.scalar:
            self._scalar = self._make_scalar()
            self._scalar.restore(state, d, self.m)
            if (by_length := self._length_scalar) is not None:
                by_length.restore_means(state, self._mean)
        self._head = self._restored_head(state.array("head", (1 + len(MARGIN_SHARES),)))

    def _restored_head(self, stored: NDArray[np.float32]) -> tuple[int, tuple[float, ...]]:
        head, margins = float(stored[0]), tuple(float(z) for z in stored[1:])
        if not stored.any():
            return 0, ()
        size = (self.scalar_bits + self.m + 7) // 8
        if not (self._ordered and 2 <= head < size and head % 2 == 0 and 8 * head >= self.scalar_bits):
            raise StateError(f"{self.name}: stored 'head' of {head:g} bytes is impossible for a code of {size}")
        return int(head), margins

    @classmethod
    def _upgraded(cls, state: State, version: int) -> State:
        if version >= 2:
            return state
        return {"head": np.zeros(1 + len(MARGIN_SHARES), np.float32), **RowScalar.upgraded(state)}

    # -- vectors to codes and back ------------------------------------------------------------

    @property
    def _full_rows(self) -> Vectors:
        """V in the space of the vectors, shape (m, dim)."""
        return self._linear.rows

    @cached_property
    def _coder(self) -> PublishedCoder | BitCoder | LevelCoder:
        """Made at the first use: opening an index to search it does not need it."""
        if not self.refine:
            return PublishedCoder(self._start, self.levels)
        return make_coder(self._rows, self.levels, self._noise, self.refine)

    @cached_property
    def _to_axes(self) -> Packed:
        return Packed(self._axes)

    @cached_property
    def _columns(self) -> Packed:
        """The columns of V: from coded values to the principal axes."""
        return Packed(self._rows.T)

    @cached_property
    def _bits(self) -> Bits | None:
        """All steps of a binary code in one call; None for other codes, and for lengths, whose scalar is not in C."""
        coder = self._coder
        if not isinstance(coder, BitCoder) or self.scalar == "length":
            return None
        scalar = self._scalar.parameters(self._rows) if self.scalar else None
        return Bits((self._mean, self._axes, *coder.search), scalar)

    def _encode(self, block: Vectors) -> Fields:
        if self._bits is None:
            return self._encode_in_steps(block)
        fields, longer = self._bits.of(np.ascontiguousarray(block, np.float32))
        if longer.any():
            at = np.flatnonzero(longer)
            fields[at] = self._encode_in_steps(block[at])
        return fields

    def _encode_in_steps(self, block: Vectors) -> Fields:
        lengths = np.empty(0, np.float32)
        if self.scalar == "length":
            lengths, block = split_lengths(block)
        centred = block - self._mean
        projected = product(centred, self._to_axes)
        fields = self._coder(projected)
        if not self.scalar:
            return fields
        return np.concatenate([self._scalars(lengths, centred, projected, fields)[:, None], fields], axis=1)

    def _scalars(self, lengths: Float32, centred: Vectors, projected: Vectors, fields: Fields) -> NDArray[np.uint16]:
        """The row scalars. Rows that are too long get other ``fields``: those of a shorter row of their direction.

        Not right, but as far out as can be said; a scalar or a code cut short would make them near to all queries.
        """
        values = coded_values(fields, self.levels)
        if self.scalar == "length" and (by_length := self._length_scalar) is not None:
            return by_length.encode_lengths(centred, projected, lengths, values, self._columns)
        steps, shrink = self._scalar.encode(centred, projected, values, self._columns)
        at = np.flatnonzero(shrink < 1)
        shrink = shrink[at]
        for _ in range(SHRINKS):
            if not len(at):
                break
            shorter, shadow = centred[at] * shrink[:, None], projected[at] * shrink[:, None]
            fields[at] = self._coder(shadow)
            steps[at], more = self._scalar.encode(shorter, shadow, coded_values(fields[at], self.levels), self._columns)
            at, shrink = at[more < 1], (shrink * more)[more < 1]
        return steps

    def _decode(self, fields: Fields) -> Vectors:
        values = coded_values(fields[:, -self.m :], self.levels)
        decoded = self._mean + product(values, self._full_rows.T)
        if (by_length := self._length_scalar) is not None:
            decoded *= by_length.decode_lengths(fields[:, 0], values)[:, None]
        return decoded

    def _embed(self, fields: Fields) -> Vectors:
        return coded_values(fields[:, -self.m :], self.levels)

    # -- distances ----------------------------------------------------------------------------

    def _tables(self, queries: Vectors, metric: Base, symmetric: bool) -> Tables:
        if symmetric and metric == "l2":
            # The distance between coded values (section 3.1), in steps of θ, so that sums are exact;
            # for two levels it is Hamming.
            own = self._encode(queries)[:, -self.m :].astype(np.float32)
            values = np.zeros((len(queries), int(self.layout.starts[-1])), np.float32)
            dimensions = values[:, -self.m * self.levels :].reshape(len(queries), self.m, self.levels)
            np.square(own[:, :, None] - np.arange(self.levels, dtype=np.float32), out=dimensions)
            return Tables(values, np.zeros(len(queries), np.float32))
        return self._linear.of(self._decode(self._encode(queries)) if symmetric else queries, metric)

    @cached_property
    def _linear(self) -> LinearTables | LengthTables:
        if (by_length := self._length_scalar) is not None:
            return LengthTables(by_length, self._rows @ self._axes, self.levels)
        told, steps = self._scalar.tables() if self.scalar else (None, None)
        return LinearTables(self._mean, self._rows @ self._axes, self.levels, told=told, steps=steps)

    @property
    def hashes(self) -> bool:
        """As published, yes: a field is told by W alone. Codes that are searched for depend on all of the vector."""
        return self.refine == 0

    def _probe_tables(self, queries: Vectors, metric: Metric) -> Tables:
        # Where the scalar has the lengths, codes are of directions.
        return self._probes.of(
            queries, "cosine" if self.scalar == "length" and METRICS[metric].base == "l2" else metric
        )

    @cached_property
    def _probes(self) -> ProbeTables:
        """By W, which makes published codes: asymmetric tables weigh with V, and have other bits than the query.

        Codes that are searched for have no W. The linear guess of least mean square error at theirs is
        (VVᵀ + σ²I)⁻¹V = V(VᵀV + σ²I)⁻¹, σ² what a code leaves of each dimension.
        """
        if self.refine:
            wide = self._rows.astype(np.float64)
            estimate = ridge(wide.T @ wide, wide.T, self._noise).T
        else:
            estimate = self._start
        scalar_levels = 1 << self.scalar_bits if self.scalar else 0
        sizes = squares(self._rows)
        return ProbeTables(self._mean, estimate @ self._axes, sizes, self.levels, scalar_levels=scalar_levels)


def _by_weight(weights: Float32) -> NDArray[np.intp]:
    """As many row numbers as there are weights, each as often as its weight says.

    >>> _by_weight(np.array([1, 0, 3, 0], np.float32))
    array([0, 2, 2, 2])
    """
    ends = np.cumsum(weights, dtype=np.float64)
    if not ends[-1] > 0:
        return np.arange(len(weights))
    wanted = (np.arange(len(weights)) + 0.5) * (ends[-1] / len(weights))
    at: NDArray[np.intp] = np.searchsorted(ends, wanted, side="right")
    return at
