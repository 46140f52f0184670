"""Work that later adds would do, done at once: ``merge()``, and building another subset structure."""

from __future__ import annotations

from collections.abc import Callable

from .._inputs.options import thread_count
from .._storage.format.meta import Options, review_due
from .._storage.lmdb.writer import Writer
from .._subsets import stored as subsets
from .._subsets.base import Progress, Structure
from ..encoders.coder import Coder
from . import retraining


def merge(writer: Writer, options: Options, coder_of: Callable[[Writer], Coder], progress: Progress | None) -> None:
    """Finish a retraining that is under way, look whether another is due, and list all fresh rows; commits."""
    coder = coder_of(writer)
    for _ in range(2):  # finish what was begun; then see whether the encoder still suits the vectors
        if not writer.state.next_generation and not review_due(writer, retraining.LOOK_SOON):
            break
        writer.commit()
        retraining.review(writer, options, coder)
        retraining.catch_up(writer, options, coder, thread_count(None))
        writer.begin()
        coder = coder_of(writer)
    structure = subsets.of(writer, coder)
    if structure is not None:
        chosen = structure.chosen_for(coder, writer.state.count)
        relist(writer, chosen if structure.outgrown(chosen) else structure, progress)


def relist(writer: Writer, structure: Structure | None, progress: Progress | None) -> None:
    """Make ``structure`` the subset structure, if it is not, and list everything; commits."""
    if structure != subsets.read(writer):
        writer.run(lambda writer: subsets.put(writer, structure))
    if structure is None:
        writer.commit()
    else:
        structure.catch_up(writer, everything=True, progress=progress)
