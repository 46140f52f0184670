"""A put that LMDB refuses: the operation is undone, and the writer goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsqindex import Index
from lsqindex._storage.format import keys
from lsqindex._storage.lmdb.writer import Writer
from lsqindex.errors import StorageError


def _half(writer: Writer) -> None:
    """One put that works, and one whose key is longer than LMDB allows."""
    writer.put(keys.META, b"half", b"value")
    writer.put(keys.META, bytes(600), b"value")


def _whole(writer: Writer) -> None:
    writer.put(keys.META, b"whole", b"value")


@pytest.fixture
def index(tmp_path: Path) -> Index:
    index = Index.create(tmp_path / "index.lsq", 2)
    index.add([[1, 2]])
    return index


def test_a_nested_operation_is_undone_and_the_transaction_goes_on(index: Index) -> None:
    with index._writer() as writer:
        with pytest.raises(StorageError):
            writer.run(_half, nested=True)
        writer.run(_whole)
        writer.commit()
    with index._reader() as reader:
        assert reader.get(keys.META, b"half") is None
        assert reader.get(keys.META, b"whole") == b"value"


def test_any_other_operation_can_only_be_undone_with_its_transaction(index: Index) -> None:
    with index._writer() as writer:
        with pytest.raises(StorageError):
            writer.run(_half)
        with pytest.raises(StorageError, match="can only be undone"):
            writer.run(_whole)
        with pytest.raises(StorageError, match="nothing was written"):
            writer.commit()
        writer.begin()
        writer.run(_whole)
        writer.commit()
    with index._reader() as reader:
        assert reader.get(keys.META, b"half") is None
        assert reader.get(keys.META, b"whole") == b"value"


def test_the_next_writer_is_not_held_up(index: Index) -> None:
    with pytest.raises(StorageError), index._writer() as writer:
        writer.run(_half)
    with Index.open(index.path or "", wait=False) as other:
        assert other.add([[3, 4]]).tolist() == [1]
    with index.batch() as batch:
        assert batch.delete([0]) == 1
    assert index.check() == []
