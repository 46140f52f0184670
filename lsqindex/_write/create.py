"""A new index: its options, encoder and subset structure, in a new file or in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .._inputs.options import Path, make_options, new_path
from .._storage.format import keys
from .._storage.format.meta import Options
from .._storage.lmdb import files
from .._storage.lmdb.env import Env
from .._storage.lmdb.in_memory import memory_env
from .._storage.lmdb.registry import Lease
from .._storage.lmdb.writer import Writer, write
from .._subsets import stored as subsets
from .._subsets.base import Structure
from .._subsets.stored import SubsetLike, check_subset
from ..encoders import Encoder
from ..encoders.base import Metric
from ..encoders.coder import Coder
from ..errors import IndexExistsError


def new_index(
    dim: int,
    metric: Metric,
    encoder: str | Encoder,
    keep_vectors: str | None,
    ids: str,
    train_size: int | None,
    fields: Iterable[str],
    subset: SubsetLike,
    parameters: dict[str, Any],
) -> NewIndex:
    """What an index with these options begins with; ParameterError where one is invalid."""
    asked = check_subset(subset)
    lists = asked is not None and not isinstance(asked, str)
    options, coder = make_options(dim, metric, encoder, keep_vectors, ids, train_size, fields, parameters, lists=lists)
    return NewIndex(options, coder, subsets.begin(asked, coder, 0))


@dataclass(frozen=True)
class NewIndex:
    """What an index begins with, checked."""

    options: Options
    coder: Coder
    subset: Structure | None

    def in_memory(self) -> Lease:
        """An environment without a file that holds it."""
        return memory_env(self._fill)

    def in_file(self, path: Path) -> None:
        """A file at ``path``, which must not exist."""
        name = new_path(path)
        if os.path.lexists(name):
            raise IndexExistsError(f"{name}: the file already exists; open it with Index.open, or remove it first")
        # Written completely under a temporary name, then given its own: nobody ever sees half an index.
        with files.new_file(name) as env:
            self._fill(env)
            try:
                files.place(files.finish(env), os.path.realpath(name))
            except FileExistsError as error:
                raise IndexExistsError(
                    f"{name}: another process has created the file; open it with Index.open"
                ) from error

    def _fill(self, env: Env) -> None:
        with write(env) as writer:
            writer.begin()
            writer.run(self._put)
            writer.commit()

    def _put(self, writer: Writer) -> None:
        writer.put(keys.META, keys.OPTIONS, self.options.to_record())
        writer.put(keys.META, keys.ENCODER, self.coder.to_record())
        if self.subset is not None:
            writer.put(keys.META, keys.SUBSET, self.subset.to_record())
        writer.state.code_size, writer.state.head = self.coder.code_size, self.coder.head
        writer.state.payloads = int(bool(self.options.fields))
