"""The index against a dict: any sequence of changes, and after every step everything is compared.

Vectors are small whole numbers, so that all exact distances are exact in float64, equal vectors are common, and
an answer has one right order only. Bulk steps of some thousand rows fill chunks and parts, split blocks of sorted
ids, and give chunks back; small ones fill pieces.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from lsqindex import Cells, Index, MultiIndex
from lsqindex._inputs.filters import read_filter
from lsqindex.errors import (
    DuplicateIdError,
    NoVectorsError,
    ParameterError,
    PayloadError,
    TooFewVectorsError,
    UnknownIdError,
    VectorError,
)
from lsqindex.testing import reference

from .plain_words import (
    DIM,
    FILTERS,
    Vectors,
    assert_found,
    can_have,
    codes,
    distances,
    grid,
    plain,
    small_transactions,
    some_payloads,
)

MOST_ROWS = 24_000
#: Encoders with parameters that fit three dimensions, and how many vectors each needs.
ENCODERS: dict[str, tuple[dict[str, Any], int]] = {
    "flat": ({}, 0),
    "lsh": ({"bits": 13}, 1),
    "itq": ({"bits": 3, "iterations": 3}, 2),
    "lsq": ({"bits": 6, "iterations": 2}, 2),
    "pq": ({"bits": 4, "field_bits": 2}, 4),
}
Change = tuple[str, Any, Vectors | None]
seeds = st.integers(0, 2**32 - 1)
small_sizes = st.integers(1, 70)
bulk_sizes = st.sampled_from([31, 32, 33, 1000, 4063, 4064, 4065, 5000, 8128])


class IndexMachine(RuleBasedStateMachine):
    """What int and str ids share; the subclasses say how ids look."""

    kind: ClassVar[Literal["int", "str"]]
    #: What an index is made with, and how many rows it has at first.
    encoders: ClassVar[Any] = st.sampled_from(sorted(ENCODERS))
    subsets: ClassVar[Any] = st.sampled_from([None, "multi-index", MultiIndex(bits=5), Cells(20)])
    train_sizes: ClassVar[Any] = st.sampled_from([50, 4500, 10**6])
    first_rows: ClassVar[Any] = st.just(0)

    @staticmethod
    def ids_for(numbers: list[int]) -> list[Any]:
        raise NotImplementedError

    # -- the life of an example ---------------------------------------------------------------

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "index.lsq"
        self.other: Index | None = None
        self.model: dict[Any, Vectors] = {}
        self.payloads: dict[Any, Any] = {}
        self.next_id = 0
        self.step = 0

    @initialize(
        metric=st.sampled_from(["l2", "cosine", "ip"]),
        kept=st.sampled_from([None, "float16", "float32"]),
        in_memory=st.booleans(),
        fields=st.sampled_from([(), ("a",), ("b.c", "a")]),
        data=st.data(),
    )
    def create(self, metric: Any, kept: Any, in_memory: bool, fields: Any, data: st.DataObject) -> None:
        encoder, subset, train_size, n = (
            data.draw(choices) for choices in (self.encoders, self.subsets, self.train_sizes, self.first_rows)
        )
        parameters, least = ENCODERS[encoder]
        self.subset = subset if can_have(encoder, subset) else None
        self.train_size, self.kept = max(train_size, least), kept
        options: dict[str, Any] = {"metric": metric, "keep_vectors": kept, "encoder": encoder, "ids": self.kind}
        options.update(train_size=train_size, subset=self.subset, fields=fields, **parameters)
        self.index = Index(DIM, **options) if in_memory else Index.create(self.path, DIM, **options)
        if n:
            self.add(n, n, "rising")

    def teardown(self) -> None:
        if hasattr(self, "index"):
            self.index.close()
        if self.other is not None:
            self.other.close()
        self.directory.cleanup()

    # -- changes ------------------------------------------------------------------------------

    def new_ids(self, n: int, seed: int, order: str) -> list[Any]:
        """Ids that are not in the index: in rising, falling or random order, near each other or spread."""
        rng = np.random.default_rng(seed)
        base, stride = int(rng.integers(0, 50_000)), int(rng.choice([1, 1, 2, 7]))
        numbers: list[int] = []
        at = base
        while len(numbers) < n:
            if self.ids_for([at])[0] not in self.model:
                numbers.append(at)
            at += stride
        if order == "falling":
            numbers.reverse()
        elif order == "random":
            rng.shuffle(numbers)
        return self.ids_for(numbers)

    def known_ids(self, share: float, seed: int, pattern: str) -> list[Any]:
        """Some of the ids there are: scattered, or a run of neighbours."""
        ids = sorted(self.model)
        n = min(len(ids), max(1, int(share * len(ids))))
        rng = np.random.default_rng(seed)
        if pattern == "run":
            first = int(rng.integers(0, len(ids) - n + 1))
            return ids[first : first + n]
        return [ids[i] for i in rng.permutation(len(ids))[:n].tolist()]

    def remember(self, ids: Any, vectors: Vectors, payloads: list[Any] | None) -> None:
        for name, vector, payload in zip(plain(ids), vectors, payloads or [None] * len(vectors), strict=True):
            self.model[name], self.payloads[name] = vector, payload
            if self.kind == "int":
                self.next_id = max(self.next_id, name + 1)

    @rule(n=small_sizes, seed=seeds, order=st.sampled_from(["rising", "falling", "random"]))
    def add(self, n: int, seed: int, order: str) -> None:
        ids, vectors, payloads = self.new_ids(n, seed, order), grid(n, seed), some_payloads(n, seed)
        assert plain(self.index.add(vectors, ids, payloads)) == ids
        self.remember(ids, vectors, payloads)

    @rule(n=small_sizes, seed=seeds)
    def add_without_ids(self, n: int, seed: int) -> None:
        if self.kind == "str":
            return
        payloads = some_payloads(n, seed)
        given = self.index.add(grid(n, seed), payloads=payloads)
        assert given.tolist() == list(range(self.next_id, self.next_id + n))
        self.remember(given, grid(n, seed), payloads)

    @rule(seed=seeds, n=st.integers(1, 12))
    def add_one_by_one(self, seed: int, n: int) -> None:
        for i in range(n):
            self.add(1, seed + i, "rising")

    @precondition(lambda self: len(self.model) < MOST_ROWS)
    @rule(n=bulk_sizes, seed=seeds, order=st.sampled_from(["rising", "falling", "random"]), staged=st.booleans())
    def add_many(self, n: int, seed: int, order: str, staged: bool) -> None:
        with small_transactions(staged):
            self.add(n, seed, order)

    @precondition(lambda self: self.model)
    @rule(share=st.floats(0, 1), fresh=st.integers(0, 40), seed=seeds, pattern=st.sampled_from(["run", "scattered"]))
    def upsert(self, share: float, fresh: int, seed: int, pattern: str) -> None:
        ids = [*self.known_ids(share, seed, pattern), *self.new_ids(fresh, seed, "random")]
        vectors, payloads = grid(len(ids), seed + 1), some_payloads(len(ids), seed)
        with small_transactions(bool(seed % 2)):
            assert plain(self.index.add(vectors, ids, payloads, upsert=True)) == ids
        self.remember(ids, vectors, payloads)

    @precondition(lambda self: self.model)
    @rule(share=st.sampled_from([0.0, 0.01, 0.3, 1.0]), seed=seeds, pattern=st.sampled_from(["run", "scattered"]))
    def set_payloads(self, share: float, seed: int, pattern: str) -> None:
        ids = self.known_ids(share, seed, pattern)
        payloads = some_payloads(len(ids), seed) or [None] * len(ids)
        with pytest.raises(UnknownIdError):
            self.index.set_payloads([*ids, *self.new_ids(1, seed, "rising")], [*payloads, {}])
        self.index.set_payloads(ids, payloads)
        self.payloads.update(zip(ids, payloads, strict=True))

    @precondition(lambda self: self.model)
    @rule(
        share=st.sampled_from([0.0, 0.01, 0.2, 0.26, 0.5, 0.9, 1.0]),
        seed=seeds,
        pattern=st.sampled_from(["run", "scattered"]),
    )
    def delete(self, share: float, seed: int, pattern: str) -> None:
        ids = self.known_ids(share, seed, pattern)
        unknown = self.new_ids(3, seed, "random")
        assert self.index.delete([*ids, *ids[:2], *unknown]) == len(ids)
        for name in ids:
            del self.model[name], self.payloads[name]

    # -- changes that fail --------------------------------------------------------------------

    @precondition(lambda self: self.model)
    @rule(n=st.sampled_from([1, 20, 5000]), seed=seeds, staged=st.booleans())
    def add_with_an_id_that_exists(self, n: int, seed: int, staged: bool) -> None:
        ids = [*self.new_ids(n, seed, "random"), self.known_ids(0, seed, "run")[0]]
        with small_transactions(staged), pytest.raises(DuplicateIdError):
            self.index.add(grid(n + 1, seed), ids, some_payloads(n + 1, seed))

    @rule(n=st.sampled_from([1, 20, 5000]), seed=seeds, staged=st.booleans(), upsert=st.booleans())
    def add_with_a_bad_vector_at_the_end(self, n: int, seed: int, staged: bool, upsert: bool) -> None:
        vectors = grid(n, seed)
        vectors[-1, -1] = np.nan
        with small_transactions(staged), pytest.raises(VectorError):
            self.index.add(vectors, self.new_ids(n, seed, "random"), some_payloads(n, seed), upsert=upsert)

    @rule(n=st.sampled_from([1, 20]), seed=seeds)
    def add_with_a_bad_payload_at_the_end(self, n: int, seed: int) -> None:
        payloads = [*(some_payloads(n - 1, seed + 1) or [None] * (n - 1)), {"a": object()}]
        with pytest.raises(PayloadError):
            self.index.add(grid(n, seed), self.new_ids(n, seed, "random"), payloads)

    # -- batches ------------------------------------------------------------------------------

    @rule(
        steps=st.lists(st.tuples(st.sampled_from(["add", "upsert", "delete", "fail"]), seeds), min_size=1, max_size=5),
        large=st.booleans(),
        commit=st.booleans(),
    )
    def batch(self, steps: list[tuple[str, int]], large: bool, commit: bool) -> None:
        before, payloads, next_before = dict(self.model), dict(self.payloads), self.next_id
        with contextlib.suppress(_Abort), self.index.batch() as batch:
            for what, seed in steps:
                self.batch_step(batch, what, seed, 2500 if large and len(self.model) < MOST_ROWS else 20)
            if not commit:
                raise _Abort
        if not commit:
            self.model, self.payloads, self.next_id = before, payloads, next_before

    def batch_step(self, batch: Any, what: str, seed: int, n: int) -> None:
        if what == "add":
            ids, vectors, payloads = self.new_ids(n, seed, "random"), grid(n, seed), some_payloads(n, seed)
            assert plain(batch.add(vectors, ids, payloads)) == ids
            self.remember(ids, vectors, payloads)
        elif what == "upsert" and self.model:
            ids = self.known_ids(0.3, seed, "scattered")
            vectors, payloads = grid(len(ids), seed), some_payloads(len(ids), seed)
            batch.add(vectors, ids, payloads, upsert=True)
            self.remember(ids, vectors, payloads)
        elif what == "delete" and self.model:
            ids = self.known_ids(0.3, seed, "run")
            assert batch.delete(ids) == len(ids)
            for name in ids:
                del self.model[name], self.payloads[name]
        elif what == "fail" and self.model:
            ids = [*self.new_ids(n, seed, "random"), self.known_ids(0, seed, "run")[0]]
            with pytest.raises(DuplicateIdError):
                batch.add(grid(n + 1, seed), ids, some_payloads(n + 1, seed))

    # -- training -----------------------------------------------------------------------------

    def can_encode_again(self) -> bool:
        encoder = self.index.encoder
        return self.kept is not None or not encoder.is_fitted or encoder.name == "flat"

    @precondition(lambda self: self.model)
    @rule(staged=st.booleans())
    def train(self, staged: bool) -> None:
        least = ENCODERS[self.index.encoder.name][1]
        self.encode_again(self.index.train, least, staged)

    @precondition(lambda self: self.model)
    @rule(name=st.sampled_from(sorted(ENCODERS)), staged=st.booleans())
    def reencode(self, name: str, staged: bool) -> None:
        parameters, least = ENCODERS[name]
        # Cells wait for an encoder with codes.
        if not can_have(name, self.subset) and not isinstance(self.subset, Cells):
            with pytest.raises((ParameterError, NoVectorsError), match=r"subset|codes only"):
                self.index.reencode(name, **parameters)
            return
        self.encode_again(lambda: self.index.reencode(name, **parameters), least, staged)

    def encode_again(self, change: Callable[[], Any], least: int, staged: bool) -> None:
        with small_transactions(staged):
            if not self.can_encode_again():
                with pytest.raises(NoVectorsError):
                    change()
            elif len(self.model) < least:
                with pytest.raises(TooFewVectorsError):
                    change()
            else:
                change()
                assert self.index.is_trained

    # -- the subset structure -------------------------------------------------------------------

    @rule(
        subset=st.sampled_from([None, "multi-index", MultiIndex(4), MultiIndex(13), Cells(5), Cells(60, spill=False)]),
        staged=st.booleans(),
    )
    def set_subset(self, subset: Any, staged: bool) -> None:
        with small_transactions(staged):
            if can_have(self.index.encoder.name, subset):
                self.index.set_subset(subset)
                self.subset = subset
                self.all_are_listed(self.index)
            else:
                with pytest.raises(ParameterError, match="subset"):
                    self.index.set_subset(subset)

    @rule(staged=st.booleans())
    def merge(self, staged: bool) -> None:
        with small_transactions(staged):
            self.index.merge()
        self.all_are_listed(self.index)

    def all_are_listed(self, index: Index) -> None:
        stats = index.stats()
        listed = self.subset is not None and index.is_trained and not index.encoder.layout.floats
        if isinstance(self.subset, Cells) and not self.model:
            return  # nothing to make cells from
        assert stats["fresh"] == 0 or not listed
        assert stats["listed"] == (stats["vectors"] + stats["deleted"] if listed else 0)

    # -- the file -----------------------------------------------------------------------------

    @rule(staged=st.booleans())
    def save_a_copy(self, staged: bool) -> None:
        """The first copy is a new file, later ones replace it. An index in memory becomes its first."""
        copy = self.path.with_name("copy.lsq") if self.index.path else self.path
        with small_transactions(staged):
            self.index.save(copy)
        with Index.open(copy, read_only=True) as index:
            self.compare(index)

    @precondition(lambda self: self.index.path)
    @rule(staged=st.booleans())
    def compact(self, staged: bool) -> None:
        with small_transactions(staged):
            self.index.compact()
        assert self.index.stats()["deleted"] == 0

    @precondition(lambda self: self.index.path)
    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = Index.open(self.path)

    @precondition(lambda self: self.index.path)
    @rule(read_only=st.booleans())
    def open_a_second_time_or_change_places_or_close(self, read_only: bool) -> None:
        if self.other is None:
            self.other = Index.open(self.path, read_only=read_only)
            self.other_writes = not read_only
        elif self.other_writes:
            self.index, self.other = self.other, self.index
        else:
            self.other.close()
            self.other = None

    # -- everything is compared after every step ----------------------------------------------

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "index"):
            return
        self.step += 1
        self.compare(self.index)
        if self.other is not None:
            self.compare(self.other)

    def compare(self, index: Index) -> None:
        names = sorted(self.model)
        assert index.check() == []
        assert len(index) == len(names)
        assert plain(index.ids()) == names
        assert index.is_trained or len(names) < self.train_size
        assert all(name not in index for name in self.new_ids(3, self.step, "random"))
        vectors = np.array([self.model[name] for name in names], np.float32).reshape(-1, DIM)
        rng = np.random.default_rng(self.step)
        some = rng.permutation(len(names))[:50]
        wanted = vectors[some]
        if index.is_trained and not index.encoder.layout.floats and self.kept is None:
            wanted = index.encoder.decode(codes(index, wanted))
        assert np.array_equal(index.get([names[i] for i in some.tolist()]), wanted)
        self.compare_payloads(index, names, rng)
        queries = grid(2, self.step) + np.float32(0.5)
        k = int(rng.choice([1, 7, 40]))
        if self.exact(index):
            for options in ({"rerank": len(names), **self.everywhere()}, {"recall": 1.0}):
                found = index.search(queries, k=k, **options)
                assert_found(found, names, distances(queries, vectors, index.metric), k)
            allowed = rng.permutation(len(names))[: len(names) // 3]
            filter_ids = [*(names[i] for i in allowed.tolist()), *self.new_ids(2, self.step, "random")]
            found = index.search(queries, k=k, rerank=len(names), filter=filter_ids, **self.everywhere())
            allowed.sort()
            near = distances(queries, vectors[allowed], index.metric)
            assert_found(found, [names[i] for i in allowed.tolist()], near, k)
        if index.is_trained and not index.encoder.layout.floats:
            self.compare_estimates(index, queries, vectors, k)
        assert (index.subset is None) == (self.subset is None)
        if index.is_trained and not index.encoder.layout.floats and self.subset is not None:
            self.compare_lists(index, queries, k)

    def compare_payloads(self, index: Index, names: list[Any], rng: np.random.Generator) -> None:
        """All of them, and what filters find; which fields are indexed must not matter."""
        assert index.payloads(names) == [self.payloads[name] for name in names]
        chosen = FILTERS[int(rng.integers(len(FILTERS)))]
        condition = read_filter(chosen, "int")
        wanted = [name for name in names if condition.matches(self.payloads[name])]
        assert plain(index.ids(chosen)) == wanted
        found = index.search(grid(1, self.step), k=3, filter=chosen, with_payloads=True)
        there = [name for name in found.ids[0].tolist() if name not in (None, -1)]
        assert len(there) == min(3, len(wanted)) and set(there) <= set(wanted)
        assert found.payloads == [[self.payloads[name] for name in there] + [None] * (3 - len(there))]

    def compare_lists(self, index: Index, queries: Vectors, k: int) -> None:
        """All buckets of all tables hold all rows: a subset search is then a scan. Some hold rows that are there."""
        stats = index.stats()
        assert stats["listed"] + stats["fresh"] == stats["vectors"] + stats["deleted"]
        cells = isinstance(self.subset, Cells)
        if not cells:
            everything = len(self.model) + 1
            near = index.search(queries, k=k, probes=1 << 16, candidates=everything, rerank=0)
            scanned = index.search(queries, k=k, strategy="scan", rerank=0)
            assert np.array_equal(near.distances, scanned.distances) and near.ids.tolist() == scanned.ids.tolist()
        some = index.search(queries, k=k, distance="auto" if cells else "score")
        found = [name for name in some.ids.ravel().tolist() if name not in (None, -1)]
        assert all(name in self.model for name in found) and len(found) == 2 * min(k, len(self.model))

    def everywhere(self) -> dict[str, Any]:
        """Options of a search that misses nothing."""
        return {"probes": 1 << 16} if isinstance(self.subset, Cells) else {}

    def exact(self, index: Index) -> bool:
        return self.kept is not None or not index.is_trained or index.encoder.layout.floats

    def compare_estimates(self, index: Index, queries: Vectors, vectors: Vectors, k: int) -> None:
        """The distances off the codes are those of codes made anew."""
        encoder = index.encoder
        tables = encoder.tables(queries, index.metric)
        near = np.sort(reference.distances(codes(index, vectors), encoder.layout, tables), axis=1)[:, :k]
        wanted = np.full((len(queries), k), np.inf, np.float32)
        wanted[:, : near.shape[1]] = near if index.metric == "ip" else np.maximum(near, 0)
        found = index.search(queries, k=k, rerank=0, **self.everywhere())
        np.testing.assert_allclose(found.distances, wanted, rtol=1e-4, atol=1e-3)


class IntMachine(IndexMachine):
    kind = "int"

    @staticmethod
    def ids_for(numbers: list[int]) -> list[Any]:
        """Small ones by themselves, and negative and large ones among each other."""
        far = (lambda number: -number, lambda number: number + (1 << 40))
        return [number if number < 30_000 else far[number % 2](number) for number in numbers]


class StrMachine(IndexMachine):
    kind = "str"

    @staticmethod
    def ids_for(numbers: list[int]) -> list[Any]:
        """Of several lengths and alphabets; 0 is the empty string; numbers sort otherwise than their strings."""
        tails = ("", "é", "\0", "語" * 60)
        return [f"{number}{tails[number % 4]}" if number else "" for number in numbers]


class CellsMachine(IntMachine):
    """Cells from the beginning on, and rows that come and go where others are."""

    encoders = st.sampled_from(["itq", "lsh", "lsq", "pq"])
    subsets = st.sampled_from([Cells(), Cells(20), Cells(spill=False)])
    train_sizes = st.just(50)
    first_rows = st.integers(600, 2000)

    @precondition(lambda self: len(self.model) < MOST_ROWS)
    @rule(n=st.integers(300, 1500), seed=seeds, drift=st.integers(-9, 9))
    def add_elsewhere(self, n: int, seed: int, drift: int) -> None:
        """Rows that are mostly where there were none: cells there grow past their limit."""
        vectors = grid(n, seed) // 3 + np.float32(drift)
        vectors[~vectors.any(axis=1), 0] = 1
        ids = self.new_ids(n, seed, "random")
        self.index.add(vectors, ids)
        self.remember(ids, vectors, None)

    @precondition(lambda self: self.model)
    @rule(at=st.integers(-4, 4))
    def delete_around(self, at: int) -> None:
        """Rows that are near each other: their cells become small."""
        ids = [name for name, vector in self.model.items() if abs(vector[0] - at) <= 1]
        self.index.delete(ids)
        for name in ids:
            del self.model[name], self.payloads[name]


class _Abort(Exception):  # noqa: N818 — not an error: how a batch is left
    pass
