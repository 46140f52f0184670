"""Files of vectors: every format in blocks, and what is said about those that cannot be read."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from lsqindex import Index
from lsqindex.cli import main
from lsqindex.cli.source import InputError, Wanted, sampled
from lsqindex.cli.sources import SUFFIXES, open_source
from lsqindex.errors import LsqIndexError

ROWS = np.random.default_rng(0).standard_normal((1000, 6)).astype(np.float32)
IDS = 7 * np.arange(1000) + 3
NAMES = [f"n{i}" for i in range(1000)]
BLOCK = 300


def table() -> Any:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 6)
    return pa.table({"id": IDS, "name": NAMES, "vector": lists})


def vecs(path: Path, rows: Any, dtype: str) -> None:
    head = np.full((len(rows), 1), rows.shape[1], "<i4").view(np.uint8)
    path.write_bytes(np.hstack([head, rows.astype(dtype).view(np.uint8)]).tobytes())


def parquet(path: Path) -> None:
    pyarrow.parquet.write_table(table(), path, row_group_size=170)


def arrow(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table().schema) as writer:
        writer.write_table(table(), max_chunksize=450)


def arrow_stream(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table().schema) as writer:
        writer.write_table(table(), max_chunksize=450)


def hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["train"], file["test"], file["id"], file["name"] = ROWS, ROWS[:9], IDS, NAMES


def csv(path: Path) -> None:
    lines = [f"{i}," + ",".join(map(repr, row)) for i, row in zip(IDS, ROWS.tolist(), strict=True)]
    path.write_text("id,a,b,c,d,e,f\n" + "\n".join(lines) + "\n")


def npz(path: Path) -> None:
    np.savez(path, vectors=ROWS, id=IDS)


WITH_IDS: dict[str, Callable[[Path], None]] = {
    "a.parquet": parquet,
    "a.arrow": arrow,
    "a.arrows": arrow_stream,
    "a.feather": lambda path: pyarrow.feather.write_feather(table(), str(path), chunksize=450),
    "a.hdf5": hdf5,
    "a.csv": csv,
    "a.npz": npz,
    "z.npz": lambda path: np.savez_compressed(path, vectors=ROWS, id=IDS),
}
WITHOUT: dict[str, Callable[[Path], None]] = {
    "a.npy": lambda path: np.save(path, ROWS),
    "f.npy": lambda path: np.save(path, np.asfortranarray(ROWS)),
    "a.fvecs": lambda path: vecs(path, ROWS, "<f4"),
    "b.csv": lambda path: np.savetxt(path, ROWS, delimiter=",", fmt="%.9g"),
    "a.tsv": lambda path: np.savetxt(path, ROWS, delimiter="\t", fmt="%.9g"),
}


@pytest.mark.parametrize("name", [*WITH_IDS, *WITHOUT])
def test_every_format_comes_in_blocks(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    {**WITH_IDS, **WITHOUT}[name](path)
    wanted = Wanted(id_column="id") if name in WITH_IDS else Wanted()
    with open_source(str(path), wanted) as source:
        assert source.dim == 6 and source.count in (None, 1000)
        blocks = list(source.blocks(BLOCK))
    # No block is larger than was asked for: nothing is ever read whole.
    assert len(blocks) >= 4 and max(len(block.vectors) for block in blocks) <= BLOCK
    assert np.allclose(np.concatenate([block.vectors for block in blocks]), ROWS, atol=1e-7)
    if name in WITH_IDS:
        assert [int(i) for block in blocks for i in block.ids] == IDS.tolist()


@pytest.mark.parametrize("name", [*WITH_IDS, *WITHOUT])
def test_every_format_can_be_sampled(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    {**WITH_IDS, **WITHOUT}[name](path)
    with open_source(str(path), Wanted(id_column="id") if name in ("a.csv",) else Wanted()) as source:
        drawn = sampled(source, 50, block=128)
    known = {tuple(np.round(row, 4)) for row in ROWS}
    assert len({tuple(np.round(row, 4)) for row in drawn} & known) == 50


def test_all_suffixes_are_tried() -> None:
    tried = {Path(name).suffix for name in [*WITH_IDS, *WITHOUT]} | {".bvecs", ".ivecs", ".pq", ".ipc", ".h5"}
    assert tried == set(SUFFIXES)


@pytest.mark.parametrize(("suffix", "dtype"), [("bvecs", "u1"), ("ivecs", "<i4")])
def test_whole_numbers_of_texmex(tmp_path: Path, suffix: str, dtype: str) -> None:
    numbers = np.arange(60).reshape(10, 6)
    vecs(tmp_path / f"a.{suffix}", numbers, dtype)
    with open_source(str(tmp_path / f"a.{suffix}")) as source:
        assert np.array_equal(np.concatenate([block.vectors for block in source.blocks(4)]), numbers)


def test_a_large_file_is_never_whole_in_memory(tmp_path: Path) -> None:
    """300 MB through a process that may have little more than it starts with."""
    resource = pytest.importorskip("resource")
    del resource
    path = tmp_path / "large.npz"
    with np.errstate(all="ignore"):
        np.savez_compressed(path, vectors=np.zeros((600_000, 128), np.float32))
    code = (
        "import resource, sys\n"
        "from lsqindex.cli.sources import open_source\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "with open_source(sys.argv[1]) as source:\n"
        "    print(sum(len(block.vectors) for block in source.blocks(4096)))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    rows, grown = map(int, done.stdout.split())
    assert rows == 600_000 and grown < 60_000  # kilobytes


@pytest.mark.parametrize("name", list(WITH_IDS))
def test_add_and_search_any_format(tmp_path: Path, name: str) -> None:
    path, index = tmp_path / name, tmp_path / "a.lsq"
    WITH_IDS[name](path)
    assert main(["create", str(index), "--dim", "6", "--encoder", "flat"]) == 0
    assert main(["add", str(index), str(path), "--id-column", "id", "--batch", "128"]) == 0
    with Index.open(index) as opened:
        assert np.array_equal(opened.ids(), IDS)
        assert np.allclose(opened.get(IDS), ROWS, atol=1e-6)


def test_string_ids_of_columns(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet")
    hdf5(tmp_path / "a.h5")
    for name in ("a.parquet", "a.h5"):
        with open_source(str(tmp_path / name), Wanted(id_column="name")) as source:
            assert [i for block in source.blocks(BLOCK) for i in block.ids] == NAMES


def test_another_dataset(tmp_path: Path) -> None:
    hdf5(tmp_path / "a.hdf5")
    with open_source(str(tmp_path / "a.hdf5"), Wanted(dataset="test")) as source:
        assert source.count == 9
    np.savez(tmp_path / "two.npz", a=ROWS, b=ROWS[:5])
    with open_source(str(tmp_path / "two.npz"), Wanted(dataset="b")) as source:
        assert source.count == 5


def test_lists_of_any_kind(tmp_path: Path) -> None:
    for kind in (pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.int16())):
        numbers = np.arange(12).reshape(4, 3)
        pyarrow.parquet.write_table(pa.table({"v": pa.array(numbers.tolist(), kind)}), tmp_path / "a.pq")
        with open_source(str(tmp_path / "a.pq")) as source:
            assert np.array_equal(np.concatenate([block.vectors for block in source.blocks(3)]), numbers)


def test_ids_of_csv_by_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x;1;2\ny;3;4\n")
    with open_source(str(tmp_path / "a.csv"), Wanted(id_column="1")) as source:
        (block,) = source.blocks(10)
    assert block.ids == ["x", "y"] and block.vectors.tolist() == [[1, 2], [3, 4]]


class Stdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


@pytest.mark.parametrize("kind", ["raw", "npy", "csv"])
def test_stdin(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    data = io.BytesIO()
    if kind == "npy":
        np.save(data, ROWS.astype(np.float16))
    elif kind == "csv":
        np.savetxt(data, ROWS, delimiter=",")
    else:
        data.write(ROWS.astype(np.float16).tobytes())
    monkeypatch.setattr(sys, "stdin", Stdin(data.getvalue()))
    wanted = Wanted(dim=6, dtype="float16") if kind == "raw" else Wanted(format=kind)
    with open_source("-", wanted) as source:
        blocks = [block.vectors for block in source.blocks(BLOCK)]
    assert [len(block) for block in blocks] == [300, 300, 300, 100]
    assert np.allclose(np.concatenate(blocks), ROWS, atol=1e-2)


def test_a_raw_file(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(ROWS.tobytes())
    with open_source(str(tmp_path / "a.bin"), Wanted(format="raw", dim=6)) as source:
        assert source.count == 1000


# -- what cannot be read --------------------------------------------------------------------------


def refused(path: Path, wanted: Wanted | None = None) -> str:
    with pytest.raises((LsqIndexError, OSError)) as caught, open_source(str(path), wanted) as source:
        list(source.blocks(BLOCK))
    assert not isinstance(caught.value, LsqIndexError) or isinstance(caught.value, InputError)
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".fvecs", ".parquet", ".arrow", ".feather", ".hdf5", ".csv"])
@pytest.mark.parametrize("content", [b"", b"garbage, that is of no format at all \xff\xfe\x00" * 20])
def test_garbage(tmp_path: Path, suffix: str, content: bytes) -> None:
    (tmp_path / f"a{suffix}").write_bytes(content)
    assert f"a{suffix}" in refused(tmp_path / f"a{suffix}")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "z.npz", "a.fvecs", "a.parquet", "a.hdf5"])
def test_a_file_that_is_cut_off(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    {**WITH_IDS, **WITHOUT}[name](path)
    path.write_bytes(path.read_bytes()[:-1001])
    assert name in refused(path)


def test_fvecs_of_changing_dimensions(tmp_path: Path) -> None:
    vecs(tmp_path / "a.fvecs", ROWS, "<f4")
    data = bytearray((tmp_path / "a.fvecs").read_bytes())
    data[28 * 500] = 7
    (tmp_path / "a.fvecs").write_bytes(data)
    assert "7 dimensions" in refused(tmp_path / "a.fvecs")


def test_names_that_tell_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_bytes(b"1")
    assert "--format" in refused(tmp_path / "a.xyz")
    assert "unknown" in refused(tmp_path / "a.xyz", Wanted(format="xyz"))
    assert "no such file" in refused(tmp_path / "none.npy")
    assert "directory" in refused(tmp_path)


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet")
    assert "did you mean 'vector'" in refused(tmp_path / "a.parquet", Wanted(column="vectors"))
    assert "no column 'key'" in refused(tmp_path / "a.parquet", Wanted(id_column="key"))
    assert "lists of numbers" in refused(tmp_path / "a.parquet", Wanted(column="name"))
    hdf5(tmp_path / "a.hdf5")
    assert "no dataset 'tests'" in refused(tmp_path / "a.hdf5", Wanted(dataset="tests"))
    np.savez(tmp_path / "two.npz", a=ROWS, b=ROWS)
    assert "a, b; choose one with --dataset" in refused(tmp_path / "two.npz")
    csv(tmp_path / "a.csv")
    assert "no column 'key'" in refused(tmp_path / "a.csv", Wanted(id_column="key"))
    np.save(tmp_path / "a.npy", ROWS)
    assert "--column has no meaning" in refused(tmp_path / "a.npy", Wanted(column="v"))
    pyarrow.parquet.write_table(pa.table({"x": [1, 2]}), tmp_path / "b.parquet")
    assert "no column has vectors" in refused(tmp_path / "b.parquet")


def test_rows_that_do_not_fit(tmp_path: Path) -> None:
    for rows, told in (([[1.0, 2.0], [1.0]], "row 1 has 1 numbers"), ([[1.0], None], "row 1 has no vector")):
        pyarrow.parquet.write_table(pa.table({"v": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "a.parquet")
        assert told in refused(tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pa.table({"v": pa.array([[1.0], [None]])}), tmp_path / "a.parquet")
    assert "row 1 has an empty number" in refused(tmp_path / "a.parquet")
    for text, told in (("1,2\n3\n", "line 2 has 1 numbers"), ("1,2\n3,x\n", "line 2 has 'x'"), ("a,b\n1,\n", "line 2")):
        (tmp_path / "a.csv").write_text(text)
        assert told in refused(tmp_path / "a.csv")


def test_raw_numbers_need_dimensions(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    index = str(tmp_path / "a.lsq")
    assert main(["create", index, "--dim", "6"]) == 0
    monkeypatch.setattr(sys, "stdin", Stdin(b"12345"))
    assert main(["add", index, "-"]) == 2
    assert main(["add", index, "-", "--dim", "6", "--dtype", "str"]) == 2
    assert main(["add", index, "-", "--dim", "6"]) == 3
    assert "truncated" in capfd.readouterr().err


def test_wrong_dimensions(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", ROWS)
    assert main(["create", str(tmp_path / "a.lsq"), "--dim", "7"]) == 0
    assert main(["add", str(tmp_path / "a.lsq"), str(tmp_path / "a.npy")]) == 3
    assert "has 6 dimensions" in capfd.readouterr().err
