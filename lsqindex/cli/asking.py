"""Asking an index: ``search``, ``get``, ``info``, ``check``; and which ``encoders`` there are."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, Any

import numpy as np
import typer

from .. import Index, available_encoders
from ..encoders.registry import distribution_of, encoder_class
from ..errors import DamagedError, LsqIndexError, NewerFormatError, NotAnIndexError
from . import options as opt
from . import show
from .remedies import for_the_shell
from .source import InputError, Wanted
from .sources import open_source
from .values import id_kind, ids_asked, read_filter

#: Queries that are searched, and printed, at a time.
_AT_ONCE = 1024


def search(
    path: opt.IndexFile,
    queries: Annotated[
        str,
        typer.Argument(metavar="QUERIES", help="A file of vectors, as for add; or queries as a JSON list."),
    ],
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Number of nearest neighbours.")] = 10,
    strategy: Annotated[
        opt.Strategy, typer.Option(help="Scan all codes, or only the candidates of the multi-index.")
    ] = "auto",
    distance: Annotated[opt.Ranking, typer.Option(help="How queries are compared with codes.")] = "auto",
    rerank: Annotated[
        int | None,
        typer.Option(min=0, help="Candidates to re-rank by kept vectors; as many as needed if not given."),
    ] = None,
    probes: Annotated[int | None, typer.Option(min=1, help="Multi-index: number of buckets to read.")] = None,
    candidates: Annotated[int | None, typer.Option(min=1, help="Multi-index: number of rows to rank.")] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="IDS|FILE|JSON", help='Find only these: 1,2,3, a file of ids, or \'{"lang": "en"}\'.'
        ),
    ] = None,
    threads: opt.Threads = None,
    file_format: opt.Format = None,
    column: opt.Column = None,
    dataset: opt.Dataset = None,
    dim: opt.RawDim = None,
    dtype: opt.RawType = None,
    as_json: opt.Json = False,
) -> None:
    """Find the nearest vectors of each query. Smaller is nearer, in every metric.

    \b
    Example: lsqindex search news.lsq queries.npy --k 5
             lsqindex search news.lsq '[0.1, 0.7, -0.2, 0.4]' --filter 10,11,12 --json
             lsqindex search news.lsq queries.npy --filter '{"lang": "en", "year": {"$gte": 2020}}'
             lsqindex search sift.lsq sift.hdf5 --dataset test --strategy subset --probes 200
    """
    wanted = Wanted(file_format, column, None, dataset, dim, dtype)
    with ExitStack() as stack:
        index = stack.enter_context(Index.open(path, read_only=True))
        asked: dict[str, Any] = {
            "k": k,
            "strategy": strategy,
            "distance": distance,
            "probes": probes,
            "candidates": candidates,
            "filter": read_filter(only, id_kind(index)),
            "threads": threads,
        }
        if rerank is not None:
            asked["rerank"] = rerank
        answers = _answers(index, _query_blocks(stack, queries, wanted), asked)
        if as_json:
            _print_answers_json(answers)
        else:
            rows = ((query, *match) for query, found in answers for match in _ranked(found))
            show.print_table(["query", "rank", "id", "distance"], rows)


def _query_blocks(stack: ExitStack, queries: str, wanted: Wanted) -> Iterator[Any]:
    if not queries.lstrip().startswith("["):
        source = stack.enter_context(open_source(queries, wanted))
        return (block.vectors for block in source.blocks(_AT_ONCE))
    try:
        rows = np.asarray(json.loads(queries), np.float32)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"queries: not a JSON list of numbers, or of lists of equal length ({error})") from None
    return iter([rows[None] if rows.ndim == 1 else rows])


def _answers(index: Index, blocks: Iterator[Any], asked: dict[str, Any]) -> Iterator[tuple[int, list[Any]]]:
    """(number of the query, its matches); and a word on stderr where a filter lets nothing through."""
    number = matches = 0
    for block in blocks:
        for found in index.search(block, **asked).items():
            yield number, found
            number += 1
            matches += len(found)
    if asked["filter"] is not None and number and not matches and not len(index.ids(asked["filter"])):
        by_payload = isinstance(asked["filter"], dict)
        none = "no payload matches" if by_payload else "none of these ids is in the index"
        show.complain(f"--filter: {none}; nothing can be found")


def _ranked(found: list[Any]) -> Iterator[tuple[int, Any, float]]:
    for rank, (name, distance) in enumerate(found, 1):
        yield rank, str(name), distance


def _print_answers_json(answers: Iterator[tuple[int, list[Any]]]) -> None:
    """A JSON list with an object for each query, in a line of its own, as they come."""
    print("[", end="")
    for number, found in answers:
        matches = [{"id": name, "distance": distance} for name, distance in found]
        print("\n " if number == 0 else ",\n ", show.json_text({"query": number, "matches": matches}), sep="", end="")
    print("\n]")


def get(
    path: opt.IndexFile,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Ids; put -- before ids that begin with -.")
    ] = None,
    file: Annotated[str | None, typer.Option("--ids", metavar="FILE", help="Or a file of ids.")] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Write a .npy file.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Print vectors by id: as they were added if they are kept, otherwise reconstructed from their codes.

    \b
    Example: lsqindex get news.lsq 17 18
             lsqindex get news.lsq --ids some.txt -o some.npy
    """
    with Index.open(path, read_only=True) as index:
        names = ids_asked(ids, file, id_kind(index))
        vectors = index.get(names)
    if output is not None:
        np.save(output if output.endswith(".npy") else f"{output}.npy", vectors)
    listed = [name if isinstance(name, str) else int(name) for name in names]
    if as_json:
        show.print_json([{"id": name, "vector": row} for name, row in zip(listed, vectors.tolist(), strict=True)])
    elif output is None:
        shown = ([str(name), _short(row)] for name, row in zip(listed, vectors, strict=True))
        show.print_table(["id", "vector"], shown)


def _short(row: Any) -> str:
    return str(np.array2string(row, precision=4, threshold=8, edgeitems=4, max_line_width=10_000)[1:-1])


def info(path: opt.IndexFile, as_json: opt.Json = False) -> None:
    """Print facts about an index: vectors, encoder, bytes.

    \b
    Example: lsqindex info news.lsq
    """
    with Index.open(path, read_only=True) as index:
        facts = index.stats()
    if as_json:
        show.print_json(facts)
        return
    facts["parameters"] = ", ".join(f"{name}={value}" for name, value in facts["parameters"].items())
    if facts["training"]:
        told = facts["training"].items()
        facts["training"] = ", ".join(
            f"{name}={value:.3g}" if type(value) is float else f"{name}={value}" for name, value in told
        )
    for name in ("posting_bytes", "file_bytes", "free_bytes"):
        facts[name] = f"{facts[name]:,} ({show.size_text(facts[name])})" if facts[name] >= 1000 else facts[name]
    show.print_facts(facts)


def check(path: opt.IndexFile, as_json: opt.Json = False) -> None:
    """Verify every page, checksum and reference. The exit code is 1 if something is wrong.

    \b
    Example: lsqindex check news.lsq && echo sound
    """
    try:
        with Index.open(path, read_only=True) as index:
            found = index.check()
    except NewerFormatError:
        raise
    except (DamagedError, NotAnIndexError) as error:
        found = [str(error)]
    found = [for_the_shell(problem) for problem in found]
    if as_json:
        show.print_json({"path": str(path), "sound": not found, "problems": found})
    elif found:
        for problem in found:
            show.say(problem)
    else:
        show.say(f"{path}: sound")
    if found:
        raise typer.Exit(1)


def encoders(as_json: opt.Json = False) -> None:
    """List the available encoders, including those of installed plugins.

    \b
    Example: lsqindex encoders
    """
    known = [_told(name) for name in available_encoders()]
    if as_json:
        show.print_json(known)
        return
    show.print_table(
        ["encoder", "what it is", "parameters", "from"],
        ([one["name"], one["what"], ", ".join(one["parameters"]), one["from"]] for one in known),
    )


def _told(name: str) -> dict[str, Any]:
    """What is known of an encoder; of a plugin that cannot be loaded, why."""
    try:
        cls = encoder_class(name)
    except LsqIndexError as error:
        return {"name": name, "what": f"cannot be loaded: {for_the_shell(str(error))}", "parameters": {}, "from": ""}
    taken = {
        key: None if parameter.default is parameter.empty else parameter.default
        for key, parameter in inspect.signature(cls).parameters.items()
    }
    what = (inspect.getdoc(cls) or "").partition("\n")[0].replace("``", "")
    return {"name": name, "what": what, "parameters": taken, "from": " ".join(distribution_of(cls))}
