"""The paper's figures from the rows: a part of the page for each experiment, a plot for each data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ..framework.page import Curve, Part, Plot
from .codes import (
    AS_FEATURES,
    CK_MEANS,
    COMPARED_BINARY,
    IMPROVED,
    ITQ,
    LSH,
    LSQ_B,
    LSQ_N,
    OK_MEANS,
    PQ,
    SEARCHED,
    VECTORS,
    Code,
)
from .plan import Plan
from .seeds import (
    CONVERGED,
    LEAST,
    RISE,
    ROUNDS,
    Quantity,
    Results,
    Summary,
    area,
    recall,
    subset_area,
    subset_recall,
    subset_value,
    value,
)

#: Ranks that tables tell.
TOLD = (1, 10, 100)


@dataclass(frozen=True)
class Line:
    """A curve of a figure: a code, and how its rows are ranked; ``quantity`` gives the area, ``at`` a point.

    ``more``: what its table tells besides.
    """

    code: Code
    how: str
    quantity: Quantity
    at: Callable[[int], Quantity]
    more: tuple[Quantity, ...] = ()

    @property
    def label(self) -> str:
        """The code, and what is not as in the paper."""
        return f"{self.code.label}, {self.how}" if self.how else self.code.label


def by_distance(code: Code, distance: str) -> Line:
    """Ranked by distance estimation; the paper's is symmetric."""
    how = "" if distance == "symmetric" else distance
    # The name that the column has, whatever the distance.
    to_100 = Quantity("area to 100", area(distance, "area to 100").of)
    return Line(code, how, area(distance), lambda at: recall(distance, at), (to_100,))


def by_tables(code: Code, bits: int) -> Line:
    """Ranked by subset indexing."""
    how = f"tables of {bits} bits" if code.is_binary else ""
    more = (subset_value(bits, "read"), subset_value(bits, "short"))
    return Line(code, how, subset_area(bits), lambda at: subset_recall(bits, at), more)


def parts(results: Results, plan: Plan) -> list[Part]:
    """All experiments, in the paper's order."""
    return [
        estimation(results, plan),
        budget(results, plan),
        subset(results, plan),
        subset_budget(results, plan),
        binary(results, plan),
        convergence(results, plan),
        features(results, plan),
        errors(results, plan),
    ]


# -- recall@R -------------------------------------------------------------------------------------


def estimation(results: Results, plan: Plan) -> Part:
    """Section 4.1, figure 5."""
    main = plan.budget
    published = [
        *(Code(LSQ_N, bits, main) for bits in plan.field_bits),
        *(Code(CK_MEANS, bits, main) for bits in plan.field_bits),
        *(Code(PQ, bits, main) for bits in (1, *plan.field_bits)),
        *(Code(method, 1, main) for method in (LSQ_B, ITQ, OK_MEANS, LSH)),
    ]
    searched = [Code(SEARCHED, bits, main) for bits in plan.field_bits]
    rivals = [Code(CK_MEANS, bits, main) for bits in plan.field_bits]
    others = [*(Code(PQ, bits, main) for bits in plan.field_bits), *(Code(method, 1, main) for method in (ITQ, LSH))]
    figures = {
        "as published": [by_distance(code, "symmetric") for code in published],
        "improved": [
            by_distance(Code(IMPROVED, 1, main), "asymmetric"),
            *(by_distance(code, "symmetric") for code in searched),
            *(by_distance(code, "asymmetric") for code in [*rivals, *others]),
        ],
    }
    lines = [*figures["as published"], by_distance(Code(IMPROVED, 1, main), "symmetric"), *figures["improved"]]
    note = (
        f"{main} bits. LSQ(N)-5 has 5 bits a dimension; codes without a number are binary (for them, LSQ(B)-5 of the "
        f"paper is LSQ(B)), and OK-means is CK-means of one bit a dimension. Symmetric distance, for binary codes "
        "Hamming, unless it says asymmetric: the query is not coded. LSQ(N)+search is LSQ(N) with codes searched for, "
        "LSQ improved is `lsq` as it comes."
    )
    return Part(
        "estimation: recall@R by distance estimation (4.1, figure 5)",
        note,
        (*_columns(plan), "area to 100"),
        list(_curve_rows(results, plan, lines)),
        [*_curve_plots(results, plan, "estimation", figures)],
    )


def subset(results: Results, plan: Plan) -> Part:
    """Section 4.2, figure 7."""
    figures = {
        "n-ary and binary": [
            *(by_tables(Code(LSQ_B, 1, plan.budget), bits) for bits in plan.table_bits),
            *(by_tables(Code(CK_MEANS, bits, plan.budget), bits) for bits in plan.table_bits),
        ]
    }
    others = [
        *(
            by_tables(Code(method, bits, plan.budget), bits)
            for method in (LSQ_N, PQ, SEARCHED)
            for bits in plan.table_bits
        ),
        *(
            by_tables(Code(method, 1, plan.budget), bits)
            for method in (ITQ, OK_MEANS, LSH, IMPROVED)
            for bits in plan.table_bits
        ),
    ]
    note = (
        f"{plan.budget} bits. A table for each dimension of an n-ary code, and for each so many bits of a binary one. "
        "Rows are ranked by the number of tables in which they are under the query's key, and by nothing else. "
        "**read**: entries of tables read for a query / rows in all; **short**: queries for which tables return fewer "
        "rows than the longest answer has. The paper compares CK-means with LSQ(B); the others are below them."
    )
    return Part(
        "subset: recall@R by subset indexing, n-ary against binary (4.2, figure 7)",
        note,
        (*_columns(plan), "read", "short"),
        list(_curve_rows(results, plan, [*figures["n-ary and binary"], *others])),
        [*_curve_plots(results, plan, "subset", figures)],
    )


def _columns(plan: Plan) -> tuple[str, ...]:
    return ("data", "code", "seeds", *(f"recall@{rank}" for rank in TOLD if rank in plan.ranks), "area")


def _curve_rows(results: Results, plan: Plan, lines: Iterable[Line]) -> Iterator[dict[str, Any]]:
    told = {f"recall@{rank}": plan.ranks.index(rank) for rank in TOLD if rank in plan.ranks}
    for data, line in _measured(results, lines):
        of = (data, line.code.label, line.code.budget)
        seeds = len(results.by_seed(*of, line.quantity))
        points = {name: str(results.summary(*of, line.at(at))) for name, at in told.items()}
        more = {one.name: str(results.summary(*of, one)) for one in line.more}
        whole = str(results.summary(*of, line.quantity))
        yield {"data": data, "code": line.label, "seeds": seeds, **points, "area": whole, **more}


def _measured(results: Results, lines: Iterable[Line]) -> Iterator[tuple[str, Line]]:
    every = list(lines)
    for data in results.data:
        for line in every:
            if results.by_seed(data, line.code.label, line.code.budget, line.quantity):
                yield data, line


def _curve_plots(results: Results, plan: Plan, name: str, figures: dict[str, list[Line]]) -> Iterator[Plot]:
    for data in results.data:
        for number, (title, lines) in enumerate(figures.items()):
            curves = [_recall_curve(results, plan, data, line) for _, line in _measured_on(results, data, lines)]
            if curves:
                called = f"{name}-{data}" if not number else f"{name}-{title.replace(' ', '-')}-{data}"
                yield Plot(called, f"{data}: {title}, {plan.budget} bits", "R", "recall@R", curves, log_x=True)


def _measured_on(results: Results, data: str, lines: Iterable[Line]) -> list[tuple[str, Line]]:
    return [(name, line) for name, line in _measured(results, lines) if name == data]


def _recall_curve(results: Results, plan: Plan, data: str, line: Line) -> Curve:
    found = [results.summary(data, line.code.label, line.code.budget, line.at(at)) for at in range(len(plan.ranks))]
    return _curve(line.label, _group(line.code.method), plan.ranks, found)


def _group(method: str) -> str:
    """Methods of one colour: a page has eight. Codes of LSH are no features, so its colour is free for the vectors."""
    return {SEARCHED: LSQ_N, VECTORS: LSH}.get(method, method)


def _curve(label: str, group: str, x: Sequence[float], found: Sequence[Summary | None]) -> Curve:
    """A curve through what is measured, with a band where there are several seeds."""
    pairs = [(at, summary) for at, summary in zip(x, found, strict=True) if summary is not None]
    spread = [summary.spread or 0.0 for _, summary in pairs]
    return Curve(
        label,
        [at for at, _ in pairs],
        [summary.mean for _, summary in pairs],
        spread if any(spread) else None,
        group,
    )


# -- area against the budget ----------------------------------------------------------------------


def budget(results: Results, plan: Plan) -> Part:
    """Section 4.1, figure 6."""
    bits = plan.main_bits
    methods = [(LSQ_N, bits), (CK_MEANS, bits), (PQ, bits), (LSQ_B, 1), (ITQ, 1), (OK_MEANS, 1), (LSH, 1)]
    better = [(IMPROVED, 1), (CK_MEANS, bits), (PQ, bits), (ITQ, 1), (LSH, 1)]
    figures = {
        "symmetric": [(method, size, area("symmetric"), "") for method, size in methods],
        "asymmetric": [(method, size, area("asymmetric"), "asymmetric") for method, size in better],
    }
    note = (
        f"The mean of recall@R over R = 1 … {plan.answers}; {bits} bits a dimension, or binary. A code has as many "
        "dimensions as fit into the budget. Where a code cannot have so many (binary ones no more than the vectors "
        "have dimensions), it is left out."
    )
    return _against_budget(
        "budget", "area by distance estimation, against the budget (4.1, figure 6)", note, results, plan, figures
    )


def subset_budget(results: Results, plan: Plan) -> Part:
    """Section 4.2, figure 8."""
    bits = plan.main_bits
    methods = [(LSQ_B, 1), (CK_MEANS, bits), (LSQ_N, bits), (PQ, bits), (LSH, 1), (IMPROVED, 1)]
    figures = {"n-ary and binary": [(method, size, subset_area(bits), "") for method, size in methods]}
    note = f"The mean of recall@R over R = 1 … {plan.answers}; {bits} bits a dimension and a table."
    return _against_budget(
        "subset-budget", "area by subset indexing, against the budget (4.2, figure 8)", note, results, plan, figures
    )


def binary(results: Results, plan: Plan) -> Part:
    """Section 4.3, figure 9."""
    figures = {"binary codes": [(method, 1, subset_area(plan.main_bits), "") for method in COMPARED_BINARY]}
    note = f"The mean of recall@R over R = 1 … {plan.answers}, tables of {plan.main_bits} bits."
    return _against_budget("binary", "binary codes by subset indexing (4.3, figure 9)", note, results, plan, figures)


Method = tuple[str, int, Quantity, str]


def _against_budget(
    name: str, title: str, note: str, results: Results, plan: Plan, figures: dict[str, list[Method]]
) -> Part:
    rows, plots = [], []
    for data in results.data:
        for number, (kind, methods) in enumerate(figures.items()):
            curves = []
            for method, bits, quantity, how in methods:
                label = Code(method, bits, plan.budget).label + (f", {how}" if how else "")
                found = [results.summary(data, Code(method, bits, size).label, size, quantity) for size in plan.budgets]
                if any(found):
                    told = {f"{size} bits": str(one or "") for size, one in zip(plan.budgets, found, strict=True)}
                    rows.append({"data": data, "code": label, "seeds": _seeds(found), **told})
                    curves.append(_curve(label, _group(method), plan.budgets, found))
            if curves:
                called = f"{name}-{data}" if not number else f"{name}-{kind}-{data}"
                plots.append(Plot(called, f"{data}: {kind}", "bits", "area under recall@R", curves, log_x=True))
    columns = ("data", "code", "seeds", *(f"{size} bits" for size in plan.budgets))
    return Part(f"{name}: {title}", note, columns, rows, plots)


def _seeds(found: Iterable[Summary | None]) -> str:
    """On how many seeds figures rest: one number, or from few to many."""
    counts = [one.seeds for one in found if one is not None]
    return str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


# -- training, features, errors -------------------------------------------------------------------


def convergence(results: Results, plan: Plan) -> Part:
    """Section 4.4, figure 10."""
    rows, plots = [], []
    for data in results.data:
        curves = []
        for method in COMPARED_BINARY:
            histories = [row["history"] for row in results.of(data, method, plan.budget)]
            if not histories:
                continue
            reached = range(min(map(len, histories)))
            found = [Summary.of([history[at] for history in histories]) for at in reached]
            curves.append(_curve(method, method, [at + 1 for at in reached], found))
            row: dict[str, Any] = {"data": data, "code": method, "seeds": len(histories)}
            row["rounds made"] = fmean(map(len, histories))
            for quantity in (ROUNDS, LEAST, RISE):
                row[quantity.name] = str(results.summary(data, method, plan.budget, quantity))
            rows.append(row)
        if curves:
            title = f"{data}: error against rounds, {plan.budget} bits"
            plots.append(Plot(f"convergence-{data}", title, "round", "relative reconstruction error", curves))
    note = (
        f"{plan.budget} bits. Squared error of the vectors learned from, relative to that of their mean. **rounds**: "
        f"until the error is within {CONVERGED:.0%} of the least one; LSQ(B) stops after five rounds without progress, "
        "and keeps the best. **largest rise**: of the error in one round, as a share. Curves end where the first seed "
        "stopped."
    )
    columns = ("data", "code", "seeds", "rounds made", ROUNDS.name, LEAST.name, RISE.name)
    return Part("convergence: error against rounds of training (4.4, figure 10)", note, columns, rows, plots)


def features(results: Results, plan: Plan) -> Part:
    """Section 4.5, figure 11."""
    rows, plots = [], []
    named = [value("accuracy"), value("accuracy of indices"), value("correlation"), value("correlation of indices")]
    for data in results.data:
        found: dict[tuple[str, str], list[tuple[int, Summary]]] = {}
        for method in AS_FEATURES:
            for bits in (1, *plan.field_bits):
                code = Code(method, bits, plan.budget)
                if code.is_binary != (bits == 1):
                    continue
                told = [results.summary(data, code.label, plan.budget, quantity) for quantity in named]
                if not any(told):
                    continue
                cells = {quantity.name: str(one or "") for quantity, one in zip(named, told, strict=True)}
                rows.append({"data": data, "features": code.label, "seeds": _seeds(told), **cells})
                for label, one in ((method, told[0]), (f"{method}, not refined", told[1])):
                    if one is not None:
                        found.setdefault((method, label), []).append((bits, one))
        curves = [
            _curve(label, _group(method), [bits for bits, _ in points], [one for _, one in points])
            for (method, label), points in found.items()
        ]
        if curves:
            title = f"{data}: accuracy of a linear SVM on codes of {plan.budget} bits"
            plots.append(Plot(f"features-{data}", title, "bits a dimension", "accuracy", curves, points=True))
    note = (
        f"A linear SVM (`LinearSVC` of scikit-learn, features standardized) learns from {plan.classified:,} of the "
        f"vectors that the code has learned from, and is tested on {plan.classified:,} that neither has seen. CK-means "
        "as features: each cluster by its centre's place on the first principal axis of its codebook (the paper's "
        f"refinement); **of indices**: by its number. **{VECTORS}**: no code at all. **correlation**: of distances "
        "between features with distances between vectors, queries to base."
    )
    columns = ("data", "features", "seeds", *(quantity.name for quantity in named))
    return Part("features: codes as features for a classifier (4.5, figure 11)", note, columns, rows, plots)


def errors(results: Results, plan: Plan) -> Part:
    """What sections 3.2 and 5 say of reconstruction."""
    codes = [
        *(Code(method, bits, plan.budget) for method in (LSQ_N, SEARCHED, CK_MEANS, PQ) for bits in plan.field_bits),
        *(Code(method, 1, plan.budget) for method in (LSQ_B, IMPROVED, ITQ, OK_MEANS, LSH)),
    ]
    found = {
        (data, code.label): summary
        for data in results.data
        for code in codes
        if (summary := results.summary(data, code.label, plan.budget, value("error"))) is not None
    }
    rows = [
        {"data": data, "code": label, "seeds": summary.seeds, "error": str(summary)}
        for (data, label), summary in found.items()
    ]
    note = f"{plan.budget} bits. Squared error of the base, relative to that of its mean."
    return Part("reconstruction error (3.2, conclusion)", note, ("data", "code", "seeds", "error"), rows)
