"""The figure of README: recall against bytes and against speed, drawn from the committed results.

``python -m bench figure`` reads docs/results/encoders.json and scan.json and writes docs/pictures/recall.svg. It
measures nothing.
"""

from __future__ import annotations

import argparse
import html
import json
from pathlib import Path
from typing import Any

from .framework.errors import UserError

DOCS = Path(__file__).parents[1] / "docs"
#: Panels share one axis of recall, from 0.3 to 1.
TOP, BOTTOM, LEAST = 92.0, 328.0, 0.3
WIDTH, HEIGHT = 960, 416

#: The picture brings its own ground, so it reads on any page, light or dark.
STYLE = """
    svg { --ground: #ffffff; --ink: #1f2328; --soft: #59636e; --grid: #e3e6ea; --ours: #c2410c; --faiss: #1d63ad;
      font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
    @media (prefers-color-scheme: dark) { svg { --ground: #0d1117; --ink: #e6edf3; --soft: #9aa4af; --grid: #2a313a;
      --ours: #ff9d5c; --faiss: #79b8ff } }
    .ground { fill: var(--ground) } text { fill: var(--soft) } .title { fill: var(--ink); font-weight: 600 }
    .grid { stroke: var(--grid) } .line { fill: none; stroke-width: 2 } .mark { stroke-width: 2 }
    .ours { stroke: var(--ours); fill: var(--ours) } .faiss { stroke: var(--faiss); fill: var(--faiss) }
    .line.ours, .line.faiss { fill: none } .dashed { stroke-dasharray: 6 4 }
    .hollow { fill: var(--ground) } text.ours, text.faiss { stroke: none }
    .end { text-anchor: end } .middle { text-anchor: middle }
"""

#: (name, class, system of each number of bits) in the panels of bytes.
BY_BYTES = [
    ("lsq", "ours", {128: "lsq", 256: "lsq", 512: "lsq"}),
    ("FAISS OPQ", "faiss", {128: "faiss OPQ16x8", 256: "faiss OPQ32x8", 512: "faiss OPQ64x8"}),
    ("FAISS PQ", "faiss dashed", {128: "faiss PQ16x8", 256: "faiss PQ32x8", 512: "faiss PQ64x8"}),
    ("FAISS ITQ, Hamming", "faiss alone", {256: "faiss ITQ256"}),
]

#: (name, class, section, system, how far below its line the name stands) in the panel of speed.
BY_SPEED = [
    ("lsq, 100 re-ranked (float16 vectors kept)", "ours", "rerank", "lsq, rerank", 20),
    ("lsq", "ours", "lsq", "lsq, progressive scan", -11),
    ("FAISS PQ64x4fs", "faiss", "lsq", "faiss PQ64x4fs", -11),
    ("itq, Hamming", "ours", "hamming", "itq, Hamming", -11),
    ("FAISS BinaryFlat", "faiss", "hamming", "faiss BinaryFlat", 20),
]


def run(arguments: argparse.Namespace) -> None:
    """Draw, and write."""
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    (out / "recall.svg").write_text(draw(DOCS / "results"), encoding="utf-8")
    print(out / "recall.svg")


def draw(results: Path) -> str:
    """The figure as SVG text; the same bytes for the same results."""
    (encoders, _), (scan, machine) = (_read(results / name) for name in ("encoders.json", "scan.json"))
    queries = f"left and middle: queries that were in view while lsq was made; right: {machine.get('queries')} ones"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t">',
        '  <title id="t">recall10@10 against bytes per vector and queries per second, lsqindex beside FAISS</title>',
        f"  <style>{STYLE}  </style>",
        f'  <rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        *_legend(),
        *_bytes_panel(encoders, "minilm-wordnet", "MiniLM-WordNet, 384-d", 62, 282, labels=True),
        *_bytes_panel(encoders, "fashion-mnist", "Fashion-MNIST, 784-d", 322, 542),
        *_speed_panel(scan, "minilm-wordnet", 596, 936),
        _text(62, 398, f"One thread each; {queries}."),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend() -> list[str]:
    parts = [_text(22, 30, "recall10@10", "title")]
    for x, (name, kind, _) in zip((140, 215, 340, 450), BY_BYTES, strict=True):
        line = [] if kind.endswith("alone") else [_line([(x, 26), (x + 26, 26)], kind)]
        parts += [*line, _dot(x + 13, 26, kind), _text(x + 33, 30, name)]
    parts += [_dot(668, 26, "faiss hollow"), _text(680, 30, "one query at a time")]
    return [*parts, _dot(826, 26, "faiss"), _text(838, 30, "1,000 at a time")]


def _bytes_panel(rows: list[Any], data: str, title: str, left: float, right: float, labels: bool = False) -> list[str]:
    ticks = {16: left + 30.0, 32: (left + right) / 2, 64: right - 30.0}  # doubling is one step
    parts = [_text(left, TOP - 22, title, "title"), *_grid(left, right, labels)]
    parts += [_text(x, BOTTOM + 20, str(size), "middle") for size, x in ticks.items()]
    parts.append(_text((left + right) / 2, BOTTOM + 40, "bytes per vector", "middle"))
    for _, kind, systems in reversed(BY_BYTES):  # ours on top
        points = []
        for bits, system in systems.items():
            values = _values(rows, "recall", data, system, bits=bits)
            points.append((ticks[values["bytes/row"]], _height(values["recall10@10"])))
        parts += [_line(points, kind)] if len(points) > 1 else []
        parts += [_dot(x, y, kind) for x, y in points]
    return parts


def _speed_panel(rows: list[Any], data: str, left: float, right: float) -> list[str]:
    def place(rate: float) -> float:
        return left + (right - left) * rate / 14_000

    vectors = max(row["parameters"]["vectors"] for row in rows if row["data"] == data)
    parts = [_text(left, TOP - 22, f"{vectors:,} of MiniLM-WordNet, 32-byte codes", "title"), *_grid(left, right)]
    parts += [_text(place(rate), BOTTOM + 20, f"{rate:,}", "middle") for rate in (0, 5_000, 10_000)]
    parts.append(_text((left + right) / 2, BOTTOM + 40, "queries per second", "middle"))
    for name, kind, section, system, away in BY_SPEED:
        ways = [_values(rows, section, data, system, vectors=vectors, queries=way) for way in ("single", "batch")]
        (one, y), (many, _) = ((place(way["queries/s"]), _height(way["recall10@10"])) for way in ways)
        parts += [_line([(one, y), (many, y)], kind), _dot(one, y, f"{kind} hollow"), _dot(many, y, kind)]
        parts.append(_text(one - 4, y + away, name, kind))
    return parts


def _grid(left: float, right: float, labels: bool = False) -> list[str]:
    parts = []
    for tenths in range(3, 11):
        y = _height(tenths / 10)
        parts.append(f'  <path class="grid" d="M{left:g} {y:g}H{right:g}"/>')
        if labels:
            parts.append(_text(left - 8, y + 4, f"{tenths / 10:.1f}", "end"))
    return parts


def _height(recall: float) -> float:
    return round(BOTTOM - (BOTTOM - TOP) * (recall - LEAST) / (1 - LEAST), 1)


def _text(x: float, y: float, text: str, kind: str = "plain") -> str:
    return f'  <text class="{kind}" x="{x:.5g}" y="{y:.5g}">{html.escape(text)}</text>'


def _line(points: list[tuple[float, float]], kind: str) -> str:
    path = " ".join(f"{x:.5g},{y:.5g}" for x, y in points)
    return f'  <polyline class="line {kind}" points="{path}"/>'


def _dot(x: float, y: float, kind: str) -> str:
    if kind.endswith("alone"):  # a system without a line: a square
        return f'  <rect class="mark {kind}" x="{x - 4:.5g}" y="{y - 4:.5g}" width="8" height="8"/>'
    kind = kind.replace(" dashed", "")
    return f'  <circle class="mark {kind}" cx="{x:.5g}" cy="{y:.5g}" r="4"/>'


def _read(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """The rows of a benchmark, and the machine they were measured on."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        return list(results["rows"]), dict(results["machine"])
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path}: cannot be read as results of a benchmark ({error})") from error


def _values(rows: list[Any], section: str, data: str, system: str, **parameters: Any) -> dict[str, Any]:
    """The values of the one row that was measured so."""
    for row in rows:
        same = (row["section"], row["data"], row["system"]) == (section, data, system)
        if same and all(row["parameters"].get(key) == value for key, value in parameters.items()):
            return dict(row["values"])
    raise UserError(f"no result of {system} on {data} in section {section} with {parameters}; measure it first")
