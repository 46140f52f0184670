"""The conformance tests refuse encoders that say what is not so, and pass the plugins that we publish."""

from __future__ import annotations

import doctest
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from lsqindex import Encoder, register_encoder
from lsqindex._inputs.vectors import Vectors
from lsqindex.encoders import Layout, Tables, registry
from lsqindex.encoders.base import Fields
from lsqindex.encoders.itq import ITQ
from lsqindex.encoders.lsq import LSQ
from lsqindex.encoders.pq import PQ
from lsqindex.testing import EncoderConformance
from tests.settings import ROOT


def complaints(make: Any, dim: int = 24) -> dict[str, str]:
    """The conformance tests that an encoder fails, and what they say."""

    class Suite(EncoderConformance):
        def make_encoder(self) -> Encoder:
            made: Encoder = make()
            return made

    Suite.dim = dim
    suite, found = Suite(), {}
    for name in (name for name in dir(suite) if name.startswith("test_")):
        try:
            getattr(suite, name)()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


# -- wrong claims ---------------------------------------------------------------------------------


@register_encoder("lies-linear")
class Linear(PQ):
    """Centres are no sums of bits."""

    def _make_layout(self, dim: int) -> Layout:
        return replace(super()._make_layout(dim), linear=True)


@register_encoder("lies-scalars")
class Scalars(ITQ):
    """The first bit is a dimension of the code like the others."""

    def _make_layout(self, dim: int) -> Layout:
        return replace(super()._make_layout(dim), scalars=1)

    def _embed(self, fields: Fields) -> Vectors:
        return super()._embed(fields)[:, 1:]


@register_encoder("lies-no-scalars")
class NoScalars(LSQ):
    """The first field is a row scalar."""

    def _make_layout(self, dim: int) -> Layout:
        return replace(super()._make_layout(dim), scalars=0, head=0, margins=())

    def _embed(self, fields: Fields) -> Vectors:
        return np.concatenate([fields[:, :1].astype(np.float32), super()._embed(fields)], axis=1)


@register_encoder("lies-head")
class Head(ITQ):
    """All bits count alike: one byte of three says little, and the margins ask for much."""

    def _make_layout(self, dim: int) -> Layout:
        return replace(super()._make_layout(dim), head=1, margins=(2.5, 3.0, 3.5))


@register_encoder("lies-levels")
class Levels(PQ):
    """Codebooks have more centres than the layout says."""

    def _make_layout(self, dim: int) -> Layout:
        layout = super()._make_layout(dim)
        return replace(layout, levels=tuple(n - 3 for n in layout.levels))

    def _tables(self, queries: Vectors, metric: Literal["l2", "ip"], symmetric: bool) -> Tables:
        tables = super()._tables(queries, metric, symmetric)
        m = len(self.layout.levels)
        values = tables.values.reshape(len(queries), m, -1)[:, :, : self.layout.levels[0]]
        return Tables(np.ascontiguousarray(values.reshape(len(queries), -1)), tables.bias)


@register_encoder("lies-hashes")
class Hashes(PQ):
    """The numbers of centres depend on the vector's last digits: near vectors share no fields."""

    def _encode(self, block: Vectors) -> Fields:
        mask = np.ascontiguousarray(block).view(np.uint32).sum(axis=1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        stirred = np.stack([mask >> np.uint64(4 * j) & np.uint64(15) for j in range(self.layout.m)], axis=1)
        out: Fields = (super()._encode(block) ^ stirred).astype(np.uint16)
        return out


@register_encoder("lies-random")
class Random(ITQ):
    """A bit is drawn at every call."""

    _rng = np.random.default_rng()

    def _encode(self, block: Vectors) -> Fields:
        fields = super()._encode(block)
        fields[:, 0] = self._rng.integers(0, 2, len(fields))
        return fields


@register_encoder("lies-tables")
class WrongTables(PQ):
    """The look-ups of two fields are exchanged."""

    def _tables(self, queries: Vectors, metric: Literal["l2", "ip"], symmetric: bool) -> Tables:
        tables = super()._tables(queries, metric, symmetric)
        values = tables.values.reshape(len(queries), self.layout.m, -1)[:, np.arange(self.layout.m) ^ 1]
        return Tables(np.ascontiguousarray(values.reshape(tables.values.shape)), tables.bias)


LIES: dict[str, tuple[Any, str, str]] = {
    "linear": (
        lambda: Linear(bits=32, field_bits=8),
        "test_a_linear_layout_has_look_ups_affine_in_their_bits",
        "layout.linear is True",
    ),
    "linear, as the scan sees it": (
        lambda: Linear(bits=32, field_bits=8),
        "test_the_kernels_find_what_the_look_ups_say",
        "layout.linear=True",
    ),
    "too many scalars": (
        lambda: Scalars(bits=16),
        "test_row_scalars_are_the_leading_fields_that_the_layout_says",
        "layout.scalars=1",
    ),
    "too few scalars": (
        lambda: NoScalars(bits=48, iterations=3),
        "test_row_scalars_are_the_leading_fields_that_the_layout_says",
        "layout.scalars=0",
    ),
    "head": (lambda: Head(bits=24), "test_the_head_of_a_code_ranks_nearly_as_well_as_all_of_it", "layout.head=1"),
    "levels": (lambda: Levels(bits=24, field_bits=4), "test_fields_are_below_their_levels", "layout.levels says"),
    "hashes": (
        lambda: Hashes(bits=24, field_bits=4),
        "test_near_vectors_share_fields_where_the_encoder_hashes",
        "hashes is True",
    ),
    "random codes": (
        lambda: Random(bits=16),
        "test_encoding_again_gives_the_same_codes",
        "encode is not deterministic",
    ),
    "tables": (
        lambda: WrongTables(bits=24, field_bits=4),
        "test_look_ups_find_the_nearest_as_well_as_reconstructions",
        "tables disagree with decode",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_wrong_claim_fails_the_test_that_names_it(lie: str) -> None:
    make, test, says = LIES[lie]

    class Suite(EncoderConformance):
        def make_encoder(self) -> Encoder:
            made: Encoder = make()
            return made

    with pytest.raises(AssertionError, match=says):
        getattr(Suite(), test)()


@pytest.mark.parametrize("kind", [Linear, Scalars, NoScalars, Head, Levels, Hashes, Random, WrongTables])
def test_the_encoder_without_the_lie_passes_these_tests(kind: type[Encoder]) -> None:
    """So it is the lie that fails."""
    name = next(name for name, (make, _, _) in LIES.items() if isinstance(make(), kind))
    parameters = LIES[name][0]().config

    class Suite(EncoderConformance):
        def make_encoder(self) -> Encoder:
            honest: Encoder = kind.__bases__[0](**parameters)
            return honest

    for _, test, _ in LIES.values():
        getattr(Suite(), test)()


# -- what we publish ------------------------------------------------------------------------------


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """The code of docs/howto/write-a-plugin.md as a module, as if it had been copied into a file."""
    # The page itself is a test as well, and may run in this process: each registers its own "signs".
    others = {name: cls for name, cls in registry._registered.items() if name != "signs"}
    monkeypatch.setattr(registry, "_registered", others)
    page = (ROOT / "docs" / "howto" / "write-a-plugin.md").read_text(encoding="utf-8")
    examples = doctest.DocTestParser().get_examples(page)
    module = types.ModuleType("published_plugin")
    sys.modules[module.__name__] = module
    definitions = [e.source for e in examples if e.source.startswith(("import ", "from ", "@", "class "))]
    exec(compile("\n".join(definitions), module.__name__, "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


def test_the_published_plugin_conforms(published: types.ModuleType) -> None:
    """All tests, with the suite that the page itself shows."""
    suite = published.TestSigns()
    names = [name for name in dir(suite) if name.startswith("test_")]
    assert len(names) > 40
    for name in names:
        getattr(suite, name)()
    assert not complaints(lambda: published.Signs(bits=24))


def test_the_plugin_template_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is published, without being installed."""
    monkeypatch.syspath_prepend(ROOT / "examples" / "plugin_template" / "src")
    from lsqindex_sign_pca import SignPCA

    register_encoder("sign-pca-source")(SignPCA)
    assert not complaints(lambda: SignPCA(bits=16))
