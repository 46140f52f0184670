"""``demo``: the main job on real images, small.

The data, ``digits.npz``, are 1,797 handwritten digits of 64 pixels: the test set of E. Alpaydin and C. Kaynak, Optical
Recognition of Handwritten Digits (UCI Machine Learning Repository, 1998, CC BY 4.0), which scikit-learn has as well.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from .. import Index
from . import options as opt
from . import show
from .source import MissingPackageError
from .trials import exact, recall

_EVERY = 9  # every ninth image is a query: the images stand in the order of their writers, and all should ask
_K, _RERANK, _DRAWN, _TIMINGS = 10, 50, 12, 5
_ENCODERS: dict[str, dict[str, Any]] = {
    "lsq": {"bits": 64},
    "ckmeans": {"bits": 64, "field_bits": 4},
    "pq": {"bits": 64, "field_bits": 4},
    "itq": {"bits": 64},
    "okmeans": {"bits": 64},
    "lsh": {"bits": 64},
}


@dataclass
class _Digits:
    """The images: those that are indexed, and queries that are not among them."""

    images: NDArray[np.float32]
    labels: NDArray[Any]
    queries: NDArray[np.float32]
    query_labels: NDArray[Any]


def demo(
    folder: Annotated[
        Path | None, typer.Option("--dir", file_okay=False, help="Where the index goes; a new temporary directory.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Where the picture goes; digits.png in that directory.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Index real images in a file, search it from another process, swap encoders, draw what was found.

    \b
    Example: lsqindex demo
             lsqindex demo --dir digits --picture neighbours.png
    """
    digits = _load()
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="lsqindex-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    path, picture = folder / "digits.lsq", picture or folder / "digits.png"
    truth = exact(digits.images, digits.queries, "l2", _K)
    if not as_json:
        show.say(
            f"{len(digits.images):,} handwritten digits of 8 × 8 pixels, and {len(digits.queries)} others as queries"
        )
    with Index.create(path, dim=64, keep_vectors="float16", train_size=1000, encoder="lsq", bits=64) as index:
        index.add(digits.images)
        rows = [_by_force(digits), *(_swapped(index, name, digits, truth) for name in _ENCODERS)]
        index.reencode("lsq", **_ENCODERS["lsq"])
        stats, problems = index.stats(), index.check()
    ids, seconds = _elsewhere(path, folder, digits)
    _draw(picture, digits, ids)
    if as_json:
        told = {"index": stats, "problems": problems, "encoders": rows, "same_digit": _same_digit(digits, ids)}
        show.print_json({**told, "picture": str(picture)})
        return
    titles = ["encoder", "bytes", f"recall{_K}@{_K}", "re-ranked", "queries/s", "swapped in s"]
    show.print_table(titles, (_cells(row) for row in rows))
    show.say(
        f"{path}: {stats['vectors']:,} vectors, {show.size_text(stats['file_bytes'])}; check: {problems or 'sound'}"
    )
    show.say(
        f"another process opened it and searched {len(ids)} queries in {seconds:.2f} s, including the start of Python:"
    )
    for label, found in zip(digits.query_labels[:3], ids, strict=False):
        show.say(f"  a {label} finds {' '.join(map(str, digits.labels[found]))}")
    show.say(
        f"{_same_digit(digits, ids):.1%} of the neighbours show the digit of the query; "
        f"of the true neighbours, {_same_digit(digits, truth):.1%} do"
    )
    show.say(f"picture of {_DRAWN} queries and their neighbours: {picture}")
    show.say(f"\nGo on: lsqindex info {path}")


def _cells(row: dict[str, Any]) -> list[Any]:
    digits = {"recall": 3, "reranked": 3, "seconds": 2}
    return [f"{value:.{digits[key]}f}" if key in digits and value is not None else value for key, value in row.items()]


def _load() -> _Digits:
    if importlib.util.find_spec("PIL") is None:
        raise MissingPackageError("the demo needs Pillow, which is missing: pip install 'lsqindex[demo]'")
    with np.load(Path(__file__).with_name("digits.npz")) as data:
        images, labels = data["images"].astype(np.float32), data["labels"]
    asks = np.arange(len(images)) % _EVERY == 0
    return _Digits(images[~asks], labels[~asks], images[asks], labels[asks])


def _same_digit(digits: _Digits, ids: Any) -> float:
    """The share of the neighbours that show the digit of their query."""
    return float(np.mean(digits.labels[np.asarray(ids)] == digits.query_labels[:, None]))


def _rate(queries: int, search: Callable[[], Any]) -> int:
    """Queries per second, all of them in one call; the best of several runs, for NumPy and for the index alike."""
    best = float("inf")
    for _ in range(_TIMINGS):
        begin = time.perf_counter()
        search()
        best = min(best, time.perf_counter() - begin)
    return round(queries / best)


def _by_force(digits: _Digits) -> dict[str, Any]:
    """The first row of the table: all distances by NumPy."""
    rate = _rate(len(digits.queries), lambda: exact(digits.images, digits.queries, "l2", _K))
    return {"encoder": "brute force", "bytes": 4 * 64, "recall": 1.0, "reranked": None, "rate": rate, "seconds": None}


def _swapped(index: Index, name: str, digits: _Digits, truth: Any) -> dict[str, Any]:
    """Another encoder in the same file: codes and encoder change in one transaction."""
    begin = time.perf_counter()
    index.reencode(name, **_ENCODERS[name])
    swapped = time.perf_counter() - begin
    plain, again = (recall(index.search(digits.queries, _K, rerank=r).ids, truth) for r in (0, _RERANK))
    rate = _rate(len(digits.queries), lambda: index.search(digits.queries, _K, rerank=0))
    size = index.encoder.code_size
    return {
        "encoder": name,
        "bytes": size,
        "recall": round(plain, 3),
        "reranked": round(again, 3),
        "rate": rate,
        "seconds": round(swapped, 2),
    }


def _elsewhere(path: Path, folder: Path, digits: _Digits) -> tuple[list[list[int]], float]:
    """What this command line, in another process, finds in the file; and how long all of that took."""
    queries = folder / "queries.npy"
    np.save(queries, digits.queries)
    words = ["-m", "lsqindex", "search", str(path), str(queries), f"--k={_K}", f"--rerank={_RERANK}", "--json"]
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    return [[match["id"] for match in answer["matches"]] for answer in json.loads(done.stdout)], seconds


def _draw(picture: Path, digits: _Digits, ids: list[list[int]]) -> None:
    from .picture import draw

    queries, images = (drawn.reshape(-1, 8, 8) / 16 for drawn in (digits.queries[:_DRAWN], digits.images))
    draw(picture, queries, digits.query_labels[:_DRAWN], images, digits.labels, ids[:_DRAWN])
