"""What the way of a change must not lose when it is made shorter."""

from __future__ import annotations

from collections import UserDict
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from lsqindex import Index
from lsqindex._inputs import payloads as door
from lsqindex.errors import PayloadError, VectorError


def test_a_batch_tidies_a_small_file_as_other_changes_do(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).standard_normal((6000, 32)).astype(np.float32)
    sizes = {}
    for way in ("delete", "batch"):
        path = tmp_path / way
        with Index.create(path, 32, encoder="flat", keep_vectors=None) as index:
            index.add(vectors)
            if way == "delete":
                index.delete(range(4500))
            else:
                with index.batch() as batch:
                    batch.delete(range(4500))
            assert len(index) == 1500 and index.check() == []
        sizes[way] = path.stat().st_size
    assert sizes["batch"] == sizes["delete"] < 1 << 20


def test_payloads_of_plain_values_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    monkeypatch.setattr(door, "unpack", read.append)
    plain = {"a": "x", "b": 1, "c": 2.5, "d": None, "e": b"y", "f": True}
    packed, values = door.read_payloads([plain, UserDict(plain)], 2, ("b",))
    assert [msgpack.unpackb(own) for own in packed] == [plain, plain] and values == [msgpack.packb(1)] * 2
    assert read == []
    door.read_payloads([{"a": [1]}], 1, ())
    assert len(read) == 1


@pytest.mark.parametrize("fields", [(), ("a",)])
def test_payloads_that_cannot_be_read_again_are_refused_without_indexed_fields_too(fields: tuple[str, ...]) -> None:
    with pytest.raises(PayloadError, match="could not be read again"):
        door.read_payloads([{"a": {(1, 2): 3}}], 1, fields)


@pytest.mark.parametrize("rows", [2, 3])
def test_a_tuple_of_rows_in_an_iterator_is_refused(rows: int) -> None:
    index = Index(dim=4)
    batch: Any = tuple(np.ones(4, np.float32) for _ in range(rows))
    with pytest.raises(VectorError, match="a tuple whose first element is one row"):
        index.add(iter([batch]))
    assert len(index) == 0


def test_an_add_encodes_by_the_coder_that_another_index_has_trained_meanwhile(tmp_path: Path) -> None:
    """The coder seen last is used without looking; the writer's turn tells that it is outdated."""
    vectors = np.random.default_rng(1).standard_normal((400, 8)).astype(np.float32)
    with Index.create(tmp_path / "a", 8, encoder="itq", bits=8) as index, Index.open(tmp_path / "a") as other:
        index.add(vectors[:200])
        other.add(vectors[200:300])
        other.train()
        ids = index.add(vectors[300:])
        assert index.check() == [] and np.array_equal(index.get(ids), other.get(ids))
        assert index.search(vectors[350], 1).ids[0] == 350
