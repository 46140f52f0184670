"""``tune``: tries ways to index a sample of your vectors, and says which to use."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from . import options as opt
from . import show
from .plot import scatter
from .source import InputError, Wanted, sampled
from .sources import open_source
from .trials import Task, Trial, candidates, flat, tried

_MARKS = {"lsq": "l", "lsh": "h", "itq": "i", "pq": "p", "ckmeans": "c", "flat": "F"}


def tune(
    vectors: opt.Vectors,
    recall: Annotated[float, typer.Option(min=0, max=1, help="Share of the true nearest that must be found.")] = 0.95,
    limit: Annotated[int | None, typer.Option("--bytes", min=1, help="Bytes a vector may take, all included.")] = None,
    metric: Annotated[opt.Metric, typer.Option(help="How distances are measured.")] = opt.Metric.l2,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Of the k nearest.")] = 10,
    sample: Annotated[int, typer.Option(min=100, help="Vectors to try on, drawn at random.")] = 10_000,
    queries: Annotated[int, typer.Option(min=1, help="Vectors held out as queries; as many more confirm.")] = 200,
    seconds: Annotated[float, typer.Option(min=1, help="Stop trying after so long.")] = 60,
    everything: Annotated[
        bool, typer.Option("--all", help="List every trial, not only those that nothing beats.")
    ] = False,
    file_format: opt.Format = None,
    column: opt.Column = None,
    dataset: opt.Dataset = None,
    dim: opt.RawDim = None,
    dtype: opt.RawType = None,
    as_json: opt.Json = False,
) -> None:
    """Try encoders, bits, strategies and re-ranking on a sample, and say what to use.

    Without --bytes that is what takes the fewest bytes of all that reach the recall;
    with it, the fastest of those that fit. Recall of a sample is better than that of
    many more vectors: leave a margin, or take a larger --sample.

    \b
    Example: lsqindex tune vectors.npy --recall 0.95
             lsqindex tune vectors.npy --recall 0.9 --bytes 64 --metric cosine
    """
    with open_source(vectors, Wanted(file_format, column, None, dataset, dim, dtype)) as source:
        drawn = sampled(source, sample + 2 * queries)
        name = source.name
    if len(drawn) < 4 * queries or len(drawn) - 2 * queries < max(100, k):
        raise InputError(f"{name}: {len(drawn):,} vectors are too few to try on and hold {2 * queries} of them out")
    drawn = drawn[np.random.default_rng(0).permutation(len(drawn))]
    task = Task(drawn[2 * queries :], drawn[: 2 * queries], metric.value, k, time.monotonic() + seconds)
    trials = _run(task, limit)
    chosen, reached = choose(trials, recall, limit)
    if as_json:
        show.print_json(
            {
                "sample": len(task.sample),
                "queries": queries,
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


def _run(task: Task, limit: int | None) -> list[Trial]:
    trials = [flat(task)]
    console = Console(stderr=True)
    with console.status("trying") as status:
        for made in candidates(task.dim, limit):
            left = max(0, task.ends - time.monotonic())
            status.update(f"trying {made['encoder']}, {made['bits']} bits; {len(trials)} trials, {left:.0f} s left")
            trials += tried(task, made, limit)
    return trials


def choose(trials: list[Trial], recall: float, limit: int | None) -> tuple[Trial, bool]:
    """What to use, and whether it reaches the recall within the limit; if nothing does, what comes nearest."""
    fitting = [trial for trial in trials if limit is None or trial.bytes <= limit]
    good = [trial for trial in fitting if trial.recall >= recall]
    if good and limit is not None:
        return max(good, key=lambda trial: (trial.queries_per_second, -trial.bytes)), True
    if good:
        return min(good, key=lambda trial: (trial.bytes, -trial.queries_per_second)), True
    return max(fitting or trials, key=lambda trial: (trial.recall, -trial.bytes)), False


def unbeaten(trials: list[Trial]) -> list[Trial]:
    """Those of which no other has fewer bytes and more recall; and the vectors as they are, to compare."""
    best, found = -1.0, []
    for trial in sorted(trials, key=lambda trial: (trial.bytes, -trial.recall, -trial.queries_per_second)):
        if trial.recall > best:
            best = trial.recall
            found.append(trial)
    return found + [trial for trial in trials if trial.encoder == "flat" and trial not in found]


def _report(
    task: Task, trials: list[Trial], chosen: Trial, reached: bool, recall: float, limit: int | None, everything: bool
) -> None:
    held_out = f"2 × {len(task.queries) // 2} queries held out"
    show.say(f"{len(task.sample):,} vectors of {task.dim} dimensions, {held_out}, {task.metric}\n")
    shown = sorted(trials, key=lambda trial: (trial.bytes, trial.recall)) if everything else unbeaten(trials)
    if chosen not in shown:
        shown = sorted([*shown, chosen], key=lambda trial: (trial.bytes, trial.recall))
    show.print_table(
        ["encoder", "vectors kept", "search", "bytes", f"recall{task.k}@{task.k}", "queries/s", "trained in s"],
        (
            [
                _arguments({"": trial.encoder, **_parameters(trial)}),
                trial.create.get("keep_vectors", ""),
                _arguments(trial.search) or "scan",
                trial.bytes,
                f"{trial.recall:.3f}",
                round(trial.queries_per_second),
                f"{trial.train_seconds:.1f}",
            ]
            for trial in shown
        ),
        strong=lambda i: shown[i] is chosen,
    )
    points = [
        (float(trial.bytes), trial.recall, _mark(trial)) for trial in sorted(trials, key=lambda trial: trial.recall)
    ]
    for line in scatter([*points, (float(chosen.bytes), chosen.recall, "◉")], recall):
        show.say(line)
    used = {trial.encoder for trial in trials}
    show.say("       " + ", ".join(f"{mark} {name}" for name, mark in _MARKS.items() if name in used))
    show.say("       capitals: re-ranked by kept vectors; ◉ what to use; ┄ the recall that is wanted\n")
    if not reached:
        size = "" if limit is None else f" within {limit} bytes"
        show.say(f"Nothing that was tried reaches recall {recall:g}{size}; this comes nearest ({_told(chosen)}):\n")
        if limit is not None:
            show.say("(Without --bytes, ways that take more are tried, too.)\n")
    else:
        show.say(f"Use this: {chosen.bytes} bytes a vector, recall {_told(chosen)}:\n")
    show.say(f"  index = {_create_call(task, chosen)}")
    show.say("  index.add(vectors)")
    show.say(f"  found = {_search_call(task, chosen)}\n")
    show.say(f"  lsqindex create vectors.lsq {_shell(task, chosen)}")
    if task.left_out:
        show.say(f"\nNot tried, for want of time or of vectors: {'; '.join(task.left_out)}")


def _told(trial: Trial) -> str:
    return f"{trial.recall:.3f}, and {trial.confirmed:.3f} with other queries, which had no say"


def _mark(trial: Trial) -> str:
    mark = _MARKS[trial.encoder]
    return mark.upper() if "rerank" in trial.search else mark


def _parameters(trial: Trial) -> dict[str, Any]:
    """The encoder's own."""
    return {key: value for key, value in trial.create.items() if key not in ("encoder", "keep_vectors", "subset")}


def _arguments(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" if key else str(value) for key, value in values.items())


def _create_call(task: Task, trial: Trial) -> str:
    arguments = {"dim": task.dim, "metric": task.metric, **trial.create}
    return f"Index.create('vectors.lsq', {', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _search_call(task: Task, trial: Trial) -> str:
    arguments = {"k": task.k, **trial.search}
    return f"index.search(queries, {', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _shell(task: Task, trial: Trial) -> str:
    words = [f"--dim {task.dim}", f"--metric {task.metric}"]
    for key, value in trial.create.items():
        known = key in ("encoder", "bits", "keep_vectors", "subset")
        words.append(f"--{key.replace('_', '-')} {value}" if known else f"-p {key}={value}")
    return " ".join(words)
