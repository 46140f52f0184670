"""Wrong vectors, ids and search options: typed errors with cause and remedy, and no trace in the index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index
from lsqindex.errors import (
    DuplicateIdError,
    IdError,
    ParameterError,
    UnknownIdError,
    VectorError,
)

from .refusals import TWO, VECTORS, Seen, names, refused

# -- vectors ----------------------------------------------------------------------------------------
BAD_VECTORS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "three dimensions": (VECTORS[None], ("(n, dim)", "(1, 60, 4)")),
    "another dim": (np.zeros((2, 5)), ("4 dimensions", "got 5")),
    "no dim": (np.zeros((2, 0)), ("dimension",)),
    "a number": (3, ("(n, dim)",)),
    "nothing": (None, ("(n, dim)",)),
    "ragged": ([[1, 2, 3, 4], [5]], ("equal length",)),
    "strings": ([["a", "b", "c", "d"]], ("numbers are needed", "strings", "convert")),
    "objects": (np.array([[None] * 4]), ("numbers are needed", "got None in row 0", "convert")),
    "complex": (np.zeros((1, 4), complex), ("numbers are needed", "complex128")),
    "dates": (np.zeros((1, 4), "M8[s]"), ("numbers are needed",)),
    "nan": (np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]]), ("row 1", "NaN", "remove, repair")),
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
    "too long": (["x" * 481, "y"], ("480 bytes", "481", "hash")),
    "too long in UTF-8": (["é" * 241, "y"], ("480 bytes", "482", "hash")),
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
        ({"distance": "score"}, ("distance='score'", "multi-index", "set_subset")),
        ({"probes": 5, "candidates": 9}, ("candidates", "multi-index", "set_subset")),
        ({"distance": "exact"}, ("distance='exact'", "auto, symmetric, asymmetric or score")),
        ({"threads": 0}, ("threads=0", "whole number from 1")),
    ],
)
def test_search_parameters(index: Index, options: dict[str, Any], words: tuple[str, ...]) -> None:
    refused(ParameterError, ValueError, words, lambda: index.search(TWO, **options))


@pytest.mark.parametrize("options", [{"strategy": "subset"}, {"probes": 5}])
def test_options_of_a_subset_structure_without_one(options: dict[str, Any]) -> None:
    index = Index(dim=TWO.shape[1], subset=None)
    index.add(TWO)
    words = (next(iter(options)), "subset structure", "set_subset('cells')")
    refused(ParameterError, ValueError, words, lambda: index.search(TWO, **options))
