"""Automatic training that is repeated: when it is, when it is not, and codes that are rewritten step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, make_encoder
from lsqindex._storage.format.columns import CHUNK_ROWS
from lsqindex._storage.format.rows import Rows
from lsqindex._storage.store import Store
from lsqindex._write import retraining
from lsqindex.encoders import lsq_scalar

DIM, TOPICS, EACH = 24, 12, 500
OPTIONS: dict[str, Any] = {"bits": 48, "iterations": 3, "keep_vectors": "float32", "train_size": 1000}
Vectors = NDArray[np.float32]


def topics(n: int = EACH, first: int = 0, count: int = TOPICS) -> list[Vectors]:
    """Vectors of some topics, ``n`` of each: each topic varies in directions of its own."""
    made = []
    for topic in range(first, first + count):
        rng = np.random.default_rng(topic)
        centre, directions = 3 * rng.standard_normal(DIM), rng.standard_normal((6, DIM))
        noise = rng.standard_normal((n, 6)) @ directions + 0.2 * rng.standard_normal((n, DIM))
        made.append((centre + noise).astype(np.float32))
    return made


def filled(blocks: list[Vectors], **options: Any) -> Index:
    index = Index(DIM, **{**OPTIONS, **options})
    for block in blocks:
        index.add(block)
    return index


def recall(index: Index, vectors: Vectors) -> float:
    """Of codes alone; queries are other vectors of the same topics."""
    queries = np.concatenate([block[EACH:] for block in topics(EACH + 25)])
    distances = np.square(vectors).sum(axis=1) - 2 * queries @ vectors.T
    nearest = np.argsort(distances, axis=1)[:, :10]
    found = vectors[index.search(queries, 10, rerank=0).ids]
    hits = (found[:, :, None] == vectors[nearest][:, None]).all(axis=3).any(axis=2)
    return float(hits.mean())


def codes_are_right(index: Index) -> None:
    """The codes of all rows, and those rewritten so far, are what the encoders make of the vectors."""
    with index._reader() as reader:
        store, coder = Store(reader, index._options), index._coder(reader)
        living = store.living()
        vectors = index.get(store.ids_of(living))
        assert np.array_equal(store.codes().gather(living), coder.encode(vectors, 1))
        following, column = retraining.next_coder(reader, coder), store.next_codes()
        if following is not None and column is not None:
            done = living < reader.state.recoded
            rewritten = Rows(column, reader).gather(living[done])
            assert np.array_equal(rewritten, following.encode(vectors[done], 1))
    assert index.check() == []


def rewritten(index: Index) -> float | None:
    told = index.stats()["training"]
    return None if told is None else told["rewritten"]


def step(index: Index) -> None:
    """Go on with a rewriting, by an add of nothing."""
    index.add(np.empty((0, DIM), np.float32))


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Index:
    """An index whose codes are being rewritten, more than a chunk of rows."""
    monkeypatch.setattr(retraining, "_STEP", 40)
    monkeypatch.setattr(retraining, "_STEP_SHARE", 0)
    index = Index.create(tmp_path / "index.lsq", DIM, **{**OPTIONS, "train_size": 3000})
    index.add(np.concatenate(topics(3000, 0, 1)))
    index.add(np.concatenate(topics(500, 1, 4)))
    share = rewritten(index)
    assert share is not None and 0 < share < 0.1
    codes_are_right(index)
    return index


# -- when -----------------------------------------------------------------------------------------


def test_the_order_of_adding_does_not_matter() -> None:
    blocks = topics()
    vectors = np.concatenate(blocks)
    on_all, on_some = (Index(DIM, **OPTIONS).train(sample) for sample in (vectors, vectors[:1000]))
    by_topic = filled(blocks)
    by_topic.merge()  # the rest of a rewriting that is not finished
    for index in (on_all, on_some):
        index.add(vectors)
    wanted = recall(on_all, vectors)
    assert wanted > 0.5 and recall(on_some, vectors) < wanted - 0.2
    assert recall(by_topic, vectors) > wanted - 0.02
    codes_are_right(by_topic)


def test_vectors_of_one_kind_are_trained_on_once() -> None:
    vectors = np.random.default_rng(0).permutation(np.concatenate(topics()))
    index = filled([vectors[:4000], *np.split(vectors[4000:], 20)])
    told = index.stats()["training"]
    assert (told["vectors"], told["sampled"], told["rewritten"], told["outdated"]) == (4000, 4000, None, False)
    assert told["now"] < 1.03 * told["error"] and told["now"] != told["error"]  # it was looked at again


def test_a_small_sample_is_outgrown() -> None:
    vectors = np.random.default_rng(0).permutation(np.concatenate(topics()))
    index = filled([vectors[:300], *np.split(vectors[300:], 57)], train_size=300)
    index.merge()
    told = index.stats()["training"]
    assert told["sampled"] > 1000
    assert told["error"] < 0.95 * retraining.error_of(_trained_on(vectors[:300]), vectors)


def _trained_on(vectors: Vectors) -> Any:
    index = filled([vectors], train_size=len(vectors))
    with index._reader() as reader:
        return index._coder(reader)


def test_vectors_that_are_all_replaced_are_trained_on_again() -> None:
    first, second = np.concatenate(topics(200)), np.concatenate(topics(200, 100))
    index = filled([first])
    before = index.stats()["training"]["error"]
    for ids in np.split(np.arange(len(first)), 10):
        index.add(second[ids], ids=ids, upsert=True)
    index.merge()
    told = index.stats()["training"]
    assert len(index) == len(first) and index.stats()["training"]["vectors"] == len(first)
    assert told["error"] < 2 * before and not told["outdated"]
    codes_are_right(index)


def test_vectors_that_are_easy_to_code_but_coded_badly_are_trained_on_again() -> None:
    """Their error is below the one to expect of the first ones, and far above that of an encoder that has seen them."""
    rng = np.random.default_rng(0)
    hard = rng.standard_normal((4000, DIM)).astype(np.float32)
    easy = (rng.standard_normal((4000, 4)) @ rng.standard_normal((4, DIM))).astype(np.float32)
    easy += 8 * rng.standard_normal(DIM).astype(np.float32)
    index = filled([hard])
    before = index.stats()["training"]["error"]
    for first in range(0, 4000, 250):
        index.add(easy[first : first + 250], np.arange(first, first + 250), upsert=True)
    index.merge()
    with index._reader() as reader:
        error = retraining.error_of(index._coder(reader), easy)
    assert error < 1.2 * retraining.error_of(_trained_on(easy), easy) < before
    codes_are_right(index)


def test_no_code_is_better_than_the_ideal_one() -> None:
    rng = np.random.default_rng(0)
    for scale, least in ((np.ones(DIM), 0.4), (0.9 ** np.arange(DIM), 0.05)):
        vectors = (rng.standard_normal((4000, DIM)) * scale).astype(np.float32)
        coder = _trained_on(vectors)
        ideal = retraining.ideal_error(coder, vectors)
        assert least < ideal / retraining.error_of(coder, vectors) < 1
        assert retraining.ideal_error(coder, vectors[:1000]) == 0  # too few to tell
        assert retraining.ideal_error(coder, 3 * vectors) == pytest.approx(ideal)
    assert retraining.ideal_error(coder, np.zeros((2000, DIM), np.float32)) == 0


def test_an_encoder_that_would_be_no_better_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retraining, "_DRIFT", 0.0)
    vectors = np.random.default_rng(0).permutation(np.concatenate(topics()))
    index = filled([vectors[:4000], vectors[4000:]])
    told = index.stats()["training"]
    assert told["rewritten"] is None and told["vectors"] == 4000
    assert told["error"] >= told["now"]  # what is to be expected from now on


def test_without_kept_vectors_the_index_tells_that_its_encoder_is_outdated() -> None:
    index = filled(topics(), keep_vectors=None)
    told = index.stats()["training"]
    assert told["outdated"] and told["now"] > 1.03 * told["error"] and told["rewritten"] is None
    assert (told["vectors"], told["sampled"]) == (1000, 1000)
    assert index.check() == []


def test_what_the_user_trained_is_never_trained_again(half: Index) -> None:
    blocks = topics()
    fitted = make_encoder("lsq", bits=48, iterations=3).fit(blocks[0])
    for index in (
        _with_encoder(fitted, blocks),
        _trained_first(blocks),
    ):
        assert index.stats()["training"] is None
        before = index.encoder
        index.add(topics(2000, 50, 1)[0])
        assert index.stats()["training"] is None and index.encoder is before
    generation = half.encoder
    changes: list[Callable[[], Index]] = [
        half.train,
        lambda: half.reencode("lsh", bits=32),
        lambda: half.reencode(fitted),
    ]
    for change in changes:
        change()
        assert half.stats()["training"] is None and half.encoder is not generation
        codes_are_right(half)


def _with_encoder(encoder: Any, blocks: list[Vectors]) -> Index:
    index = Index(DIM, encoder=encoder, keep_vectors="float32")
    for block in blocks:
        index.add(block)
    return index


def _trained_first(blocks: list[Vectors]) -> Index:
    index = Index(DIM, **OPTIONS).train(blocks[0])
    for block in blocks:
        index.add(block)
    return index


def test_a_batch_trains_and_trains_again() -> None:
    index = Index(DIM, **OPTIONS)
    for block in topics():
        with index.batch() as batch:
            batch.add(block)
    told = index.stats()["training"]
    assert told["vectors"] > 1000 or told["rewritten"] is not None
    index.merge()
    assert rewritten(index) is None and index.stats()["training"]["vectors"] > 1000
    codes_are_right(index)


def test_training_again_that_fails_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(topics(1000, 0, 1))

    def fail(*args: Any, **options: Any) -> Any:
        raise ValueError("the encoder has a mistake")

    monkeypatch.setattr(type(index.encoder), "_fit", fail)
    with pytest.warns(RuntimeWarning, match="has a mistake"):
        index.add(topics(500, 1, 1)[0])
    assert len(index) == 1500 and rewritten(index) is None and index.check() == []
    index.add(topics(10, 2, 1)[0])  # not tried again at once
    assert len(index) == 1510


# -- rewriting ------------------------------------------------------------------------------------


def test_an_add_rewrites_in_proportion_to_what_it_adds(monkeypatch: pytest.MonkeyPatch, half: Index) -> None:
    monkeypatch.setattr(retraining, "_STEP_SHARE", 4)
    done: list[int] = []
    encoder, block = half.encoder, topics(25, 2, 1)[0]
    while (share := rewritten(half)) is not None:
        assert half.encoder is encoder
        done.append(round(share * half.stats()["vectors"]))
        half.add(block)
    steps = np.diff(done)
    assert len(steps) > 10 and (steps == 40 + 4 * 25).all()
    codes_are_right(half)


def test_answers_stay_as_they_are_until_the_switch(half: Index) -> None:
    queries = np.concatenate(topics(5))
    before = half.search(queries, 7, rerank=0)
    again = Index.open(str(half.path), read_only=True)
    while rewritten(half) is not None:
        for index in (half, again):
            found = index.search(queries, 7, rerank=0)
            assert np.array_equal(found.ids, before.ids) and np.array_equal(found.distances, before.distances)
        step(half)
    for index in (half, again):
        assert not np.array_equal(index.search(queries, 7, rerank=0).distances, before.distances)
        codes_are_right(index)
    again.close()


def test_every_add_goes_on_with_it(half: Index) -> None:
    def shares() -> Any:
        yield rewritten(half)
        half.add(topics(3, 3, 1)[0])
        yield rewritten(half)
        half.add(topics(3, 3, 1)[0], ids=[5, 6, 7], upsert=True)
        yield rewritten(half)
        with half.batch() as batch:
            batch.add(topics(3, 4, 1)[0])
            batch.delete([20])
        yield rewritten(half)
        half.add(iter([topics(3, 4, 1)[0]]))
        yield rewritten(half)

    found = list(shares())
    assert found == sorted(found) and len(set(found)) == len(found)
    codes_are_right(half)


def test_other_changes_leave_it_where_it_is(half: Index) -> None:
    def recoded() -> int:
        with half._reader() as reader:
            return reader.state.recoded if reader.state.next_generation else -1

    before = recoded()
    half.delete([9, 10, 123_456])
    half.set_payloads([11], [{"text": "x"}])
    assert recoded() == before > 0
    codes_are_right(half)
    step(half)
    assert recoded() > before
    codes_are_right(half)


@pytest.mark.parametrize("where", ["rewritten", "reached", "ahead"])
def test_a_chunk_that_is_given_back_is_gone_from_both_generations(half: Index, where: str) -> None:
    half.add(np.concatenate(topics(1000, 5, 4)))
    steps = {"rewritten": CHUNK_ROWS // 40 + 5, "reached": 5, "ahead": 5}[where]
    for _ in range(steps):
        step(half)
    first = CHUNK_ROWS if where == "ahead" else 0
    half.delete(np.arange(first, first + 1500))
    assert half.stats()["deleted"] < 1500 and rewritten(half) is not None
    codes_are_right(half)
    half.merge()
    assert rewritten(half) is None
    codes_are_right(half)


def test_everything_deleted(half: Index) -> None:
    half.delete(half.ids())
    assert half.check() == []
    half.merge()
    assert half.check() == [] and rewritten(half) is None
    half.add(topics(30, 0, 1)[0])
    codes_are_right(half)


def test_a_copy_begins_again_with_the_same_encoder(half: Index, tmp_path: Path) -> None:
    half.delete(np.arange(0, 900, 2))
    half.save(tmp_path / "copy.lsq")
    half.compact()
    with Index.open(tmp_path / "copy.lsq") as copy:
        for index in (copy, half):
            assert rewritten(index) == 0
            codes_are_right(index)
            index.merge()
            assert rewritten(index) is None and not index.stats()["training"]["outdated"]
            codes_are_right(index)
        assert copy.encoder.state.keys() == half.encoder.state.keys()
        for name, array in copy.encoder.state.items():
            assert np.array_equal(array, half.encoder.state[name])


def test_a_copy_looks_again_after_as_many_rows_as_the_index_would(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).permutation(np.concatenate(topics()))
    index = Index.create(tmp_path / "index.lsq", DIM, **OPTIONS)
    index.add(vectors[:3000])
    index.delete(np.arange(1000))
    index.compact()
    told = index.stats()["training"]
    index.add(vectors[3000:3280])
    assert index.stats()["training"] == told
    index.add(vectors[3280:3290])
    assert index.stats()["training"]["now"] != told["now"]


def test_a_rewriting_that_was_dropped_leaves_nothing_to_the_next(monkeypatch: pytest.MonkeyPatch, half: Index) -> None:
    """Both have the same number, and codes of the same size: what is known of the first must not be believed."""
    for _ in range(3):
        with half._writer() as writer:
            number = writer.state.next_generation
            writer.run(lambda writer: Store(writer, half._options).drop_next())
            writer.commit()
        assert half.check() == [] and rewritten(half) is None
        monkeypatch.setattr(retraining, "_DRIFT", -1.0)
        with half._writer() as writer:
            coder = half._coder(writer)
            writer.commit()
            retraining.review(writer, half._options, coder)
        assert rewritten(half) == 0
        with half._reader() as reader:
            assert reader.state.next_generation == number
        half.add(topics(3, 7, 1)[0])
        codes_are_right(half)
    half.merge()
    codes_are_right(half)


def test_posting_lists_are_made_of_the_new_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(topics(2000), encoder="itq", bits=16, subset="multi-index")
    index.merge()
    assert index.stats()["training"]["vectors"] > 1000 and index.stats()["fresh"] == 0
    codes_are_right(index)
    queries = np.concatenate(topics(3))
    everything = index.search(queries, 5, probes=1 << 16, candidates=len(index), rerank=0)
    assert np.array_equal(everything.ids, index.search(queries, 5, strategy="scan", rerank=0).ids)


def test_a_large_add_is_trained_on_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from lsqindex._write import add as loader

    for module in (loader, retraining):
        monkeypatch.setattr(module, "COMMIT_BYTES", 1 << 15)
    index = filled([topics(1000, 0, 1)[0], np.concatenate(topics(1000, 1, 5))])
    told = index.stats()["training"]
    assert (told["vectors"], told["rewritten"], told["outdated"]) == (6000, None, False)
    codes_are_right(index)


# -- the encoder's own sample ---------------------------------------------------------------------


def test_the_row_scalar_is_learned_from_all_of_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample is in the order in which its vectors were added: its first rows may be of one topic."""
    seen: list[Vectors] = []
    find = lsq_scalar._neighbours

    def spy(vectors: Vectors, asked: NDArray[np.intp]) -> NDArray[np.intp]:
        seen.append(vectors)
        return find(vectors, asked)

    monkeypatch.setattr(lsq_scalar, "AMONG", 300)
    monkeypatch.setattr(lsq_scalar, "_neighbours", spy)
    first, second = np.zeros((600, 4), np.float32), np.ones((600, 4), np.float32)
    first += np.random.default_rng(0).random((600, 4), np.float32) / 10
    make_encoder("lsq", bits=16, iterations=1).fit(np.concatenate([first, second + first]))
    # Vectors are centred, and the first axis tells one half of them from the other.
    assert len(seen[0]) == 300 and 100 < (seen[0][:, 0] > 0).sum() < 200
