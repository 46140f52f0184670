"""Errors of creating, opening, training and closing: typed, told with cause and remedy."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Encoder, Index, LsqIndexError, make_encoder
from lsqindex.encoders import Layout
from lsqindex.errors import (
    ClosedError,
    IndexExistsError,
    IndexMissingError,
    NotAnIndexError,
    NoVectorsError,
    ParameterError,
    ReadOnlyError,
    StorageError,
    TooFewVectorsError,
    UnknownEncoderError,
    VectorError,
)
from tests.processes import run

from .refusals import TWO, VECTORS, Seen, names, refused

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
    (
        {"encoder": make_encoder("lsh", bits=8), "bits": 8},
        ("parameters can be passed only with the name of an encoder",),
    ),
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
    words = (repr(name), near, "did you mean" if near else "", "ckmeans", "flat", "itq", "install its package")
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
        words = ("does not exist", "Index.create")
        refused(IndexMissingError, FileNotFoundError, words, lambda: Index.open(tmp_path / "no.lsq"))
        refused(IndexMissingError, FileNotFoundError, words, lambda: Index.open(tmp_path / "no.lsq", read_only=True))
        refused(NotAnIndexError, ValueError, (str(text), "not an index"), lambda: Index.open(text))
        words = (str(text), "not an index", "not changed")
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
    words = ("the batch is not open", "with index.batch()")
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
    run(PLUGIN, path, train_size)
    content = path.read_bytes()
    words = ("'lsh-of-mine'", "Available", "install its package", "import the module that registers it")
    with Index.open(path, read_only=read_only) as index:
        assert len(index) == 60
        refused(UnknownEncoderError, KeyError, words, lambda: index.encoder)
    assert path.read_bytes() == content
