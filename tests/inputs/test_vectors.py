"""The door for vectors: shapes, dtypes, memory maps, and messages that name the row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import make_encoder
from lsqindex._inputs.vectors import BLOCK_ROWS, MAX_MAGNITUDE, blocks, open_rows, read_rows, sample_rows
from lsqindex.errors import VectorError


class Dataset:
    """What h5py gives: shape, dtype and slicing; indexes must rise, and nothing is an array."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.largest = 0

    def __getitem__(self, where: Any) -> NDArray[Any]:
        if isinstance(where, np.ndarray):
            assert (np.diff(where) > 0).all(), "h5py takes rising indexes only"
        part: NDArray[Any] = self._array[where]
        self.largest = max(self.largest, len(part) if part.ndim == 2 else 1)
        return part


@pytest.fixture
def rows() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((3 * BLOCK_ROWS, 4)).astype(np.float32)


def test_lists_become_rows() -> None:
    opened = open_rows([[1, 2], [3, 4]])
    assert opened.shape == (2, 2)
    assert read_rows(opened).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_an_array_is_not_copied_by_opening(rows: NDArray[np.float32]) -> None:
    assert open_rows(rows) is rows


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([1.0, 2.0], "vector[None, :]"),
        (np.zeros((1, 2, 3)), "(1, 2, 3)"),
        (np.zeros((3, 0)), "at least one dimension"),
        ([[1.0], [1.0, 2.0]], "equal length"),
        ([["a"]], "numbers are needed"),
        (np.array([[object()]]), "numbers are needed"),
        (np.array([["2020-01-01"]], "datetime64[D]"), "numbers are needed"),
        (np.array([[1j]]), "complex"),
        (None, "shape"),
        ("text", "shape"),
        ({"a": 1}, "shape"),
        (3, "shape"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused(bad: Any, says: str) -> None:
    with pytest.raises(VectorError) as caught:
        open_rows(bad, what="queries")
    assert says in str(caught.value)
    assert str(caught.value).startswith("queries: ")


def test_wrong_dimensions_are_named() -> None:
    with pytest.raises(VectorError, match="5 dimensions are needed, got 4"):
        open_rows(np.zeros((2, 4)), 5)


def test_masked_arrays_and_subclasses_become_plain_rows() -> None:
    matrix = np.ma.MaskedArray(np.ones((2, 2)), mask=[[False, False], [False, False]])
    assert type(read_rows(open_rows(matrix))) is np.ndarray
    matrix.mask = [[False, True], [False, False]]
    with pytest.raises(VectorError, match="masked"):
        open_rows(matrix)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39, -1e300])
def test_numbers_that_are_not_finite_in_float32_are_refused_with_their_row(value: float) -> None:
    bad = np.zeros((10, 3))
    bad[7, 1] = value
    with pytest.raises(VectorError, match="row 7 "):
        read_rows(bad)
    with pytest.raises(VectorError, match="row 107 "):
        read_rows(bad, first=100)


def test_numbers_up_to_the_limit_are_fine_and_float64_rounds() -> None:
    top = float(np.float32(MAX_MAGNITUDE))
    assert read_rows(np.array([[top, -top]])).tolist() == [[top, -top]]
    with pytest.raises(VectorError, match="row 1 "):
        read_rows(np.array([[0.0], [1.01 * top]]))
    assert read_rows(np.array([[1 / 3]]))[0, 0] == np.float32(1 / 3)


def test_read_rows_are_contiguous_float32(rows: NDArray[np.float32]) -> None:
    for same in (np.asfortranarray(rows), rows[::-1][::-1], rows.astype(">f8")):
        block = read_rows(same)
        assert block.flags.c_contiguous
        assert block.dtype == np.float32
        assert np.array_equal(block, rows)


def test_blocks_cover_all_rows_once(rows: NDArray[np.float32]) -> None:
    for n in (0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS + 3):
        parts = list(blocks(rows[:n]))
        assert [first for first, _ in parts] == list(range(0, n, BLOCK_ROWS))
        assert sum(len(block) for _, block in parts) == n
        assert all(np.array_equal(block, rows[first : first + len(block)]) for first, block in parts)


def test_a_sample_is_rows_in_stored_order_without_repetition(rows: NDArray[np.float32]) -> None:
    numbered = np.arange(len(rows), dtype=np.float64)[:, None]
    size = BLOCK_ROWS + 100
    sample = sample_rows(numbered, size, np.random.default_rng(1))
    assert sample.shape == (size, 1)
    assert (np.diff(sample[:, 0]) > 0).all()
    assert np.array_equal(sample, sample_rows(numbered, size, np.random.default_rng(1)))
    assert not np.array_equal(sample, sample_rows(numbered, size, np.random.default_rng(2)))


def test_a_sample_of_few_rows_is_all_of_them(rows: NDArray[np.float32]) -> None:
    assert np.array_equal(sample_rows(rows[:5], 5, np.random.default_rng(0)), rows[:5])
    assert np.array_equal(sample_rows(rows[:5], 99, np.random.default_rng(0)), rows[:5])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize("kind", ["array", "dataset"])
def test_a_bad_row_in_a_sample_is_named_by_its_stored_number(value: float, kind: str) -> None:
    bad = np.zeros((3 * BLOCK_ROWS, 2))
    bad[2 * BLOCK_ROWS + 11] = value
    source: Any = bad if kind == "array" else Dataset(bad)
    with pytest.raises(VectorError, match=f"row {2 * BLOCK_ROWS + 11} "):
        sample_rows(source, 3 * BLOCK_ROWS - 1, np.random.default_rng(0))


def test_a_bad_row_outside_the_sample_does_not_matter() -> None:
    bad = np.zeros((100, 2), np.float32)
    chosen = np.sort(np.random.default_rng(0).choice(100, size=10, replace=False))
    bad[np.setdiff1d(np.arange(100), chosen)] = np.nan
    assert sample_rows(bad, 10, np.random.default_rng(0)).tolist() == [[0.0, 0.0]] * 10


def sampled(rows: Any) -> NDArray[np.float32]:
    return sample_rows(rows, 500, np.random.default_rng(3))


def test_memory_maps_are_read_in_blocks_and_give_the_same(rows: NDArray[np.float32], tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", rows.astype(np.float64))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert open_rows(mapped) is mapped
    assert np.array_equal(sampled(mapped), sampled(rows))
    encoder = make_encoder("itq", bits=4).fit(mapped)
    assert np.array_equal(encoder.encode(mapped), encoder.encode(rows))


def test_datasets_are_read_in_blocks_and_give_the_same(rows: NDArray[np.float32]) -> None:
    encoder = make_encoder("itq", bits=4).fit(rows)
    dataset = Dataset(rows)
    assert np.array_equal(encoder.encode(dataset), encoder.encode(rows))  # type: ignore[arg-type]
    assert np.array_equal(encoder.embed(dataset), encoder.embed(rows))  # type: ignore[arg-type]
    assert dataset.largest == BLOCK_ROWS
    dataset = Dataset(rows)
    assert np.array_equal(sampled(dataset), sampled(rows))
    assert dataset.largest == 500
    assert np.array_equal(make_encoder("itq", bits=4).fit(Dataset(rows)).encode(rows), encoder.encode(rows))  # type: ignore[arg-type]
