"""However a subset structure came to be, it answers alike; and what it refuses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Cells, Index, MultiIndex
from lsqindex.errors import NotHashingWarning, ParameterError

from .paper import DIM, How, Plain, Vectors, answers, assert_same, code_distances, fitted, make, random


def story_of(index: Index, vectors: Vectors) -> Index:
    """300 vectors under their numbers, an update and two deletes, and all of them listed."""
    index.add(vectors[:200], ids=range(200))
    index.add(vectors[290:300], ids=range(200, 210))
    index.add(vectors[200:], ids=range(200, 300), upsert=True)
    index.delete([17, 230])
    index.merge()
    return index


def set_late(directory: Path, vectors: Vectors) -> Index:
    return story_of(make("lsh", keep_vectors="float32"), vectors).set_subset(MultiIndex(bits=5))


def set_anew(directory: Path, vectors: Vectors) -> Index:
    index = story_of(make("lsh", keep_vectors="float32", subset=MultiIndex(bits=9)), vectors)
    return index.set_subset(None).set_subset("multi-index").set_subset(MultiIndex(bits=5))


def reopened(directory: Path, vectors: Vectors) -> Index:
    path = directory / "index.lsq"
    with Index.create(path, DIM, encoder=fitted("lsh"), subset=MultiIndex(bits=5), keep_vectors="float32") as index:
        story_of(index, vectors)
    return Index.open(path, read_only=True)


def compacted(directory: Path, vectors: Vectors) -> Index:
    path = directory / "index.lsq"
    index = Index.create(path, DIM, encoder=fitted("lsh"), subset=MultiIndex(bits=5), keep_vectors="float32")
    story_of(index, vectors).compact()
    return index


def copied(directory: Path, vectors: Vectors) -> Index:
    with make("lsh", subset=MultiIndex(bits=5), keep_vectors="float32") as index:
        story_of(index, vectors).save(directory / "copy.lsq")
    return Index.open(directory / "copy.lsq")


def reencoded(directory: Path, vectors: Vectors) -> Index:
    index = make("itq", keep_vectors="float32", subset=MultiIndex(bits=5))
    return story_of(index, vectors).reencode(fitted("lsh"))


def in_a_batch(directory: Path, vectors: Vectors) -> Index:
    index = make("lsh", subset=MultiIndex(bits=5), keep_vectors="float32")
    with index.batch() as batch:
        batch.add(vectors[:250], ids=range(250))
        batch.delete([17, 230])
        assert len(index) == 0  # nobody sees it yet
        assert index.search(vectors[:1], 1, strategy="subset").ids.tolist() == [[-1]]
        batch.add(vectors[250:], ids=range(250, 300))
    return index


def undone(directory: Path, vectors: Vectors) -> Index:
    index = story_of(make("lsh", subset=MultiIndex(bits=5), keep_vectors="float32"), vectors)
    with pytest.raises(KeyError), index.batch() as batch:
        batch.add(vectors[:100])
        batch.delete(range(100))
        raise KeyError("nothing of it happened")
    return index


WAYS: tuple[Callable[[Path, Vectors], Index], ...] = (
    set_late,
    set_anew,
    reopened,
    compacted,
    copied,
    reencoded,
    in_a_batch,
    undone,
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_answers_do_not_depend_on_how_the_index_came_to_be(
    way: Callable[[Path, Vectors], Index], tmp_path: Path
) -> None:
    vectors = random(300, 47)
    with make("lsh", subset=MultiIndex(bits=5), keep_vectors="float32") as other:
        story_of(other, vectors)
        with way(tmp_path, vectors) as index:
            assert index.subset == MultiIndex(bits=5)
            assert_same(index, other)


def test_a_subset_structure_can_be_removed() -> None:
    index = make("lsq", subset="multi-index")
    vectors, queries = random(300, 48), random(3, 49)
    index.add(vectors)
    index.merge()
    assert index.stats()["listed"] == 300
    before = answers(index.search(queries, 5))
    assert index.set_subset(None) is index
    assert index.subset is None
    stats = index.stats()
    assert (stats["subset"], stats["tables"], stats["listed"], stats["fresh"]) == (None, 0, 0, 0)
    assert answers(index.search(queries, 5)) == before
    with pytest.raises(ParameterError, match="set_subset"):
        index.search(queries, 5, strategy="subset")
    index.merge()  # nothing to do
    assert index.check() == []
    index.close()


def test_merging_lists_fresh_rows_and_changes_no_answer() -> None:
    merged, fresh = (make("lsh", subset=MultiIndex(bits=5)) for _ in range(2))
    vectors, seen = random(300, 50), list[tuple[int, int | None]]()
    for first in range(0, 300, 60):
        for index in (merged, fresh):
            index.add(vectors[first : first + 60])
        merged.merge(progress=lambda done, total: seen.append((done, total)))
        assert_same(merged, fresh)
    assert (merged.stats()["fresh"], fresh.stats()["fresh"]) == (0, 300)
    assert seen == [(n, n) for n in range(60, 301, 60)]
    merged.close()
    fresh.close()


def test_tables_of_chosen_bits_grow_with_the_index_when_it_is_merged() -> None:
    index = make("lsh", subset="multi-index")
    vectors, query = random(5000, 51), random(1, 52)
    index.add(vectors[:10])
    assert index.subset == MultiIndex(bits=4)
    index.add(vectors[10:])
    assert index.subset == MultiIndex(bits=4)
    index.merge()
    assert index.subset == MultiIndex(bits=6)
    plain = Plain(fitted("lsh"), "l2", 6)
    plain.add(range(5000), vectors)
    found = index.search(query, 30, strategy="subset", distance="score")
    assert answers(found) == plain.search(query, 30, code_distances(index, query))
    # Those that were asked for stay.
    index.set_subset(MultiIndex(bits=9))
    index.merge()
    assert index.subset == MultiIndex(bits=9)
    index.close()


def refused(act: Callable[[], Any], *words: str) -> None:
    with pytest.raises(ParameterError) as caught:
        act()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["probes", "candidates"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True, (1 << 31) + 1, np.float32(2)])
def test_probes_and_candidates_are_whole_numbers(name: str, value: Any) -> None:
    with make("lsq", subset="multi-index") as index:
        index.add(random(20, 53))
        for act in (index.search, index.explain):
            refused(partial(act, random(1, 54), 3, **{name: value}), f"{name}=", "whole number from 1")


def test_what_only_a_multi_index_can_do_is_refused_without_one() -> None:
    with make("lsq") as index:
        index.set_subset(None)
        index.add(random(20, 55))
        query = random(1, 56)
        without: list[tuple[How, str]] = [
            ({"strategy": "subset"}, "strategy='subset'"),
            ({"distance": "score"}, "distance='score'"),
            ({"probes": 3}, "probes"),
            ({"candidates": 3}, "candidates"),
            ({"probes": 3, "candidates": 3}, "candidates needs a multi-index"),
        ]
        for how, cause in without:
            refused(partial(index.search, query, 3, **how), cause, "set_subset(", "'multi-index')", "has none")
        index.set_subset("multi-index")
        by_scan: list[tuple[How, str]] = [
            ({"strategy": "scan", "distance": "score"}, "distance='score'"),
            ({"strategy": "scan", "probes": 3}, "probes"),
            ({"strategy": "scan", "candidates": 3}, "candidates"),
        ]
        for how, cause in by_scan:
            refused(partial(index.search, query, 3, **how), "strategy='scan'", cause)
        refused(lambda: index.search(query, 3, distance="score", candidates=3), "candidates", "remove this option")
        refused(lambda: index.search(query, 3, strategy="lists"), "strategy='lists'", "subset")  # type: ignore[arg-type]
        numbers: How = {"probes": np.int64(4), "candidates": np.uint8(3)}
        assert index.explain(query, 3, **numbers).probes == 4


@pytest.mark.parametrize("bits", [3, 21, 0, -4, 8.0, "8", True])
def test_bits_of_a_table_are_four_to_twenty(bits: Any) -> None:
    refused(lambda: MultiIndex(bits=bits), "bits=", "whole number from 4 to 20")


def test_every_number_of_bits_from_four_to_twenty_serves() -> None:
    vectors = random(60, 57)
    with make("lsh") as index:
        index.add(vectors)
        wanted = answers(index.search(vectors[:3], 60))
        for bits in range(4, 21):
            index.set_subset(MultiIndex(bits=np.int64(bits)))  # type: ignore[arg-type]
            assert index.subset == MultiIndex(bits)
            stats = index.stats()
            assert (stats["tables"], stats["table_bits"]) == (-(-29 // bits), bits)
            assert answers(index.search(vectors[:3], 60, strategy="subset")) == wanted
            nearest = index.search(vectors[:3], 1, strategy="subset", distance="score")
            assert (nearest.ids.tolist(), nearest.distances.tolist()) == ([[0], [1], [2]], [[0], [0], [0]])


def test_tables_that_a_code_cannot_have_are_refused_and_nothing_changes() -> None:
    wrong: list[Any] = ["multi", "", 8, b"multi-index", ["multi-index"], MultiIndex]
    for subset in wrong:
        refused(partial(Index, DIM, subset=subset), "subset=", "'multi-index'", "MultiIndex(bits=")
    refused(
        lambda: Index(DIM, encoder="flat", subset="multi-index", keep_vectors=None),
        "which has no codes",
        "another encoder",
    )
    refused(
        lambda: Index(DIM, encoder="pq", bits=16, subset=MultiIndex(bits=8), keep_vectors=None),
        "bits=8",
        "not binary",
        "MultiIndex()",
    )
    refused(
        lambda: Index(64, encoder="lsh", bits=4 * 4097, subset=MultiIndex(bits=4), keep_vectors=None),
        "4097 tables",
        "more bits per table",
    )
    with make("lsh", subset=MultiIndex(bits=6), keep_vectors="float32") as index:
        vectors = random(300, 58)
        index.add(vectors)
        index.merge()
        before = answers(index.search(vectors[:3], 5, strategy="subset", distance="score"))
        refused(lambda: index.reencode("pq", bits=16), "bits=6", "not binary")
        refused(lambda: index.reencode("flat"), "which has no codes")
        refused(lambda: index.set_subset("lists"), "subset='lists'")  # type: ignore[arg-type]
        assert index.subset == MultiIndex(bits=6)
        assert answers(index.search(vectors[:3], 5, strategy="subset", distance="score")) == before
        # Tables of each dimension follow from a code that is not binary, and from the next one.
        index.set_subset("multi-index").reencode("pq", bits=16, field_bits=4)
        assert (index.subset, index.stats()["tables"]) == (MultiIndex(), 4)
        index.reencode("lsh", bits=29)
        assert index.subset == MultiIndex(bits=4)
        assert index.check() == []


@pytest.mark.filterwarnings("default::lsqindex.errors.NotHashingWarning")
def test_it_warns_of_codes_that_do_not_hash_when_it_is_asked_for(tmp_path: Path) -> None:
    remedy = "LSQ.*do not hash.*encoder='itq' or 'lsh', or subset='cells'"
    with pytest.warns(NotHashingWarning, match=remedy):
        index = Index(DIM, bits=29, iterations=2, subset="multi-index")
    with pytest.warns(NotHashingWarning, match=remedy):
        Index.create(tmp_path / "one.lsq", DIM, bits=29, iterations=2, subset=MultiIndex(bits=8)).close()
    plain = Index(DIM, bits=29, iterations=2)
    with pytest.warns(NotHashingWarning, match=remedy):
        plain.set_subset("multi-index")
    hashing = make("lsh", subset="multi-index", keep_vectors="float32")
    hashing.add(random(300, 59))
    with pytest.warns(NotHashingWarning, match=remedy):
        hashing.reencode("lsq", bits=29, iterations=2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for encoder in ({"encoder": "itq"}, {"encoder": "lsh"}, {"encoder": "lsq", "refine": 0, "scalar": None}):
            Index(DIM, bits=8, subset="multi-index", **encoder)
        # Once is enough: not when the index is opened, trained or filled.
        with Index.open(tmp_path / "one.lsq") as again:
            again.add(random(300, 60))
            again.train()
            again.set_subset(None)
        index.add(random(300, 60))
        hashing.set_subset(None).set_subset("cells").reencode("lsq", bits=30, iterations=2)


@pytest.mark.filterwarnings("error::lsqindex.errors.NotHashingWarning")
def test_that_warning_made_an_error_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "one.lsq"
    with pytest.raises(NotHashingWarning):
        Index.create(path, DIM, subset="multi-index")
    assert not path.exists()
    with make("lsh", subset="multi-index", keep_vectors="float32") as index:
        index.add(random(300, 61))
        with pytest.raises(NotHashingWarning):
            index.reencode("lsq", bits=29, iterations=2)
        assert index.encoder.name == "lsh"
    with make("lsq") as index:
        with pytest.raises(NotHashingWarning):
            index.set_subset("multi-index")
        assert index.subset == Cells()
