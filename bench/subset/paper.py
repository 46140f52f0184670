"""Section paper: recall@R by subset indexing, binary against n-ary codes, in the paper's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lsqindex import Index, MultiIndex
from lsqindex.encoders import Encoder, make_encoder

from .. import data
from ..measure import recall10_at_10, recall_curve
from ..page import Curve, Plot
from ..report import Rows
from ..runner import Question, ask
from .plan import Run

RANKS = (1, 10, 100, 1000)


def paper(run: Run) -> Iterator[Question]:
    plan = run.plan
    for system, encoder, bits in _systems(plan.bits, plan.paper_bits):
        parameters = {**encoder.config, "table bits": bits}
        yield ask(plan.paper, system, parameters, _by_score, encoder, bits, plan.paper, plan.paper_answers)


def plots(rows: Rows) -> Iterator[Plot]:
    """recall@R, a colour for each system."""
    curves = []
    for row in sorted(rows.of("paper"), key=lambda row: row.system):
        points = [(rank, row[f"recall@{rank}"]) for rank in RANKS if row[f"recall@{rank}"] is not None]
        curves.append(Curve.through(f"{row.system}, b = {row['table bits']}", points, row.system))
    yield Plot("paper", "By score alone: is the nearest among the first R?", "R", "recall@R", curves, log_x=True)


def _systems(bits: int, table_bits: tuple[int, ...]) -> Iterator[tuple[str, Encoder, int]]:
    published: dict[str, Any] = {"bits": bits, "refine": 0, "scalar": None}
    binary = make_encoder("lsq", levels=2, **published)
    for b in table_bits:
        yield "LSQ(B)", binary, b
        yield "CK-means", make_encoder("ckmeans", bits=bits, field_bits=b), b
        yield "LSQ(N)", make_encoder("lsq", levels=2**b, **published), b


def _by_score(encoder: Encoder, bits: int, name: str, answers: int) -> dict[str, Any]:
    dataset = data.load(name)
    if not encoder.is_fitted:
        encoder.fit(dataset.learn)
    subset = MultiIndex(bits if encoder.layout.binary else None)
    with Index(dataset.base.shape[1], encoder=encoder, subset=subset, keep_vectors=None) as index:
        index.add(dataset.base)
        index.merge()
        found = index.search(dataset.queries, answers, strategy="subset", distance="score", threads=1)
        told = index.explain(dataset.queries, answers, strategy="subset", distance="score", threads=1)
    curve = recall_curve(found.ids, dataset.truth)
    points = {f"recall@{rank}": float(curve[rank - 1]) for rank in RANKS if rank <= answers}
    share = told.rows / len(dataset.queries) / len(dataset.base)
    return {
        "recall10@10": recall10_at_10(found.ids, dataset.truth),
        **points,
        "area": float(curve.mean()),
        "read": share,
    }
