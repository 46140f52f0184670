"""A file that an interrupt left open while it was being opened."""

from pathlib import Path

import pytest

from lsqindex import Index
from lsqindex._storage.lmdb import registry
from lsqindex._storage.lmdb.env import Env


def test_it_is_closed_with_the_next_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / name for name in ("one.lsq", "other.lsq")]
    for path in paths:
        Index.create(path, 4).close()

    class Interrupted(registry.Lease):
        def __init__(self, env: Env) -> None:
            raise KeyboardInterrupt

    index = Index.open(paths[0])
    with monkeypatch.context() as patch:
        patch.setattr(registry, "Lease", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            Index.open(paths[1])
    assert str(paths[1]) in registry.by_path
    index.close()
    assert not registry.by_path
    Index.open(paths[1]).close()
    assert not registry.by_path
