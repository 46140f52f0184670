"""Payloads of 10,000 bytes or more: under keys of their own, and gone with their rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._storage.format import large_payloads
from lsqindex._storage.lmdb import writer as writing
from lsqindex._write import add as adding


def vectors(n: int) -> Any:
    return np.arange(n, dtype=np.float32)[:, None]


def text(i: int, size: int = 10_000) -> dict[str, Any]:
    return {"i": i, "text": chr(97 + i % 26) * size}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "one.lsq", 1, keep_vectors=None, fields=["i"]) as made:
        yield made


def stored(index: Index) -> tuple[int, int]:
    """How many large payloads there are, as counted, and as the state says."""
    with index._reader() as reader:
        return len(list(large_payloads.numbers(reader))), reader.state.large


def written(work: Any) -> int:
    """How many bytes of the process go to files."""

    def count() -> int:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
        return int(dict(line.split(": ") for line in lines)["wchar"])

    before = count()
    work()
    return count() - before


def test_large_and_small_payloads_are_given_back_as_they_were(index: Index) -> None:
    given = [text(0, 9_000), text(1), None, text(3, 300_000), text(4, 5)]
    index.add(vectors(5), payloads=given)
    assert index.payloads(range(5)) == given and stored(index) == (2, 2) and index.check() == []
    assert index.ids({"text": text(3, 300_000)["text"]}).tolist() == [3] and index.ids({"i": 1}).tolist() == [1]
    assert index.search([3.0], k=1, with_payloads=True).payloads == [given[3]]


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux")
def test_adding_a_large_payload_writes_no_other_again(index: Index) -> None:
    index.add(vectors(100), payloads=[text(i, 200_000) for i in range(100)])
    for i in range(3):
        assert written(lambda i=i: index.add(vectors(1), payloads=[text(i, 200_000)])) < 2 * 200_000


def test_deleted_and_replaced_payloads_go_at_once(index: Index) -> None:
    index.add(vectors(6), payloads=[text(i) for i in range(6)])
    index.delete([0, 1])
    index.add(vectors(1), ids=[2], payloads=[text(20, 15_000)], upsert=True)
    index.set_payloads([3, 4], [{"i": 3}, None])
    assert stored(index) == (2, 2) and index.check() == []
    assert index.payloads([2, 3, 4, 5]) == [text(20, 15_000), {"i": 3}, None, text(5)]


def test_rows_that_move_keep_their_payloads(index: Index) -> None:
    index.add(vectors(4_100), payloads=[text(i, 10_000 if i % 1_000 == 7 else 3) for i in range(4_100)])
    index.delete(np.arange(1_020))
    assert stored(index) == (3, 3) and index.check() == []
    assert index.payloads([2_007, 4_007, 4_008]) == [text(2_007), text(4_007), text(4_008, 3)]
    index.delete({})
    assert stored(index) == (0, 0) and index.check() == []


def test_compacted_files_and_copies_have_them(index: Index, tmp_path: Path) -> None:
    index.add(vectors(8), payloads=[text(i, 20_000) for i in range(8)])
    index.delete([0, 7])
    index.save(tmp_path / "copy.lsq")
    index.compact()
    with Index.open(tmp_path / "copy.lsq") as copy:
        for one in (index, copy):
            assert one.payloads(range(1, 7)) == [text(i, 20_000) for i in range(1, 7)]
            assert stored(one) == (6, 6) and one.check() == []
            one.add(vectors(1), payloads=[text(8, 12_000)])
            assert one.payloads(8) == text(8, 12_000) and one.check() == []


def test_an_add_that_is_not_finished_leaves_none(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add(vectors(2), payloads=[text(i) for i in range(2)])
    for module in (writing, adding):
        monkeypatch.setattr(module, "COMMIT_BYTES", 1 << 20)
    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int | None) -> None:
        seen.append(stored(index))
        if len(seen) == 2:
            assert index.check() == []
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        index.add(vectors(1_500), payloads=[text(i) if i % 5 == 0 else None for i in range(1_500)], progress=stop)
    assert seen[0][0] > 2 and seen[1] > seen[0]
    assert stored(index) == (2, 2) and index.check() == [] and len(index) == 2
    index.add(vectors(1_500), payloads=[text(i) if i % 5 == 0 else None for i in range(1_500)])
    assert stored(index) == (302, 302) and index.check() == []
    assert index.payloads([7, 8]) == [text(5), None]


def test_an_upsert_in_a_batch_that_is_undone_keeps_them(index: Index) -> None:
    index.add(vectors(2), payloads=[text(0), text(1)])
    with pytest.raises(RuntimeError, match="stop"), index.batch() as batch:
        batch.add(vectors(1), ids=[0], payloads=[text(5)], upsert=True)
        batch.delete([1])
        raise RuntimeError("stop")
    assert index.payloads([0, 1]) == [text(0), text(1)] and stored(index) == (2, 2) and index.check() == []
