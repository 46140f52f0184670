"""Every error a user of an index can cause: typed, told with cause and remedy, and without a trace in the index."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lsqindex
from lsqindex import Encoder, Index, LsqIndexError, make_encoder
from lsqindex.encoders import Layout
from lsqindex.errors import (
    ClosedError,
    DuplicateIdError,
    IdError,
    IndexExistsError,
    IndexMissingError,
    NotAnIndexError,
    NoVectorsError,
    ParameterError,
    ReadOnlyError,
    StorageError,
    TooFewVectorsError,
    UnknownEncoderError,
    UnknownIdError,
    VectorError,
)

HOME = Path(lsqindex.__file__).parents[1]
VECTORS: NDArray[np.float32] = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
TWO = VECTORS[:2]


@dataclass
class Seen:
    """All that can be seen of an index."""

    count: int
    ids: list[Any]
    found: list[Any]
    vectors: NDArray[np.float32]
    trained: bool

    @classmethod
    def of(cls, index: Index) -> Seen:
        assert index.check() == []
        found = index.search(VECTORS[:5], 6)
        ids = index.ids()
        names = ids.tolist() if isinstance(ids, np.ndarray) else ids
        answer = [found.ids.tolist(), found.distances.tolist()]
        return cls(len(index), names, answer, index.get(names), index.is_trained)

    def assert_same(self, index: Index) -> None:
        now = Seen.of(index)
        assert (now.count, now.ids, now.found, now.trained) == (self.count, self.ids, self.found, self.trained)
        assert np.array_equal(now.vectors, self.vectors)


def refused(
    kind: type[LsqIndexError], built_in: type[Exception], words: tuple[str, ...], action: Callable[[], object]
) -> str:
    """The message of ``action``'s error, which is exactly of ``kind``, also a ``built_in``, and has all ``words``."""
    with pytest.raises(LsqIndexError) as caught:
        action()
    message = str(caught.value)
    assert type(caught.value) is kind, f"{type(caught.value).__name__}: {message}"
    assert isinstance(caught.value, built_in)
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"
    assert "np." not in message, "values are shown as a user writes them"
    return message


@pytest.fixture(params=["int", "str"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["untrained", "trained"])
def index(request: pytest.FixtureRequest, kind: Any, tmp_path: Path) -> Iterator[Index]:
    """An index of sixty vectors with ids 0 … 59, or "0" … "59"."""
    size = 50 if request.param == "trained" else 10_000
    path = tmp_path / "index.lsq"
    with Index.create(path, 4, encoder="lsh", bits=32, train_size=size, ids=kind, keep_vectors="float16") as made:
        made.add(VECTORS, ids=names(range(60), kind))
        assert made.is_trained == (request.param == "trained")
        yield made


def names(numbers: Any, kind: str) -> list[Any]:
    return [str(number) for number in numbers] if kind == "str" else list(numbers)


# -- vectors ----------------------------------------------------------------------------------------

BAD_VECTORS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "three dimensions": (VECTORS[None], ("(n, dim)", "(1, 60, 4)")),
    "another dim": (np.zeros((2, 5)), ("4 dimensions", "got 5")),
    "no dim": (np.zeros((2, 0)), ("dimension",)),
    "a number": (3, ("(n, dim)",)),
    "nothing": (None, ("(n, dim)",)),
    "ragged": ([[1, 2, 3, 4], [5]], ("rows of equal length",)),
    "strings": ([["a", "b", "c", "d"]], ("numbers are needed", "strings", "convert")),
    "objects": (np.array([[None] * 4]), ("numbers are needed", "got None in row 0", "convert")),
    "complex": (np.zeros((1, 4), complex), ("numbers are needed", "complex128")),
    "dates": (np.zeros((1, 4), "M8[s]"), ("numbers are needed",)),
    "nan": (np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]]), ("row 1", "NaN", "drop, repair")),
    "infinite": (np.array([[0, 0, 0, -np.inf]]), ("row 0", "infinite")),
    "too large": (np.array([[1e16, 0, 0, 0]]), ("row 0", "1e+15", "scale")),
    "beyond float32": (np.array([[1e300, 0, 0, 0]]), ("row 0", "1e+15", "scale")),
}


@pytest.mark.parametrize("case", BAD_VECTORS)
def test_bad_vectors(case: str, index: Index, kind: str) -> None:
    vectors, words = BAD_VECTORS[case]
    before = Seen.of(index)
    ids = names(range(100, 100 + (len(vectors) if hasattr(vectors, "__len__") else 1)), kind)
    refused(VectorError, ValueError, ("vectors", *words), lambda: index.add(vectors, ids=ids))
    refused(VectorError, ValueError, ("vectors", *words), lambda: index.add(vectors, ids=ids, upsert=True))
    refused(VectorError, ValueError, ("vectors", *words), lambda: index.add(iter([(vectors, ids)])))
    refused(VectorError, ValueError, ("queries", *words), lambda: index.search(vectors))
    if vectors is not None:
        many = np.concatenate([vectors] * 60) if isinstance(vectors, np.ndarray) else vectors
        with pytest.raises(VectorError):
            index.train(many)
        with pytest.raises(VectorError):
            index.reencode("itq", bits=4, vectors=many)
    with index.batch() as batch:
        refused(VectorError, ValueError, ("vectors", *words), lambda: batch.add(vectors, ids=ids))
    before.assert_same(index)


def test_one_vector_needs_two_dimensions_to_be_added(index: Index, kind: str) -> None:
    refused(VectorError, ValueError, ("(n, dim)", "vector[None, :]"), lambda: index.add(VECTORS[0], names([99], kind)))
    assert len(index) == 60


def test_a_sparse_matrix_is_refused() -> None:
    sparse = pytest.importorskip("scipy.sparse").csr_matrix(VECTORS)
    index = Index(4, keep_vectors=None)
    refused(VectorError, ValueError, ("vectors",), lambda: index.add(sparse))
    refused(VectorError, ValueError, ("queries",), lambda: index.search(sparse))
    assert len(index) == 0


def test_an_array_of_another_library_is_converted() -> None:
    """Tensors have a dtype that NumPy does not know, and can be converted."""

    class Tensor:
        shape, dtype = VECTORS.shape, "tensor.float32"

        def __getitem__(self, where: Any) -> Any:
            raise TypeError("not like NumPy")

        def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
            return np.array(VECTORS, dtype)

    index = Index(4, keep_vectors=None)
    tensor: Any = Tensor()
    index.add(tensor)
    assert np.array_equal(index.get(np.arange(60)), VECTORS)
    assert index.search(tensor, 1).ids[:, 0].tolist() == list(range(60))


def test_numbers_beyond_float16_are_kept_by_the_scale_of_their_row(index: Index, kind: str) -> None:
    big = np.array([[1, 2, 3, 4], [1, 2, 70_000, 4]])
    index.add(big, ids=names([98, 99], kind))
    np.testing.assert_allclose(index.get(names([98, 99], kind)), big, atol=70_000 * 2.0**-11)
    assert index.search(big, 1, rerank=100).ids[:, 0].tolist() == names([98, 99], kind)


# -- ids --------------------------------------------------------------------------------------------

BAD_INT_IDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "too few": ([100], ("2 are needed", "got 1")),
    "none at all": ([], ("2 are needed", "got 0")),
    "floats": ([100.0, 101.0], ("whole numbers", "100.0")),
    "None": ([None, 100], ("whole numbers", "None")),
    "bools": ([True, False], ("whole numbers", "True")),
    "mixed": ([100, "a"], ("whole numbers", "ids='str'")),
    "strings": (["a", "b"], ("whole numbers", "'a'", "ids='str'")),
    "two dimensions": ([[100], [101]], ("flat", "(2, 1)")),
    "minus one": ([-1, 100], ("-1", "nothing found")),
    "beyond 63 bits": (np.array([100, 2**63], np.uint64), (str(2**63), "fit")),
    "beyond 64 bits": ([100, 2**70], (str(2**70), "fit")),
    "just beyond": ([2**63, 100], (str(2**63), "fit")),
    "ragged": ([[1], [2, 3]], ("ids",)),
}
BAD_STR_IDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "none": (None, ("string ids", "pass one for each")),
    "too few": (["x"], ("2 are needed", "got 1")),
    "one string": ("xy", ("2 are needed", "got 1")),
    "ints": ([100, 101], ("strings are needed", "100", "ids='str'")),
    "None": (["x", None], ("strings are needed", "None")),
    "mixed": (["x", 1], ("strings are needed", "1")),
    "bytes": ([b"x", b"y"], ("strings are needed", "b'x'")),
    "two dimensions": (np.array([["x"], ["y"]]), ("flat", "(2, 1)")),
    "a number": (100, ("string", "int")),
    "too long": (["x" * 481, "y"], ("480 bytes", "481", "digest")),
    "too long in UTF-8": (["é" * 241, "y"], ("480 bytes", "482", "digest")),
    "half a character": (["\ud800", "y"], ("surrogate", "UTF-8")),
}


@pytest.mark.parametrize("kind", ["int"], indirect=True)
@pytest.mark.parametrize("case", BAD_INT_IDS)
def test_bad_int_ids(case: str, index: Index) -> None:
    ids, words = BAD_INT_IDS[case]
    check_bad_ids(index, ids, words)


@pytest.mark.parametrize("kind", ["str"], indirect=True)
@pytest.mark.parametrize("case", BAD_STR_IDS)
def test_bad_str_ids(case: str, index: Index) -> None:
    ids, words = BAD_STR_IDS[case]
    check_bad_ids(index, ids, words)


def check_bad_ids(index: Index, ids: Any, words: tuple[str, ...]) -> None:
    before = Seen.of(index)
    refused(IdError, ValueError, ("ids", *words), lambda: index.add(TWO, ids=ids))
    refused(IdError, ValueError, ("ids", *words), lambda: index.add(TWO, ids=ids, upsert=True))
    with index.batch() as batch:
        refused(IdError, ValueError, ("ids", *words), lambda: batch.add(TWO, ids=ids))
    before.assert_same(index)


def test_ids_of_a_wrong_kind_elsewhere(index: Index, kind: str) -> None:
    before = Seen.of(index)
    for wrong in ([1.5], [None, 2.5], b"a", [["1"]], {"lang": "en"}, "a" if kind == "int" else 1):
        uses = (index.get, index.payloads, lambda ids: index.set_payloads(ids, [None]))
        filtered: tuple[Callable[[Any], Any], ...] = (
            index.delete,
            index.ids,
            lambda ids: index.search(TWO, filter=ids),
        )
        # (As a filter a mapping is a condition on payloads.)
        for use in (*uses, *(() if isinstance(wrong, dict) else filtered)):
            with pytest.raises(IdError) as caught:
                use(wrong)
            assert str(caught.value)
    before.assert_same(index)


def test_an_id_twice_and_an_id_that_exists(index: Index, kind: str) -> None:
    before = Seen.of(index)
    twice, known = names([100, 100], kind), names([100, 7], kind)
    words: tuple[str, ...] = (repr(twice[0]), "more than once")
    for upsert in (False, True):
        refused(DuplicateIdError, ValueError, words, lambda: index.add(TWO, ids=twice, upsert=upsert))  # noqa: B023
    words = (repr(known[1]), "already", "upsert=True", "delete(ids)")
    message = refused(DuplicateIdError, ValueError, words, lambda: index.add(TWO, ids=known))
    assert "are 1 of" not in message, "one of them: not a plural"
    refused(DuplicateIdError, IdError, words, lambda: index.add(iter([(TWO, known)])))
    with index.batch() as batch:
        refused(DuplicateIdError, ValueError, words, lambda: batch.add(TWO, ids=known))
    before.assert_same(index)


def test_ids_beside_an_iterator(index: Index, kind: str) -> None:
    words = ("iterator", "pairs (vectors, ids)")
    refused(IdError, ValueError, words, lambda: index.add(iter([TWO]), ids=names([100, 101], kind)))
    assert len(index) == 60


def test_unknown_ids(index: Index, kind: str) -> None:
    unknown = names([100, 101], kind)
    known = names([3], kind)
    for ids in (unknown[0], unknown[:1], [*known, *unknown]):
        refused(UnknownIdError, KeyError, (repr(unknown[0]), "not in the index"), lambda: index.get(ids))  # noqa: B023
    assert "2 of 3" in refused(UnknownIdError, KeyError, (), lambda: index.get([*known, *unknown]))
    assert index.delete(unknown) == 0
    assert unknown[0] not in index


# -- searching --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": 0}, ("k=0", "whole number from 1")),
        ({"k": -3}, ("k=-3", "whole number from 1")),
        ({"k": 2.0}, ("k=2.0", "whole number")),
        ({"k": "3"}, ("k='3'", "whole number")),
        ({"k": None}, ("k=None", "whole number")),
        ({"k": True}, ("k=True", "whole number")),
        ({"k": 2**80}, ("whole number",)),
        ({"rerank": -1}, ("rerank=-1", "whole number from 0")),
        ({"rerank": 1.5}, ("rerank=1.5", "whole number")),
        ({"rerank": "all"}, ("rerank='all'", "whole number")),
        ({"strategy": "full"}, ("strategy='full'", "auto, scan or subset")),
        ({"strategy": None}, ("strategy=None", "auto, scan or subset")),
        ({"strategy": "subset"}, ("strategy='subset'", "subset structure", "set_subset", "scan")),
        ({"distance": "score"}, ("distance='score'", "multi-index", "set_subset")),
        ({"probes": 5, "candidates": 9}, ("probes and candidates", "multi-index", "set_subset")),
        ({"distance": "exact"}, ("distance='exact'", "auto, symmetric, asymmetric or score")),
        ({"threads": 0}, ("threads=0", "whole number from 1")),
    ],
)
def test_search_parameters(index: Index, options: dict[str, Any], words: tuple[str, ...]) -> None:
    refused(ParameterError, ValueError, words, lambda: index.search(TWO, **options))


# -- creating and opening ---------------------------------------------------------------------------


class Nameless(Encoder):
    """An encoder that was never registered."""

    config = property(lambda self: {})

    def _make_layout(self, dim: int) -> Layout:
        return Layout.of_floats(dim)

    _fit = _state = _restore = _encode = _decode = _embed = _tables = lambda self, *rest: None  # type: ignore[assignment]


BAD_OPTIONS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"dim": 0}, ("dim=0", "whole number from 1")),
    ({"dim": -4}, ("dim=-4",)),
    ({"dim": 4.0}, ("dim=4.0",)),
    ({"dim": "4"}, ("dim='4'",)),
    ({"dim": True}, ("dim=True",)),
    ({"dim": 2**70}, ("dim=", "whole number")),
    ({"metric": "euclid"}, ("metric='euclid'", "l2, cosine, ip")),
    ({"metric": None}, ("metric=None", "l2, cosine, ip")),
    ({"keep_vectors": "f2"}, ("keep_vectors='f2'", "None, 'float16', 'float32' or 'int8'")),
    ({"keep_vectors": True}, ("keep_vectors=True", "None")),
    ({"ids": "uuid"}, ("ids='uuid'", "'int' or 'str'")),
    ({"train_size": 0}, ("train_size=0",)),
    ({"train_size": 0.5}, ("train_size=0.5",)),
    ({"encoder": "kmeans", "bits": 8, "train_size": 255}, ("train_size=255", "256")),
    ({"encoder": "lsh", "bit": 8}, ("'lsh'", "no 'bit'", "bits")),
    ({"encoder": "itq", "bits": 5}, ("bits=5", "4 dimensions", "bits=4")),
    ({"encoder": "pq", "bits": 64}, ("bits=64", "4 dimensions", "bits=32")),
    ({"encoder": "lsq", "bits": 0}, ("bits=0",)),
    ({"encoder": "lsq", "bits": "8"}, ("bits='8'",)),
    ({"encoder": make_encoder("lsh", bits=8), "bits": 8}, ("parameters go with an encoder's name",)),
    ({"encoder": make_encoder("lsh", bits=8).fit(np.ones((9, 3)))}, ("3 dimensions", "has 4")),
    ({"encoder": Nameless()}, ("register",)),
    ({"encoder": None}, ("encoder=None", "a name or an Encoder")),
    ({"encoder": ["lsq"]}, ("encoder=['lsq']", "a name or an Encoder")),
]


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS, ids=[str(options)[:60] for options, _ in BAD_OPTIONS])
def test_options_of_a_new_index(options: dict[str, Any], words: tuple[str, ...], tmp_path: Path) -> None:
    chosen = {"dim": 4, **options}
    refused(ParameterError, ValueError, words, lambda: Index(**chosen))
    refused(ParameterError, ValueError, words, lambda: Index.create(tmp_path / "index.lsq", **chosen))
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize(("name", "near"), [("lsqq", "'lsq'"), ("ITQ", "'itq'"), ("kmean", "'kmeans'"), ("zzzzzz", "")])
def test_an_unknown_encoder(name: Any, near: str, tmp_path: Path) -> None:
    words = (repr(name), near, "did you mean" if near else "", "ckmeans, flat, itq", "installed")
    refused(UnknownEncoderError, KeyError, words, lambda: Index(4, encoder=name, keep_vectors=None))
    refused(
        UnknownEncoderError,
        KeyError,
        words,
        lambda: Index.create(tmp_path / "index.lsq", 4, encoder=name, keep_vectors=None),
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wait", [None, "yes", -1, float("nan")])
def test_wait(wait: Any, tmp_path: Path) -> None:
    path = tmp_path / "index.lsq"
    words = (f"wait={wait!r}", "True, False", "seconds")
    refused(ParameterError, ValueError, words, lambda: Index.create(path, 4, wait=wait, keep_vectors=None))
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    Index.create(path, 4, keep_vectors=None).close()
    refused(ParameterError, ValueError, words, lambda: Index.open(path, wait=wait))


@pytest.mark.parametrize("wait", [float("inf"), 1e30, 10**30])
def test_waiting_for_ever(wait: float, tmp_path: Path) -> None:
    with Index.create(tmp_path / "index.lsq", 4, wait=wait, keep_vectors=None) as index:
        index.add(TWO)
        assert len(index) == 2


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    file, text = tmp_path / "index.lsq", tmp_path / "text"
    text.write_text("not an index\n" * 1000)
    with Index.create(file, 4, keep_vectors=None) as index:
        index.add(VECTORS)
        words: tuple[str, ...] = (str(file), "already", "Index.open")
        refused(IndexExistsError, FileExistsError, words, lambda: Index.create(file, 4, keep_vectors=None))
        refused(IndexExistsError, FileExistsError, (str(text),), lambda: Index.create(text, 4, keep_vectors=None))
        refused(
            IndexExistsError, FileExistsError, (str(tmp_path),), lambda: Index.create(tmp_path, 4, keep_vectors=None)
        )
        words = ("directory", "does not exist")
        refused(StorageError, OSError, words, lambda: Index.create(tmp_path / "no" / "index.lsq", 4, keep_vectors=None))
        refused(StorageError, OSError, words, lambda: index.save(tmp_path / "no" / "index.lsq"))
        words = ("no such file", "Index.create")
        refused(IndexMissingError, FileNotFoundError, words, lambda: Index.open(tmp_path / "no.lsq"))
        refused(IndexMissingError, FileNotFoundError, words, lambda: Index.open(tmp_path / "no.lsq", read_only=True))
        refused(NotAnIndexError, ValueError, (str(text), "not an index"), lambda: Index.open(text))
        words = (str(text), "not an index", "left alone")
        refused(IndexExistsError, FileExistsError, words, lambda: index.save(text))
        assert text.read_text().startswith("not an index")
        assert index.check() == [] and len(index) == 60
    left = {path.name for path in tmp_path.iterdir()} - {"index.lsq", "index.lsq-lock", "text"}
    assert not left, "nothing is left behind"


def test_odd_paths_give_typed_errors(tmp_path: Path) -> None:
    """A directory, nothing, a name too long, a NUL, a number: the error is ours, whatever the system says."""
    with Index(4, keep_vectors=None) as index:
        index.add(TWO)
        for path in (tmp_path, "", tmp_path / ("x" * 300), str(tmp_path / "a\0b"), 5, None):
            given: Any = path
            uses: list[Callable[[], object]] = [
                lambda: Index.create(given, 4, keep_vectors=None),  # noqa: B023
                lambda: Index.open(given),  # noqa: B023
            ]
            if path is not None:
                uses.append(lambda: index.save(given))  # noqa: B023
            for use in uses:
                with pytest.raises(LsqIndexError) as caught:
                    use()
                assert str(caught.value).strip(": ")
        assert index.path is None and len(index) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_long_name_that_the_system_allows(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 245)
    with Index.create(path, 4, keep_vectors=None) as index:
        index.add(TWO)
        index.compact()
        assert index.check() == [] and len(index) == 2


def test_a_path_of_bytes_is_a_path(tmp_path: Path) -> None:
    given: Any = os.fsencode(tmp_path / "index.lsq")
    with Index.create(given, 4, keep_vectors=None) as index:
        index.add(TWO)
        index.save(os.fsencode(tmp_path / "copy.lsq"))  # type: ignore[arg-type]
    for name in ("index.lsq", "copy.lsq"):
        with Index.open(tmp_path / name) as index:
            assert len(index) == 2


# -- states -----------------------------------------------------------------------------------------


def test_read_only(index: Index, kind: str) -> None:
    before = Seen.of(index)
    assert index.path is not None
    with Index.open(index.path, read_only=True) as reader:
        ids = names([100, 101], kind)
        changes: list[Callable[[], object]] = [
            lambda: reader.add(TWO, ids=ids),
            lambda: reader.add(iter([])),
            lambda: reader.delete(ids),
            lambda: reader.reencode("itq", bits=4),
            lambda: reader.batch().__enter__(),
            reader.train,
            reader.compact,
        ]
        for change in changes:
            refused(ReadOnlyError, PermissionError, ("read-only", "Index.open"), change)
        reader.save()
        before.assert_same(reader)


def test_closed(index: Index) -> None:
    index.close()
    for use in (lambda: index.search(TWO), lambda: index.delete([]), lambda: pickle.dumps(index), index.check):
        refused(ClosedError, ValueError, ("closed", "Index.open"), use)


def test_a_batch_that_is_over(index: Index) -> None:
    with index.batch() as batch:
        pass
    words = ("batch is over", "with index.batch()")
    refused(ClosedError, ValueError, words, lambda: batch.add(TWO))
    refused(ClosedError, ValueError, words, lambda: batch.delete([1]))


def test_in_memory(tmp_path: Path) -> None:
    index = Index(4, keep_vectors=None)
    index.add(TWO)
    refused(ParameterError, ValueError, ("save()", "in memory", "save(path)"), index.save)
    refused(ParameterError, ValueError, ("compact()", "in memory", "save(path)"), index.compact)
    refused(ParameterError, ValueError, ("in memory", "save(path)", "pickle"), lambda: pickle.dumps(index))
    assert len(index) == 2
    index.save(tmp_path / "index.lsq")
    again = pickle.loads(pickle.dumps(index))
    assert len(again) == 2
    again.close()
    index.close()


# -- training ---------------------------------------------------------------------------------------


def test_training_errors(index: Index) -> None:
    before = Seen.of(index)
    words: tuple[str, ...] = ("256 vectors", "got 60", "fewer bits")
    refused(TooFewVectorsError, ValueError, words, lambda: index.reencode("kmeans", bits=8))
    words = ("256 vectors", "got 2")
    refused(TooFewVectorsError, VectorError, words, lambda: index.reencode("kmeans", bits=8, vectors=TWO))
    refused(ParameterError, ValueError, ("bits=9", "bits=4"), lambda: index.reencode("itq", bits=9))
    refused(ParameterError, ValueError, ("no 'bit'",), lambda: index.reencode("itq", bit=4))
    refused(UnknownEncoderError, KeyError, ("'itqq'", "'itq'"), lambda: index.reencode("itqq"))
    fitted = make_encoder("lsh", bits=8).fit(np.ones((9, 3)))
    refused(ParameterError, ValueError, ("3 dimensions", "has 4"), lambda: index.reencode(fitted))
    refused(ParameterError, ValueError, ("threads=0",), lambda: index.train(threads=0))
    before.assert_same(index)


def test_training_an_empty_index() -> None:
    for index in (Index(4, bits=24, keep_vectors=None), Index(4, encoder="lsh", bits=8, keep_vectors=None)):
        refused(TooFewVectorsError, ValueError, ("got 0",), index.train)
        assert not index.is_trained and index.check() == []


def test_codes_cannot_be_encoded_again(tmp_path: Path) -> None:
    with Index.create(tmp_path / "index.lsq", 4, encoder="lsh", bits=32, train_size=50, keep_vectors=None) as index:
        index.add(VECTORS)
        before = Seen.of(index)
        words = ("codes only", "keep_vectors", "anew")
        refused(NoVectorsError, ValueError, ("train", *words), index.train)
        refused(NoVectorsError, ValueError, ("train", *words), lambda: index.train(VECTORS))
        refused(NoVectorsError, ValueError, ("reencode", *words), lambda: index.reencode("itq", bits=4))
        before.assert_same(index)
        index.delete(index.ids())
        index.train(VECTORS)
        assert index.is_trained and index.check() == [], "where nothing is stored nothing is lost"


def test_a_progress_callback_that_fails(index: Index, kind: str) -> None:
    """The user's own error comes through, and a training that it stopped left nothing."""
    before = Seen.of(index)

    def stop(*numbers: Any) -> None:
        raise ZeroDivisionError("mine")

    for use in (
        lambda: index.train(progress=stop),
        lambda: index.reencode("itq", bits=4, progress=stop),
        lambda: index.compact(progress=stop),
        lambda: index.save(str(index.path) + " copy", progress=stop),
    ):
        with pytest.raises(ZeroDivisionError, match="mine"):
            use()
    before.assert_same(index)
    assert not Path(str(index.path) + " copy").exists()


# -- plugins ----------------------------------------------------------------------------------------

PLUGIN = """
    import sys
    import numpy as np
    from lsqindex import Index, register_encoder
    from lsqindex.encoders.lsh import LSH

    @register_encoder("lsh-of-mine")
    class Mine(LSH):
        pass

    vectors = np.random.default_rng(0).standard_normal((60, 4))
    with Index.create(sys.argv[1], 4, encoder="lsh-of-mine", bits=8, train_size=int(sys.argv[2])) as index:
        index.add(vectors)
        assert index.encoder.name == "lsh-of-mine" and index.check() == []
"""


@pytest.mark.parametrize("train_size", [50, 100])
@pytest.mark.parametrize("read_only", [False, True])
def test_an_encoder_that_is_not_known_here(train_size: int, read_only: bool, tmp_path: Path) -> None:
    path = tmp_path / "index.lsq"
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    command = [sys.executable, "-c", textwrap.dedent(PLUGIN), str(path), str(train_size)]
    subprocess.run(command, env=environment, check=True)
    content = path.read_bytes()
    words = ("'lsh-of-mine'", "Known here", "needs its package installed", "the module imported that registers it")
    with Index.open(path, read_only=read_only) as index:
        assert len(index) == 60
        refused(UnknownEncoderError, KeyError, words, lambda: index.encoder)
    assert path.read_bytes() == content
