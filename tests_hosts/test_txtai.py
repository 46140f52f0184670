"""txtai: the checks of its own dense ANN tests, Embeddings from end to end, files, archives and what a crash leaves.

txtai's tests are neither in its wheel nor in its source archive, so that its standard checks of a backend are told
again here (``test_standard_*``): the same calls on the same sizes with the same expectations.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from txtai import Embeddings
from txtai.ann import ANN, ANNFactory

from lsqindex import Index, LsqIndexError
from lsqindex.hosts.txtai import LsqANN

Vectors = NDArray[np.float32]

BACKEND = "lsqindex.hosts.txtai.LsqANN"
DIM = 240

#: Settings under which the standard checks are run.
SETTINGS: list[dict[str, Any]] = [
    {},
    {"encoder": "flat"},
    {"encoder": "pq", "bits": 192, "keep_vectors": None},
    {"bits": 64, "keep_vectors": "int8", "rerank": 20, "threads": 1},
    {"encoder": "itq", "bits": 64, "subset": "multi-index", "strategy": "subset", "probes": 200},
    {"metric": "ip", "train_size": 100_000},
]


def unit(n: int, dim: int = DIM, seed: int = 0) -> Vectors:
    """Vectors of unit length, all numbers positive."""
    vectors = np.random.default_rng(seed).random((n, dim), np.float32)
    lengths: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


def make(settings: dict[str, Any] | None = None, **config: Any) -> LsqANN:
    ann = ANNFactory.create({"backend": BACKEND, BACKEND: settings or {}, "dimensions": DIM, **config})
    assert isinstance(ann, LsqANN)
    return ann


# -- txtai's standard checks of a backend -------------------------------------------------------


def standard(settings: dict[str, Any] | None = None) -> LsqANN:
    """A backend with 10,000 vectors."""
    ann = make(settings)
    ann.index(unit(10_000))
    return ann


def test_standard_name() -> None:
    ann = standard()
    assert isinstance(ann, ANN)
    assert ann.config["backend"] == BACKEND


def test_standard_save_close_load(tmp_path: Path) -> None:
    ann = standard()
    ann.save(str(tmp_path / "ann"))
    ann.close()
    ann.load(str(tmp_path / "ann"))
    assert ann.count() == 10_000


def test_standard_append() -> None:
    ann = standard()
    ann.append(unit(500, seed=1))
    assert ann.count() == 10_500


def test_standard_delete() -> None:
    ann = standard()
    ann.delete([0, 1])
    assert ann.count() == 9_998


def test_standard_delete_missing() -> None:
    ann = standard()
    ann.delete([100_000])
    assert ann.count() == 10_000


def test_standard_search() -> None:
    assert standard().search(unit(1, seed=2), 1)[0][0][1] > 0


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_standard_one_after_the_other(settings: dict[str, Any], tmp_path: Path) -> None:
    """The same checks of one index, under other settings."""
    ann = standard(settings)
    assert ann.search(unit(1, seed=2), 1)[0][0][1] > 0
    ann.save(str(tmp_path / "ann"))
    ann.close()
    ann.load(str(tmp_path / "ann"))
    assert ann.count() == 10_000
    ann.append(unit(500, seed=1))
    assert ann.count() == 10_500
    ann.delete([0, 1])
    assert ann.count() == 10_498
    ann.delete([100_000])
    assert ann.count() == 10_498
    assert ann.search(unit(1, seed=2), 1)[0][0][1] > 0


def test_standard_save_twice_and_elsewhere(tmp_path: Path) -> None:
    """As of its SQLite backend: save, save to the same path, delete, load, save to another path."""
    first, second = str(tmp_path / "ann"), str(tmp_path / "ann.new")
    ann = standard()
    ann.save(first)
    ann.save(first)
    ann.delete([0])
    ann.load(first)
    ann.save(second)
    assert ann.count() == 9_999


def test_standard_quantized_save_load_index(tmp_path: Path) -> None:
    """As of its GGML backend: 100 vectors; save, load, search, delete, save elsewhere, load, index anew."""
    ann, vectors = make(), unit(100, 256)
    ann.index(vectors)
    ann.save(str(tmp_path / "v1"))
    ann.load(str(tmp_path / "v1"))
    assert ann.search(unit(1, 256, seed=1), 1)[0][0][1] > 0
    assert ann.count() == 100
    ann.delete([0])
    assert ann.count() == 99
    ann.save(str(tmp_path / "v2"))
    ann.load(str(tmp_path / "v2"))
    ann.index(vectors)
    assert ann.count() == 100


def test_standard_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make().load(str(tmp_path / "absent"))


# -- the contract, as its sources tell ----------------------------------------------------------


def test_answers_are_those_of_the_default_backend() -> None:
    vectors, queries = unit(2_000, 64), unit(50, 64, seed=1)
    ours, theirs = make(), ANNFactory.create({"backend": "faiss", "dimensions": 64})
    for ann in (ours, theirs):
        ann.index(vectors)
        ann.append(queries[:10])
        ann.delete([3, 4, 5, 2_001])
    for found, expected in zip(ours.search(queries, 7), theirs.search(queries, 7), strict=True):
        assert [i for i, _ in found] == [i for i, _ in expected]
        np.testing.assert_allclose([score for _, score in found], [score for _, score in expected], atol=1e-6)


def test_answers_are_python_numbers_in_falling_order() -> None:
    ann = make()
    ann.index(unit(100))
    (found,) = ann.search(unit(1, seed=1), 10)
    assert all(type(i) is int and type(score) is float for i, score in found)
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)


def test_inner_products_of_vectors_of_any_length() -> None:
    ann = make({"metric": "ip"})
    ann.index(np.array([[1, 0], [3, 0], [0, 5]], np.float32))
    assert ann.search(np.array([[2, 0]], np.float32), 2) == [[(1, 6.0), (0, 2.0)]]


def test_limit_beyond_count() -> None:
    ann = make()
    ann.index(unit(3))
    assert [len(found) for found in ann.search(unit(2, seed=1), 10)] == [3, 3]
    ann.delete([0, 1, 2])
    assert ann.search(unit(2, seed=1), 10) == [[], []]


def test_offsets_are_not_used_again(tmp_path: Path) -> None:
    ann = make()
    ann.index(unit(5))
    ann.delete([4])
    ann.append(unit(2, seed=1))
    assert ann.config["offset"] == 7
    ann.save(str(tmp_path / "ann"))
    ann.load(str(tmp_path / "ann"))
    ann.append(unit(1, seed=2))
    assert ann.search(unit(1, seed=2), 1)[0][0][0] == 7


def test_offset_is_found_where_the_configuration_has_none(tmp_path: Path) -> None:
    ann, other = make(), make()
    ann.index(unit(5))
    ann.save(str(tmp_path / "ann"))
    other.load(str(tmp_path / "ann"))
    other.append(unit(1, seed=1))
    assert other.config["offset"] == other.count() == 6


def test_vectors_of_a_memory_map_that_goes_away(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", unit(20))
    ann = make()
    ann.index(np.load(tmp_path / "vectors.npy", mmap_mode="r"))
    (tmp_path / "vectors.npy").unlink()
    assert ann.search(unit(20)[7:8], 1)[0][0][0] == 7


def test_wrong_settings() -> None:
    with pytest.raises(LsqIndexError, match="bits"):
        make({"bits": -1}).index(unit(2))
    with pytest.raises(LsqIndexError, match="quantize"):
        make(quantize=1).index(unit(2))
    with pytest.raises(LsqIndexError, match="no index"):
        make().count()


# -- files --------------------------------------------------------------------------------------


def test_changes_are_in_the_file_when_they_return(tmp_path: Path) -> None:
    ann = make()
    ann.index(unit(10))
    ann.save(str(tmp_path / "ann"))
    ann.append(unit(5, seed=1))
    ann.delete([0])
    shutil.copy(tmp_path / "ann", tmp_path / "seen by another")
    with Index.open(tmp_path / "seen by another") as index:
        assert index.ids().tolist() == list(range(1, 15))


def test_what_was_never_saved_is_not_found_and_is_replaced(tmp_path: Path) -> None:
    ann = make()
    ann.index(unit(10))
    ann.save(str(tmp_path / "ann"))
    config = ann.config.copy()
    ann.append(unit(5, seed=1))  # and here the process ends
    ann.close()
    again = LsqANN(config)
    again.load(str(tmp_path / "ann"))
    assert again.count() == 10
    # As many as there are, though the nearest are those that were never saved.
    assert sorted(i for i, _ in again.search(unit(1, seed=1), 10)[0]) == list(range(10))
    assert len(again.search(unit(1, seed=1), 4)[0]) == 4
    again.append(unit(2, seed=2))
    assert again.count() == 12
    assert [found[0][0] for found in again.search(unit(2, seed=2), 1)] == [10, 11]


def test_what_another_has_saved_is_not_taken_for_unsaved(tmp_path: Path) -> None:
    path = str(tmp_path / "ann")
    ann = make()
    ann.index(unit(10))
    ann.save(path)
    one, other = LsqANN(ann.config.copy()), LsqANN(ann.config.copy())
    ann.close()
    one.load(path)
    other.load(path)
    other.append(unit(5, seed=1))
    other.save(path)
    with pytest.raises(LsqIndexError, match="load it again"):
        one.append(unit(1, seed=2))
    assert other.count() == 15
    one.config["offset"] = other.config["offset"]  # as txtai loads it with the file
    one.load(path)
    one.append(unit(1, seed=2))
    assert one.count() == 16


def test_scores_must_be_above_zero() -> None:
    with pytest.raises(LsqIndexError, match="'cosine' or 'ip'"):
        make({"metric": "l2"}).index(unit(3))


def test_save_replaces_a_file_of_another_backend(tmp_path: Path) -> None:
    path = str(tmp_path / "ann")
    other = ANNFactory.create({"backend": "faiss"})
    other.index(unit(10))
    other.save(path)
    ann = make()
    ann.index(unit(20))
    ann.save(path)
    ann.load(path)
    assert ann.count() == 20


def test_save_to_another_path_copies(tmp_path: Path) -> None:
    ann, copy = make(), make()
    ann.index(unit(10))
    ann.save(str(tmp_path / "ann"))
    ann.save(str(tmp_path / "copy"))
    ann.append(unit(1, seed=1))
    copy.load(str(tmp_path / "copy"))
    assert (ann.count(), copy.count()) == (11, 10)


# -- Embeddings ---------------------------------------------------------------------------------

TEXTS = [
    "a lake freezes from its edge",
    "the train to the coast is late",
    "bread needs flour water and time",
    "a late train is a cold train",
    "ice on the lake breaks in spring",
]


def embed(texts: list[str]) -> Vectors:
    """Words, counted in 256 places; no model is needed."""
    vectors = np.zeros((len(texts), 256), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
        for word in re.findall(r"\w+", text):
            vector[sum(word.encode()) % 256] += 1
    return vectors


@pytest.fixture
def embeddings() -> Callable[..., Embeddings]:
    def make_embeddings(**config: Any) -> Embeddings:
        return Embeddings(method="external", transform=embed, backend=BACKEND, **config)

    return make_embeddings


def load(path: Path | str) -> Embeddings:
    return Embeddings().load(str(path), config={"transform": embed})


def best(embeddings: Embeddings, query: str) -> Any:
    found = embeddings.search(query, 1)[0]
    return found["id"] if isinstance(found, dict) else found[0]


@pytest.mark.parametrize("content", [False, True])
def test_embeddings(embeddings: Callable[..., Embeddings], tmp_path: Path, content: bool) -> None:
    """Index, search, upsert, delete, save, load; with and without content in SQLite."""
    store = embeddings(content=content)
    store.index([(str(i), text) for i, text in enumerate(TEXTS)])
    assert store.count() == 5
    assert best(store, "flour and bread") == "2"
    store.upsert([("2", "stars need hydrogen"), ("5", "flour for a cake")])
    assert store.count() == 6
    assert best(store, "flour and bread") == "5"
    assert best(store, "hydrogen") == "2"
    assert store.delete(["5", "absent"]) == ["5"]
    store.save(str(tmp_path / "store"))
    store.close()

    loaded = load(tmp_path / "store")
    assert (loaded.count(), best(loaded, "hydrogen")) == (5, "2")
    loaded.upsert([("6", "a spring of cold water")])
    loaded.save(str(tmp_path / "store"))
    assert best(load(tmp_path / "store"), "cold spring water") == "6"


def test_embeddings_with_sql_and_reindex(embeddings: Callable[..., Embeddings], tmp_path: Path) -> None:
    store = embeddings(content=True)
    store.index([{"id": str(i), "text": text, "length": len(text)} for i, text in enumerate(TEXTS)])
    found = store.search("select id, text, score from txtai where similar('late train') and length > 28 limit 2")
    assert [row["id"] for row in found] == ["1"]
    assert found[0]["score"] > 0
    store.reindex(method="external", transform=embed, backend=BACKEND, **{BACKEND: {"encoder": "flat"}})
    assert store.ann.backend.encoder.name == "flat"
    assert best(store, "flour and bread") == "2"
    store.save(str(tmp_path / "store"))
    assert load(tmp_path / "store").ann.backend.encoder.name == "flat"


def test_embeddings_index_again_over_a_saved_one(embeddings: Callable[..., Embeddings], tmp_path: Path) -> None:
    store = embeddings()
    store.index(TEXTS)
    store.save(str(tmp_path / "store"))
    store.index(TEXTS[:2])
    assert load(tmp_path / "store").count() == 5
    store.save(str(tmp_path / "store"))
    assert load(tmp_path / "store").count() == 2


@pytest.mark.parametrize("ending", ["tar.gz", "tar.bz2", "zip"])
@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")  # txtai's own directory
def test_embeddings_in_an_archive(embeddings: Callable[..., Embeddings], tmp_path: Path, ending: str) -> None:
    path = str(tmp_path / f"store.{ending}")
    store = embeddings(content=True)
    store.index(TEXTS)
    store.save(path)
    store.upsert(["flour for a cake"])
    store.save(path)
    loaded = load(path)
    assert loaded.count() == 6
    loaded.upsert([("x", "hydrogen")])
    loaded.save(path)
    assert best(loaded.load(path, config={"transform": embed}), "hydrogen") == "x"
    loaded.close()


def test_embeddings_in_a_copied_directory(embeddings: Callable[..., Embeddings], tmp_path: Path) -> None:
    store = embeddings()
    store.index(TEXTS)
    store.save(str(tmp_path / "store"))
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    copy = load(tmp_path / "copy")
    copy.delete([0])
    assert (store.count(), copy.count()) == (5, 4)


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")
def test_embeddings_of_texts_without_a_word(embeddings: Callable[..., Embeddings]) -> None:
    """txtai divides their vectors by zero."""
    store = embeddings()
    store.index(["", *TEXTS])
    store.upsert([("x", "")])
    assert store.count() == 7
    assert store.search("", 3) == []
    assert best(store, "flour and bread") == 3
    assert len(store.search("a the on", 9)) < 6


def test_embeddings_with_subindexes_and_keywords(embeddings: Callable[..., Embeddings], tmp_path: Path) -> None:
    parts = {name: {"method": "external", "transform": embed, "backend": BACKEND} for name in ("one", "two")}
    store = Embeddings(content=True, keyword=True, defaults=False, indexes=parts)
    store.index([{"id": str(i), "text": text} for i, text in enumerate(TEXTS)])
    assert store.search("select id from txtai where similar('flour and bread', 'two') limit 1") == [{"id": "2"}]
