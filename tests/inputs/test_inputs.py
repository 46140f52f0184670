"""What users pass: accepted as they expect, or refused for the right reason in the right words.

Stand-ins have what the classes of pandas, PyTorch and SciPy have that NumPy does not.
"""

from __future__ import annotations

import decimal
import fractions
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, LsqIndexError, make_encoder
from lsqindex.cli.source import InputError, Wanted
from lsqindex.cli.sources import open_source
from lsqindex.errors import IdError, ParameterError, PayloadError, VectorError

X: NDArray[np.float32] = np.arange(12, dtype=np.float32).reshape(3, 4)


# -- stand-ins ----------------------------------------------------------------------------------------


class Series:
    """As pandas has it: looked up by an index of its own, not by place."""

    def __init__(self, values: Any, dtype: Any = None) -> None:
        self._values = np.empty(len(values), object) if dtype is object else np.array(values, dtype)
        if dtype is object:
            self._values[:] = values
        self.shape, self.dtype, self.ndim = self._values.shape, self._values.dtype, 1

    def __getitem__(self, name: Any) -> Any:
        raise KeyError(name)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values.tolist())

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self._values if dtype is None else self._values.astype(dtype)


class Frame:
    """A DataFrame: columns of different kinds, which together are objects; iterating gives the names of columns."""

    def __init__(self, rows: Any) -> None:
        self._rows = np.array(rows, object)
        self.shape, self.ndim, self.columns = self._rows.shape, 2, ["a", "b", "c", "d"]

    def __getitem__(self, name: Any) -> Any:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self._rows if dtype is None else self._rows.astype(dtype)

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self._rows.tolist()]


class Tensor:
    """Of another library, with dtypes that NumPy does not know."""

    dtype = "torch.float32"

    def __init__(self, values: NDArray[Any], error: Exception | None = None) -> None:
        self._values, self._error, self.shape = values, error, values.shape

    def __getitem__(self, where: Any) -> Tensor:
        return Tensor(self._values[where])

    def __len__(self) -> int:
        return len(self._values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        if self._error is not None:
            raise self._error
        return self._values if dtype is None else self._values.astype(dtype)


class Exchanged:
    """What speaks DLPack and nothing else."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._values.__dlpack_device__()


class Sparse:
    """A sparse matrix: it has a shape, and its slices are sparse, too."""

    shape, dtype = X.shape, X.dtype

    def __getitem__(self, where: Any) -> Sparse:
        return self

    def toarray(self) -> NDArray[Any]:
        return X


# -- vectors ------------------------------------------------------------------------------------------

VECTORS: dict[str, Any] = {
    "a Series of arrays": Series(list(X), object),
    "a Series of lists": Series(X.tolist(), object),
    "an array of arrays": np.asarray(Series(list(X), object)),
    "a DataFrame of mixed columns": Frame([[0, 1.0, np.float32(2), 3], [4, 5, 6, np.int8(7)], [8, 9, 10, 11]]),
    "an array of objects": X.astype(object),
    "decimals": [[decimal.Decimal(int(one)) for one in row] for row in X],
    "fractions": [[fractions.Fraction(int(one)) for one in row] for row in X],
    "tuples": tuple(map(tuple, X.tolist())),
    "a list of arrays": list(X),
    "values of a mapping": dict(enumerate(X)).values(),
    "a tensor": Tensor(X),
    "a list of tensors": [Tensor(row) for row in X],
    "DLPack": Exchanged(X),
    "a memoryview": X.data,
    "a masked array without a mask": np.ma.masked_array(X),
    "float16": X.astype(np.float16),
    "big-endian": X.astype(">f8"),
    "long double": X.astype(np.longdouble),
    "unsigned": X.astype(np.uint8),
}


@pytest.mark.parametrize("case", VECTORS)
def test_vectors_that_are_accepted(case: str) -> None:
    given = VECTORS[case]
    with Index(4, ids="int", keep_vectors=None) as index:
        assert index.add(given).tolist() == [0, 1, 2]
        assert np.array_equal(index.get([0, 1, 2]), X)
        assert index.search(given, 1).ids.tolist() == [[0], [1], [2]]
        with index.batch() as batch:
            batch.add(given, ids=[5, 6, 7])
        assert np.array_equal(index.get([5, 6, 7]), X)
    assert np.array_equal(
        make_encoder("lsh", bits=8).fit(given).encode(given), make_encoder("lsh", bits=8).fit(X).encode(X)
    )


@pytest.mark.parametrize("query", [Series(X[1]), Series(X[1].tolist(), object), Tensor(X[1]), X[1].tolist()])
def test_one_query(query: Any) -> None:
    with Index(4, keep_vectors=None) as index:
        index.add(X)
        assert index.search(query, 2).ids.tolist() == [1, 0]


@pytest.mark.parametrize("number", [1e16, 1e30, np.inf, -np.inf, np.nan])
def test_one_query_that_cannot_be_compared(number: float) -> None:
    """Most queries are one float32 array, and checked in a way of their own."""
    with Index(4, keep_vectors=None) as index:
        index.add(X)
        with pytest.raises(VectorError, match="NaN, infinite numbers or numbers beyond"):
            index.search(np.array([1, number, 0, 0], np.float32))


@pytest.mark.parametrize("nothing", [[], (), np.empty(0), np.empty((0, 4)), np.empty((0, 0)), Series([], object)])
def test_no_vectors_at_all(nothing: Any) -> None:
    with Index(4, keep_vectors=None) as index, Index(4, ids="str", keep_vectors=None) as named:
        assert index.add(nothing).tolist() == [] and named.add(nothing, ids=[]) == []
        assert index.add(nothing, ids=[], payloads=[]).tolist() == []
        assert index.add(iter([nothing, X, (nothing, [], [])])).tolist() == [0, 1, 2]
        assert index.search(nothing, 3).ids.shape == (0, 3) and len(named) == 0
    with pytest.raises(VectorError):
        make_encoder("lsh", bits=8).fit(nothing)


REFUSED: dict[str, tuple[Any, str]] = {
    "lists of unequal length": ([[1, 2, 3, 4], [1, 2]], "rows must have equal length; row 0 has 4 .* row 1 has 2"),
    "a Series of unequal length": (Series([X[0], X[1, :2]], object), "equal length; .* row 1 has 2"),
    "a Series with a hole": (Series([X[0], None], object), "row 1 is not a vector like the others: None"),
    "a vector among matrices": ([X, X[0]], "row 1 is not a vector"),
    "a DataFrame with text": (Frame([[1, 2, 3, 4], [1, 2, 3, "x"]]), "numbers are needed, got 'x' in row 1"),
    "None": (None, "shape .n, dim. is needed, got None"),
    "objects": (np.array([[1, 2, None, 4]]), "got None in row 0"),
    "digits": ([["1", "2", "3", "4"]], "got strings"),
    "digits as objects": (np.array([["1", "2", "3", "4"]], object), "got '1' in row 0"),
    "bytes": (b"1234", "got b'1234'"),
    "a mapping": ({"a": 1}, "got {'a': 1}"),
    "a set": ({1, 2}, "got {1, 2}"),
    "a text": ("abcd", "got 'abcd'"),
    "complex": (X.astype(complex), "real numbers are needed, got dtype complex128"),
    "dates": (np.zeros((1, 4), "M8[s]"), "real numbers are needed"),
    "records": (np.zeros(3, [("a", "f4")]), "real numbers are needed"),
    "masked": (np.ma.masked_array(X, X > 5), "masked"),
    "a sparse matrix": (Sparse(), r"sparse matrix .*toarray\(\)"),
    "on a GPU": (Tensor(X, TypeError("can't convert cuda:0; use cpu()")), "a Tensor cannot be read .*cuda:0"),
    "with gradients": (Tensor(X, RuntimeError("use detach()")), "a Tensor cannot be read .*detach"),
    "too large an int": ([[10**400] * 4], "too large"),
    "no dimension": (np.empty((3, 0)), "at least one dimension"),
    "an empty row": ([[]], "at least one dimension"),
    "other dimensions": (np.empty((0, 5)), "4 dimensions are needed, got 5"),
    "three axes": (X[None], "got .1, 3, 4."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_vectors_that_are_refused(case: str) -> None:
    given, says = REFUSED[case]
    with Index(4, bits=24, keep_vectors=None) as index:  # fewer bits than a vector has: it is to be trained
        index.add(X)
        uses: list[Callable[[], Any]] = [
            lambda: index.add(given),
            lambda: index.search(given),
            lambda: index.train(given),
        ]
        for use in uses if given is not None else uses[:2]:
            with pytest.raises(VectorError, match=f"(?s)^(vectors|queries): .*{says}"):
                use()
        assert len(index) == 3 and not index.is_trained
    if case != "other dimensions":
        with pytest.raises(VectorError):
            make_encoder("lsh", bits=8).fit(given)


# -- batches of an iterator ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "what"),
    [
        (lambda: iter(X), "0: .* this is one row"),
        (lambda: iter([X, X[0]]), "1: .* this is one row"),
        (lambda: iter([(X[0], X[1])]), "0: .* a tuple whose first element is one row"),
        (lambda: iter([tuple(X)]), "0: .* a tuple whose first element is one row"),
        (lambda: iter([([1, 2, 3, 4], [5, 6, 7, 8])]), "0: .* a tuple whose first element is one row"),
        (lambda: zip(X, [7, 8, 9], strict=True), "0: .* a tuple whose first element is one row"),
        (lambda: iter([(1.0, 2.0)]), "0: .* a tuple whose first element is one row"),
        (lambda: iter([(X, [5, 6, 7], None, None)]), "0: row 1 is not a vector"),
        (lambda: iter("ab"), "0: .* got 'a'"),
    ],
)
def test_an_iterator_of_rows_is_not_one_of_batches(batches: Callable[[], Any], what: str) -> None:
    with Index(4, keep_vectors=None) as index, pytest.raises(VectorError, match=f"^vectors of batch {what}"):
        index.add(batches())


def test_batches_of_an_iterator() -> None:
    with Index(4, keep_vectors=None) as index:
        assert index.add(iter([list(X), (Series(list(X), object), [7, 8, 9]), (X, None, [{"a": 1}] * 3)])).tolist() == [
            *(0, 1, 2),
            *(7, 8, 9),
            *(10, 11, 12),
        ]
        # Two rows are a batch of two where they are no tuple.
        assert index.add(iter([[X[0], X[1]], X[:2], [(1, 2, 3, 4)]])).tolist() == [13, 14, 15, 16, 17]


# -- ids ----------------------------------------------------------------------------------------------

IDS: dict[str, Any] = {
    "objects": np.array([4, 5, 6], object),
    "objects of NumPy": np.array([np.int8(4), np.uint64(5), 6], object),
    "a Series": Series([4, 5, 6]),
    "a Series of objects": Series([4, 5, 6], object),
    "a tensor": Tensor(np.array([4, 5, 6])),
    "unsigned": np.array([4, 5, 6], np.uint64),
    "a range": range(4, 7),
    "a generator": (number for number in (4, 5, 6)),
    "keys of a mapping": {4: "a", 5: "b", 6: "c"}.keys(),
    "0-d arrays": [np.array(4), np.array(5), np.array(6)],
}


@pytest.mark.parametrize("case", IDS)
def test_ids_that_are_accepted(case: str) -> None:
    with Index(4, keep_vectors=None) as index:
        assert index.add(X, ids=IDS[case]).tolist() == [4, 5, 6]


@pytest.mark.parametrize("edge", [2**63 - 1, -(2**63)])
def test_the_least_and_the_largest_id(edge: int) -> None:
    for ids in ([edge], np.array([edge], object), np.array([edge])):
        with Index(4, keep_vectors=None) as index:
            assert index.add(X[:1], ids=ids).tolist() == [edge] and edge in index


@pytest.mark.parametrize(
    "ids", [np.array(["a", "b\0", "c"], object), Series(["a", "b\0", "c"], object), ("a", "b\0", "c")]
)
def test_string_ids_that_are_accepted(ids: Any) -> None:
    with Index(4, ids="str", keep_vectors=None) as index:
        assert (
            index.add(X, ids=ids) == ["a", "b\0", "c"]
            and "b" not in index
            and index.get("b\0").tolist() == [4, 5, 6, 7]
        )


REFUSED_IDS: dict[str, tuple[Any, str]] = {
    "a bool among ints": ([True, False, 2], "whole numbers are needed, got True"),
    "a bool of NumPy": ([5, np.True_, 2], "whole numbers are needed, got True"),
    "bools": (np.array([True, False, True]), "got True"),
    "a bool among objects": (np.array([5, True, 2], object), "got True"),
    "whole floats": ([1.0, 2.0, 3.0], r"got 1.0; convert them first, for example with astype\('int64'\)"),
    "a Series with a hole": (Series([5, None, 6], object), "got None"),
    "strings": (["a", "b", "c"], "got 'a'; Index.create"),
    "dates": (np.array([1, 2, 3], "M8[s]"), r"whole numbers are needed, got datetime\."),
    "beyond 64 bits": ([1, 2, 2**64], f"{2**64} does not fit"),
    "beyond 63 bits": (np.array([1, 2, 2**63], np.uint64), f"{2**63} does not fit"),
    "below": (np.array([1, 2, -(2**63) - 1], object), f"{-(2**63) - 1} does not fit"),
    "far beyond": ([1, 2, 10**400], "does not fit"),
    "minus one": (np.array([1, 2, -1], object), "-1 means"),
    "lists": ([[1], [2, 3], 4], r"a flat sequence of whole numbers is needed \(got \[1\]"),
    "a DataFrame": (Frame([[1], [2], [3]]), r"a flat sequence is needed, got shape \(3, 1\)"),
    "masked": (np.ma.masked_array([1, 2, 3], [False, True, False]), "masked"),
    "a set": ({4, 5, 6}, "a set has no order"),
    "twice": (np.array([4, 4, 5], object), "4 occurs more than once"),
}


@pytest.mark.parametrize("case", REFUSED_IDS)
def test_ids_that_are_refused(case: str) -> None:
    ids, says = REFUSED_IDS[case]
    with Index(4, keep_vectors=None) as index:
        with pytest.raises(IdError, match=f"^ids: .*{says}"):
            index.add(X, ids=ids)
        with pytest.raises(IdError, match=f"^ids: .*{says}"):
            index.set_payloads(ids, [None] * 3)
        assert len(index) == 0


def test_a_set_may_name_what_has_no_order() -> None:
    with Index(4, keep_vectors=None) as index:
        index.add(X)
        assert index.ids({0, 2}).tolist() == [0, 2] and index.delete({0, 2}) == 2


# -- payloads, options, files -------------------------------------------------------------------------


def test_a_data_frame_of_payloads() -> None:
    frame = Frame([[1, 2, 3, 4]] * 4)
    with Index(4, keep_vectors=None) as index:
        with pytest.raises(PayloadError, match=r"got a DataFrame; pass df.to_dict\('records'\)"):
            index.add(np.zeros((4, 4)), payloads=frame)
        index.add(np.zeros((4, 4)), payloads=frame.to_dict("records"))
        assert index.payloads(0) == {"a": 1, "b": 2, "c": 3, "d": 4}


@pytest.mark.parametrize("wrong", [True, np.True_, 3.0, np.float64(3), "3", None, 0, -1, [3], np.array([3, 4])])
def test_numbers_that_are_refused(wrong: Any) -> None:
    with Index(4, keep_vectors=None) as index:
        index.add(X)
        for use in (
            lambda: index.search(X, k=wrong),
            lambda: index.search(X, threads=wrong if wrong is not None else 0),
            lambda: Index(4, train_size=wrong if wrong is not None else 0, keep_vectors=None),
            lambda: Index(wrong, keep_vectors=None),
        ):
            with pytest.raises(ParameterError, match=r"a whole number from [12] to"):
                use()
        assert index.search(X, k=np.int8(2)).ids.shape == (3, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["no", 1, None, np.array([True, False])])
def test_flags_that_are_refused(wrong: Any, tmp_path: Path) -> None:
    path = tmp_path / "index.lsq"
    with Index.create(path, 4, keep_vectors=None) as index:
        index.add(X)
        uses: dict[str, Callable[[], Any]] = {
            "upsert": lambda: index.add(X, ids=[0, 1, 2], upsert=wrong),
            "with_payloads": lambda: index.search(X, with_payloads=wrong),
            "progressive": lambda: index.search(X, progressive=wrong),
            "read_only": lambda: Index.open(path, read_only=wrong),
        }
        for name, use in uses.items():
            with pytest.raises(ParameterError, match=f"^{name}=.*: True or False is needed"):
                use()
        assert index.add(X, ids=[0, 1, 2], upsert=np.True_).tolist() == [0, 1, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [np.array(["l2", "ip"]), ["l2"], {"l2"}, b"l2", 5, X])
def test_names_that_are_refused(wrong: Any) -> None:
    with Index(4, keep_vectors=None) as index:
        for use in (
            lambda: Index(4, metric=wrong, keep_vectors=None),
            lambda: Index(4, keep_vectors=wrong),
            lambda: Index(4, ids=wrong, keep_vectors=None),
            lambda: index.search(X, strategy=wrong),
            lambda: index.search(X, distance=wrong),
            lambda: make_encoder("lsh", bits=8).fit(X).tables(X, metric=wrong),
        ):
            with pytest.raises(ParameterError):
                use()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("title,a,b\nice,1,2\nfire,3,4\n", "line 2 has 'ice' in column title .* --id-column title takes them"),
        ("ice,1,2\nfire,3,4\n", "line 1 has 'ice' in column 1 .* --id-column 1 takes them"),
        ("1,2,ice\n3,4,fire\n", "line 1 has 'ice' in column 3"),
        ("1,,3\n4,5,6\n", "line 1 has '' in column 2"),
        ("a,b\n1,2\n3,x\n", "line 3 has 'x'"),
    ],
)
def test_a_csv_file_with_a_column_of_text(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=says), open_source(str(tmp_path / "a.csv"), Wanted()) as source:
        list(source.blocks(100))
    assert issubclass(InputError, LsqIndexError)


def test_a_csv_file_with_names_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    with open_source(str(tmp_path / "a.csv"), Wanted()) as source:
        assert source.dim == 2 and list(source.blocks(100)) == []
