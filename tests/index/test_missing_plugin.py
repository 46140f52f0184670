"""An index whose encoder is a plugin that is not installed here: what works without it, and what says what to install.

The plugin is installed by pip into a folder that only the processes see which write the files.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Cells, Index, MultiIndex, make_encoder, register_encoder
from lsqindex.cli import main
from lsqindex.encoders import registry
from lsqindex.encoders.lsh import LSH
from lsqindex.errors import LsqIndexError, NewerEncoderError, NoVectorsError, UnknownEncoderError
from tests.processes import run

DIM, ROWS = 8, 300
VECTORS: NDArray[np.float32] = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)
QUERIES: NDArray[np.float32] = np.random.default_rng(1).standard_normal((5, DIM)).astype(np.float32)

#: Deleted by the process that writes the file.
GONE = {3, 7}
LEFT = [i for i in range(ROWS) if i not in GONE]

MAKE = """
    import json, sys
    import numpy as np
    from lsqindex import Index
    path, options = sys.argv[1], json.loads(sys.argv[2])
    vectors = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    with Index.create(path, 8, encoder="sign-pca", bits=8, fields=["n"], **options) as index:
        index.add(vectors, payloads=[{"n": i % 10, "free": i % 3} for i in range(300)])
        index.merge()
        index.delete([3, 7])
        assert index.encoder.name == "sign-pca" and index.check() == []
"""
#: With the plugin again: the file is sound, and its codes are those of the vectors.
LOOK = """
    import json, sys
    import numpy as np
    from lsqindex import Index
    vectors = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    with Index.open(sys.argv[1]) as index:
        assert index.check() == [], index.check()
        ids = index.ids()
        decoded = index.encoder.decode(index.encoder.encode(vectors[ids])) if index.is_trained else vectors[ids]
        if index.stats()["keep_vectors"] is None:
            assert np.array_equal(index.get(ids), decoded)
            nearest = ((vectors[:9, None] - decoded) ** 2).sum(axis=2).min(axis=1)
            assert np.allclose(index.search(vectors[:9], 1).distances[:, 0], nearest, atol=1e-4)
        print(json.dumps([ids.tolist(), index.subset is not None]))
"""

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def made(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Copies of files that a process with the plugin has written, one for each set of options."""
    folder, known = tmp_path_factory.mktemp("made"), dict[str, bytes]()

    def make(path: Path, *, trained: bool, **options: Any) -> Path:
        given = json.dumps({**options, "train_size": 100 if trained else 1000}, sort_keys=True)
        if given not in known:
            new = folder / f"{len(known)}.lsq"
            run(MAKE, str(new), given, paths=[installed])
            known[given] = new.read_bytes()
        path.write_bytes(known[given])
        return path

    return make


def needs_plugin(action: Callable[[], object]) -> None:
    """It raises the error that says what to install."""
    with pytest.raises(UnknownEncoderError) as caught:
        action()
    told = str(caught.value)
    assert "'sign-pca'" in told
    assert told.count("pip install lsqindex-sign-pca") == 1, told


KINDS = [(trained, kept) for trained in (True, False) for kept in (None, "float16", "float32", "int8")]


@pytest.mark.parametrize(("trained", "kept"), KINDS)
@pytest.mark.parametrize("read_only", [True, False])
def test_reading_without_the_encoder(made: Make, tmp_path: Path, trained: bool, kept: Any, read_only: bool) -> None:
    path = made(tmp_path / "index.lsq", trained=trained, keep_vectors=kept)
    content = path.read_bytes()
    with Index.open(path, read_only=read_only) as index:
        assert (len(index), index.is_trained, index.dim, index.metric) == (ROWS - 2, trained, DIM, "l2")
        assert index.ids().tolist() == LEFT and 5 in index and 3 not in index
        assert index.payloads([5, 8]) == [{"n": 5, "free": 2}, {"n": 8, "free": 2}]
        assert index.ids({"n": 4, "free": {"$lt": 2}}).tolist() == [i for i in LEFT if i % 10 == 4 and i % 3 < 2]
        assert "sign-pca is not available here" in repr(index) and index.subset == Cells()
        stats = index.stats()
        assert (stats["encoder"], stats["parameters"], stats["trained"]) == ("sign-pca", {"bits": 8}, trained)
        assert stats["encoder_available"] is False
        assert stats["code_bytes"] == (1 if trained else 4 * DIM)
        needs_plugin(lambda: index.encoder)
        if kept is None and trained:
            needs_plugin(lambda: index.get([5]))
            needs_plugin(lambda: index.search(QUERIES))
        else:
            step = {"int8": 0.03, "float16": 0.002}.get(kept if trained else "", 0)
            assert np.allclose(index.get(LEFT), VECTORS[LEFT], rtol=0, atol=step)
            assert index.search(VECTORS[5], 1, with_payloads=True).payloads == [{"n": 5, "free": 2}]
        found = index.check()
        if trained:
            assert len(found) == 1 and found[0].startswith("codes: could not be checked without their encoder: ")
            assert "pip install lsqindex-sign-pca" in found[0]
        else:
            assert found == []
    assert path.read_bytes() == content


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("kept", ["float32", "int8"])
def test_kept_vectors_are_searched_exactly(made: Make, tmp_path: Path, metric: str, kept: str) -> None:
    path = made(tmp_path / "index.lsq", trained=True, keep_vectors=kept, metric=metric)
    with Index.open(path) as index:
        stored = index.get(LEFT).astype(np.float64)
        for filter, names in ((None, LEFT), ({"n": {"$gte": 5}}, [i for i in LEFT if i % 10 >= 5])):
            rows = stored[[LEFT.index(name) for name in names]]
            wanted = distances(QUERIES.astype(np.float64), rows, metric)
            for asked in ({}, {"rerank": 50}, {"strategy": "scan"}):
                found = index.search(QUERIES, 7, filter=filter, **asked)
                assert found.ids.tolist() == np.array(names)[np.argsort(wanted, axis=1)[:, :7]].tolist()
                assert np.allclose(found.distances, np.sort(wanted, axis=1)[:, :7], atol=1e-4)
        told = index.explain(QUERIES, 7)
        assert told.strategy == "scan" and "sign-pca is not available here" in told.why
        assert told.rows == told.reranked == len(QUERIES) * len(LEFT)
        assert index.search(QUERIES, 3, filter=[]).ids.tolist() == [[-1] * 3] * 5
        assert index.search(np.empty((0, DIM)), 3).ids.shape == (0, 3)
        # What is of codes is refused, and not answered otherwise.
        needs_plugin(lambda: index.search(QUERIES, distance="asymmetric"))
        needs_plugin(lambda: index.search(QUERIES, distance="symmetric"))


def distances(queries: NDArray[Any], rows: NDArray[Any], metric: str) -> NDArray[Any]:
    if metric == "l2":
        return np.asarray(((queries[:, None] - rows[None]) ** 2).sum(axis=2))
    if metric == "cosine":
        queries, rows = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (queries, rows))
    return np.asarray((metric == "cosine") - queries @ rows.T)


@pytest.mark.parametrize(("trained", "kept"), [(True, None), (True, "float16"), (False, None), (False, "int8")])
@pytest.mark.parametrize("subset", [None, "multi-index"])
def test_writing_without_the_encoder(
    made: Make, installed: Path, tmp_path: Path, trained: bool, kept: Any, subset: Any
) -> None:
    path = made(tmp_path / "index.lsq", trained=trained, keep_vectors=kept, subset=subset)
    copy, left = tmp_path / "copy.lsq", [i for i in LEFT if i not in (10, 20)]
    with Index.open(path) as index:
        assert index.delete([10, 3]) == 1 and index.delete({"$ids": [20]}) == 1
        index.set_payloads([5], [{"n": "five"}])
        with index.batch() as batch:
            batch.set_payloads(6, {"n": "six"})
            batch.delete([11])
        left.remove(11)
        assert index.ids({"n": {"$in": ["five", "six"]}}).tolist() == [5, 6]
        index.merge()
        index.save(copy)
        index.compact()
        assert index.ids().tolist() == left and [*index.check()][trained:] == []
        assert (index.subset is None) is (subset is None)
    for file in (path, copy):
        assert json.loads(run(LOOK, str(file), paths=[installed])) == [left, subset is not None]


@pytest.mark.parametrize("kept", [None, "float16"])
def test_what_needs_the_encoder_changes_nothing(made: Make, installed: Path, tmp_path: Path, kept: Any) -> None:
    path = made(tmp_path / "index.lsq", trained=True, keep_vectors=kept, subset="multi-index")
    with Index.open(path) as index:
        assert index.subset == MultiIndex()
        needs_plugin(lambda: index.add(VECTORS[:2]))
        needs_plugin(lambda: index.add(iter([VECTORS[:2]])))
        needs_plugin(lambda: index.add(VECTORS[:1], ids=[5], upsert=True))
        needs_plugin(lambda: index.add(VECTORS[:0]))
        needs_plugin(lambda: index.set_subset(MultiIndex(bits=4)))
        needs_plugin(lambda: index.search(QUERIES, strategy="subset"))
        needs_plugin(lambda: index.search(QUERIES, distance="score"))
        with index.batch() as batch:
            needs_plugin(lambda: batch.add(VECTORS[:2]))
            batch.delete([0])
        if kept:
            needs_plugin(index.train)
        else:
            with pytest.raises(NoVectorsError):
                index.train()
        assert index.ids().tolist() == LEFT[1:]
        assert index.set_subset(None).subset is None
    assert json.loads(run(LOOK, str(path), paths=[installed])) == [LEFT[1:], False]


def test_an_index_that_is_not_trained_takes_vectors_until_it_must_be(
    made: Make, installed: Path, tmp_path: Path
) -> None:
    path = made(tmp_path / "index.lsq", trained=False, keep_vectors=None)
    with Index.open(path) as index:
        index.add(VECTORS[[3, 7]], ids=[3, 7])
        many = np.tile(VECTORS, (3, 1))
        needs_plugin(lambda: index.add(many, ids=np.arange(1000, 1900)))
        needs_plugin(index.train)
        assert index.ids().tolist() == list(range(ROWS)) and index.check() == []
        assert index.search(VECTORS[7], 1).ids.tolist() == [7]
    assert json.loads(run(LOOK, str(path), paths=[installed])) == [list(range(ROWS)), True]


@pytest.mark.parametrize(("trained", "kept"), [(True, "float16"), (True, "int8"), (False, None)])
@pytest.mark.parametrize("encoder", ["lsq", "flat"])
def test_another_encoder_takes_over(made: Make, tmp_path: Path, trained: bool, kept: Any, encoder: str) -> None:
    path = made(tmp_path / "index.lsq", trained=trained, keep_vectors=kept)
    with Index.open(path) as index:
        index.reencode(make_encoder("lsq", bits=32) if encoder == "lsq" else "flat")
        assert index.encoder.name == encoder and index.is_trained and index.check() == []
        assert index.stats()["encoder_available"] is True
        assert index.search(VECTORS[5], 1, rerank=30).ids.tolist() == [5]
        assert index.add(VECTORS[:2]).tolist() == [300, 301]


def test_codes_alone_cannot_be_encoded_anew(made: Make, tmp_path: Path) -> None:
    with Index.open(made(tmp_path / "index.lsq", trained=True, keep_vectors=None)) as index:
        with pytest.raises(NoVectorsError):
            index.reencode("lsq")
        assert index.ids().tolist() == LEFT


def command(*words: Any, code: int) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main([str(word) for word in words]) == code, err.getvalue()
    return out.getvalue() + err.getvalue()


def test_the_command_line(made: Make, tmp_path: Path) -> None:
    path = made(tmp_path / "index.lsq", trained=True, keep_vectors=None)
    told = json.loads(command("info", path, "--json", code=0))
    assert (told["encoder"], told["encoder_available"], told["parameters"]) == ("sign-pca", False, {"bits": 8})
    assert "bits=8" in command("info", path, code=0)
    assert "could not be checked" in command("check", path, code=1)
    assert "298 vectors" in command("copy", path, tmp_path / "copy.lsq", code=0)
    assert "pip install lsqindex-sign-pca" in command("search", path, json.dumps([0.0] * DIM), code=3)


# -- other ways in which an encoder is not there ------------------------------------------------------


def test_a_plugin_that_cannot_be_loaded(made: Make, tmp_path: Path) -> None:
    path = made(tmp_path / "index.lsq", trained=True, keep_vectors=None)
    (tmp_path / "broken.py").write_text("raise RuntimeError('no licence')")
    info = tmp_path / "lsqindex_sign_pca-0.3.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lsqindex-sign-pca\nVersion: 0.3.0\n")
    (info / "entry_points.txt").write_text("[lsqindex.encoders]\nsign-pca = broken:X\n")
    code = """
        import sys
        from lsqindex import Index
        from lsqindex.errors import PluginError
        with Index.open(sys.argv[1]) as index:
            print(len(index), index.payloads(5)["n"])
            for _ in range(2):
                try:
                    index.get(5)
                except PluginError as error:
                    print(error)
    """
    first, *others = run(code, str(path), paths=[tmp_path]).splitlines()
    assert first == "298 5" and len(others) == 2 and all("no licence" in other for other in others)


def test_an_encoder_of_a_newer_version_is_not_taken_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(LSH):
        version = 2

    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    register_encoder("test-newer")(Newer)
    path = tmp_path / "index.lsq"
    with Index.create(path, DIM, encoder="test-newer", bits=8, train_size=50, keep_vectors="float32") as index:
        index.add(VECTORS)
    monkeypatch.setattr(Newer, "version", 1)
    with Index.open(path) as index:
        assert len(index) == ROWS and np.array_equal(index.get(5), VECTORS[5])
        with pytest.raises(NewerEncoderError, match="version 2 is newer than 1; upgrade its package"):
            index.add(VECTORS[:1])
        assert index.search(VECTORS[5], 1).ids.tolist() == [5]
    monkeypatch.setattr(Newer, "version", 2)
    with Index.open(path) as index:
        assert index.add(VECTORS[:1]).tolist() == [ROWS] and index.check() == []


def test_an_encoder_that_is_registered_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(LSH):
        pass

    without = dict(registry._registered)
    monkeypatch.setattr(registry, "_registered", dict(without))
    register_encoder("test-late")(Late)
    path = tmp_path / "index.lsq"
    with Index.create(path, DIM, encoder="test-late", bits=8, train_size=50, keep_vectors=None) as index:
        index.add(VECTORS)
        wanted = index.search(QUERIES).ids.tolist()
    monkeypatch.setattr(registry, "_registered", without)
    with Index.open(path) as index:
        with pytest.raises(LsqIndexError, match="test-late"):
            index.search(QUERIES)
        register_encoder("test-late")(Late)
        assert index.search(QUERIES).ids.tolist() == wanted and index.check() == []
