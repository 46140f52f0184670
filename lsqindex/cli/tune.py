"""``tune``: tries ways to index your vectors, and recommends one that keeps the recall you ask for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from ..metrics import MetricName
from . import options as opt
from . import show
from .plot import scatter
from .remedies import for_the_shell
from .source import InputError, Wanted, sampled
from .sources import open_source
from .trials import SAMPLE, OutOfTimeError, Task, Trial, candidates, default, flat, judged, tried

_MARKS = {"lsq": "l", "lsh": "h", "itq": "i", "pq": "p", "ckmeans": "c", "flat": "F", "": "d"}
#: Numbers of all vectors that are held in memory: 1 GB.
_IN_MEMORY = 1 << 28
_QUERIES = 200
#: Fresh queries for each query to choose by.
_FRESH = 2


def tune(
    vectors: opt.Vectors,
    recall: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the true nearest neighbours that must be found.")
    ] = 0.95,
    limit: Annotated[
        int | None, typer.Option("--bytes", min=1, help="Most bytes per vector, everything included.")
    ] = None,
    metric: Annotated[MetricName, typer.Option(help="How distances are measured.")] = "l2",
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Of the k nearest.")] = 10,
    growth: Annotated[
        float, typer.Option(min=1, help="Keep the recall until there are this many times the file's vectors.")
    ] = 2,
    sample: Annotated[
        int | None, typer.Option(min=100, help="Use at most this many vectors of the file, drawn at random.")
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(min=10, help="Vectors held out to choose by; twice as many confirm the choice. 200 by default."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Start no new trial after this time.")] = 120,
    everything: Annotated[bool, typer.Option("--all", help="List all trials, not only the best ones.")] = False,
    file_format: opt.Format = None,
    column: opt.Column = None,
    dataset: opt.Dataset = None,
    dim: opt.RawDim = None,
    dtype: opt.RawType = None,
    as_json: opt.Json = False,
) -> None:
    """Try encoders, sizes and ways to search on your vectors, and recommend one.

    Without --bytes it recommends the fewest bytes that keep the recall; with it, the
    fastest way that fits. The recall is confirmed on all vectors of the file, with
    queries that had no part in the choice, and must hold for --growth times as many.

    \b
    Example: lsqindex tune vectors.npy --recall 0.95
             lsqindex tune vectors.npy --recall 0.9 --bytes 64 --metric cosine
    """
    begin = time.monotonic()
    with open_source(vectors, Wanted(file_format, column, None, dataset, dim, dtype)) as source:
        drawn = sampled(source, min(sample or 1 << 62, max(2 * SAMPLE, _IN_MEMORY // source.dim)))
        name, count = source.name, source.count
    mine = min(_QUERIES, len(drawn) // 10) if queries is None else queries
    held_out = (1 + _FRESH) * mine
    if mine < 10 or len(drawn) - held_out < max(100, 2 * k):
        raise InputError(
            f"{name}: too few vectors to tune on: {len(drawn):,}, of which {held_out} would be held out as queries; "
            "use a larger file or a smaller --queries"
        )
    drawn = drawn[np.random.default_rng(0).permutation(len(drawn))]
    rows, fresh, chosen_by = drawn[held_out:], drawn[mine:held_out], drawn[:mine]
    wanted = growth * max(count or 0, len(drawn))
    task = Task(rows, chosen_by, fresh, metric, k, wanted)
    with Console(stderr=True).status("trying") as status:
        trials, chosen, reached = recommend(task, recall, limit, begin, seconds, status.update)
    if as_json:
        show.print_json(
            {
                "vectors": len(task.rows),
                "wanted_vectors": round(wanted),
                "queries": mine,
                "fresh_queries": len(fresh),
                "reached": reached,
                "create": _create_call(task, chosen),
                "search": _search_call(task, chosen),
                "chosen": asdict(chosen),
                "trials": [asdict(trial) for trial in trials],
                "left_out": task.left_out,
            }
        )
    else:
        _report(task, trials, chosen, reached, recall, limit, everything)


def recommend(
    task: Task, wanted: float, limit: int | None, begin: float, seconds: float, tell: Callable[[str], Any]
) -> tuple[list[Trial], Trial, bool]:
    """All trials, the one to use, and whether it can promise the wanted recall; if none can, the best."""
    task.ends = begin + seconds / 2
    trials = default(task) + flat(task)
    for made in candidates(task.dim, limit):
        left = max(0, task.ends - time.monotonic())
        tell(f"trying {made['encoder']}, {made['bits']} bits; {len(trials)} trials, {left:.0f} s left")
        trials += tried(task, made, limit)

    task.ends = begin + seconds
    rows = _judged_on(task)
    for create in promising(trials, wanted, limit):
        tell(f"building {_arguments(create) or 'an index with the defaults'} with {rows:,} vectors")
        try:
            found = judged(task, create, wanted, rows)
        except OutOfTimeError:
            task.left_out.append(f"all vectors with {_arguments(create) or 'the defaults'}")
            break
        trials = [trial for trial in trials if trial.create != create] + found
        # (The defaults are judged in any case, so that they can be compared.)
        if create and choose(found, wanted, limit)[1]:
            break
    return (trials, *choose(trials, wanted, limit))


def _judged_on(task: Task) -> int:
    """Rows to judge on: all of them, or as many as the slowest encoder encodes in a quarter of the time left."""
    left = max(0.0, task.ends - time.monotonic())
    return int(min(len(task.rows), max(2 * SAMPLE, task.pace * left / 4)))


def promising(trials: list[Trial], wanted: float, limit: int | None) -> list[dict[str, Any]]:
    """How to make indexes that are worth judging, the best first: the defaults, those that are expected to reach
    the recall, then those that might.

    >>> def trial(create, size, recall, expected):
    ...     return Trial(create, {}, size, 100, recall, expected, 1.0, 0.0)
    >>> known = [trial({}, 50, 0.5, 0.4), trial({"bits": 8}, 8, 0.97, 0.91), trial({"bits": 64}, 64, 0.99, 0.98)]
    >>> promising([*known, trial({"bits": 4}, 4, 0.9, 0.8)], 0.95, None)
    [{}, {'bits': 64}, {'bits': 8}]
    """
    fitting = [trial for trial in trials if limit is None or trial.bytes <= limit]
    first = [trial for trial in fitting if not trial.create]
    likely = sorted((t for t in fitting if t.expected >= wanted), key=lambda trial: _preferred(trial, limit))
    # Recall falls as an index grows: what a sample misses by more than chance is out of reach.
    possible = [t for t in fitting if t.expected < wanted <= t.recall + 0.01]
    possible.sort(key=lambda trial: -trial.expected)
    found: list[dict[str, Any]] = []
    for trial in [*first, *likely, *possible]:
        if trial.create not in found:
            found.append(trial.create)
    return found


def choose(trials: list[Trial], wanted: float, limit: int | None) -> tuple[Trial, bool]:
    """The trial to use, and whether it can promise the wanted recall within the limit; if none can, the best."""
    fitting = [trial for trial in trials if limit is None or trial.bytes <= limit]
    good = [trial for trial in fitting if trial.promised is not None and trial.promised >= wanted]
    if good:
        return min(good, key=lambda trial: _preferred(trial, limit)), True
    known = [trial for trial in fitting if trial.promised is not None] or fitting or trials
    return max(known, key=lambda trial: (trial.promised or 0, trial.expected, -trial.bytes)), False


def _preferred(trial: Trial, limit: int | None) -> tuple[float, float]:
    """The smallest first; where a limit says what is small enough, the fastest."""
    size, rate = float(trial.bytes), trial.queries_per_second
    return (size, -rate) if limit is None else (-rate, size)


def unbeaten(trials: list[Trial]) -> list[Trial]:
    """Those of which no other has fewer bytes and more recall; and the defaults and the vectors, to compare."""
    best, found = -1.0, []
    for trial in sorted(trials, key=lambda trial: (trial.bytes, -trial.expected, -trial.queries_per_second)):
        if trial.expected > best:
            best = trial.expected
            found.append(trial)
        elif trial.exact or not trial.create:
            found.append(trial)
    return found


def _report(
    task: Task, trials: list[Trial], chosen: Trial, reached: bool, recall: float, limit: int | None, everything: bool
) -> None:
    wanted = round(task.wanted or len(task.rows))
    show.say(
        f"{len(task.rows):,} vectors of {task.dim} dimensions, {task.metric}; "
        f"{len(task.queries)} queries to choose by, {len(task.fresh)} to confirm\n"
    )
    shown = sorted(trials, key=lambda trial: (trial.bytes, trial.expected)) if everything else unbeaten(trials)
    if chosen not in shown:
        shown = sorted([*shown, chosen], key=lambda trial: (trial.bytes, trial.expected))
    show.print_table(
        [
            "encoder",
            "vectors kept",
            "search",
            "bytes",
            "tried on",
            f"recall{task.k}@{task.k}",
            f"with {wanted:,}",
            "queries/s",
            "trained in s",
        ],
        (
            [
                _arguments({"": trial.encoder, **_parameters(trial)}) if trial.create else "defaults",
                trial.create.get("keep_vectors", "") or "",
                _arguments(trial.search),
                trial.bytes,
                trial.rows,
                f"{trial.recall:.3f}",
                f"{trial.expected:.3f}",
                round(trial.queries_per_second),
                f"{trial.train_seconds:.1f}",
            ]
            for trial in shown
        ),
        strong=lambda i: shown[i] is chosen,
    )
    points = [(float(t.bytes), t.expected, _mark(t)) for t in sorted(trials, key=lambda trial: trial.expected)]
    for line in scatter([*points, (float(chosen.bytes), chosen.expected, "◉")], recall):
        show.say(line)
    used = {trial.encoder for trial in trials}
    show.say("       " + ", ".join(f"{mark} {name or 'defaults'}" for name, mark in _MARKS.items() if name in used))
    show.say(
        f"       capitals: re-ranked by kept vectors; ◉ the one to use; ┄ the recall wanted with {wanted:,} vectors\n"
    )
    if reached:
        show.say(f"Use this: {chosen.bytes} bytes per vector. {_told(task, chosen)}\n")
    else:
        size = "" if limit is None else f" within {limit} bytes"
        show.say(f"Nothing that was tried can promise recall {recall:g} for {wanted:,} vectors{size}.")
        show.say(f"The best of them takes {chosen.bytes} bytes per vector. {_told(task, chosen)}")
        if limit is not None:
            show.say("A larger --bytes allows more.")
        if task.left_out:
            show.say("Not everything was tried in time: a larger --seconds allows more.")
        show.say("")
    show.say(f"  index = {_create_call(task, chosen)}")
    show.say("  index.add(vectors)")
    if _small(task, chosen):
        show.say("  index.train()")
    show.say(f"  found = {_search_call(task, chosen)}\n")
    for line in _shell(task, chosen):
        show.say(f"  {line}")
    if task.left_out:
        show.say(f"\nNot tried, for lack of time or of vectors: {for_the_shell('; '.join(task.left_out))}")


def _told(task: Task, trial: Trial) -> str:
    if trial.promised is None:
        return f"Its recall is {trial.recall:.3f} with {trial.rows:,} vectors; it was not confirmed."
    told = f"Its recall is {trial.confirmed:.3f} with {trial.rows:,} vectors and fresh queries"
    wanted = round(task.wanted or len(task.rows))
    return f"{told}, and at least {trial.promised:.3f} is expected with {wanted:,}."


def _small(task: Task, trial: Trial) -> bool:
    """Whether there are too few vectors for the index to train itself."""
    return not trial.exact and len(task.rows) < SAMPLE


def _mark(trial: Trial) -> str:
    mark = _MARKS[trial.encoder]
    return mark.upper() if trial.search.get("rerank") else mark


def _parameters(trial: Trial) -> dict[str, Any]:
    """The encoder's own."""
    return {key: value for key, value in trial.create.items() if key not in ("encoder", "keep_vectors", "subset")}


def _arguments(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" if key else str(value) for key, value in values.items())


def _create_call(task: Task, trial: Trial) -> str:
    arguments = {"dim": task.dim, "metric": task.metric, "subset": None, **trial.create}
    return f"Index.create('vectors.lsq', {', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _search_call(task: Task, trial: Trial) -> str:
    arguments = {"k": task.k, **trial.search}
    return f"index.search(queries, {', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _shell(task: Task, trial: Trial) -> list[str]:
    """The same as commands."""
    words = [f"--dim {task.dim}", f"--metric {task.metric}"]
    for key, value in {"subset": None, **trial.create}.items():
        known = key in ("encoder", "bits", "keep_vectors", "subset")
        text = "none" if value is None else value
        words.append(f"--{key.replace('_', '-')} {text}" if known else f"-p {key}={text}")
    asked = [f"--k {task.k}", *(f"--{key} {value}" for key, value in trial.search.items())]
    return [
        f"lsqindex create vectors.lsq {' '.join(words)}",
        "lsqindex add vectors.lsq VECTORS",
        *(["lsqindex train vectors.lsq"] if _small(task, trial) else []),
        f"lsqindex search vectors.lsq QUERIES {' '.join(asked)}",
    ]
