"""The page: the paper's claims with their verdicts, then its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..framework import page
from ..framework.errors import UserError
from ..framework.page import Page, Part
from ..framework.report import Rows
from . import claims, figures
from .claims import CLAIMS, Comparison, Judged, Verdict
from .plan import Plan
from .seeds import Results, Summary


def write(plan: Plan, out: Path, pictures: bool) -> str:
    """The page of all rows in ``out``, whoever measured them; its text."""
    made = make(plan, list(_files(plan, out)))
    page.write(made, out, pictures)
    return page.as_markdown(made)


def _files(plan: Plan, out: Path) -> Iterator[Rows]:
    found = [Rows.read(path) for path in sorted(out.glob("paper-*.json"))]
    mine = [rows for rows in found if rows.facts.get("plan") == plan.name and list(rows)]
    if not mine:
        raise UserError(f"no results in {out}")
    yield from mine


def make(plan: Plan, files: list[Rows]) -> Page:
    """The page of the rows of some files."""
    results = Results(row for rows in files for row in rows)
    judged = [
        (claim, {kind: _verdicts(asked(plan), results) for kind, asked in _kinds(claim).items()}) for claim in CLAIMS
    ]
    parts = [_summary(plan, results, judged), _details(judged), *figures.parts(results, plan), _left_out(files)]
    remark = "\n\n".join((plan.remark, _state(plan, results), _how(plan)))
    return Page(plan.name, "The paper's experiments", remark, _facts(files), [part for part in parts if part.rows])


Judgement = tuple[claims.Claim, dict[str, dict[str, Verdict]]]


def _kinds(claim: claims.Claim) -> dict[str, claims.Comparisons]:
    return {"as published": claim.published, "improved": claim.improved}


def _verdicts(comparisons: Iterable[Comparison], results: Results) -> dict[str, Verdict]:
    every = list(comparisons)
    return {data: claims.judge(every, results, data) for data in results.data}


def _state(plan: Plan, results: Results) -> str:
    """How many seeds there are."""
    lines = []
    for data in results.data:
        counts = Counter((row.system, row["budget"]) for row in results.rows if row.data == data).values()
        few = sum(count < plan.seeds for count in counts)
        told = f"; {few} of them on fewer than {plan.seeds}" if few else ""
        lines.append(f"- {data}: {len(counts)} codes on {_seeds(min(counts), max(counts))}{told}")
    return "\n".join(lines)


def _seeds(least: int, most: int) -> str:
    return f"{least} to {most} seeds" if least != most else f"{most} seed{'s' if most > 1 else ''}"


def _how(plan: Plan) -> str:
    return (
        f"A seed is that of the encoder and of what it learns from: at most {plan.learn:,} vectors; of CIFAR-10 the "
        "paper's random split into 20,000 to learn from, 500 queries and 39,500 of base. Figures are means ± standard "
        f"deviations over seeds. recall@R is the share of queries ({plan.queries} at most) whose true nearest is among "
        "the first R; where rows are level, its expectation for a random order of them. **area**: the mean of recall@R "
        f"over R = 1 … {plan.answers}. **as published**: LSQ as the paper writes it (`refine=0, scalar=None`), by "
        "symmetric distance. **improved**: `lsq` as it comes, by asymmetric distance, against the asymmetric distances "
        "of the others; where codes of equal bits a dimension are compared as features, LSQ(N)+search."
    )


def _facts(files: list[Rows]) -> dict[str, str]:
    """What all files agree on, then what each has of its own."""
    every = [{name: text for name, text in rows.facts.items() if name != "plan"} for rows in files]
    common = {name: text for name, text in every[0].items() if all(facts.get(name) == text for facts in every)}
    own = {
        next(iter(rows)).data: "; ".join(text for name, text in facts.items() if name not in common)
        for rows, facts in zip(files, every, strict=True)
    }
    return {**common, **{name: text for name, text in own.items() if text}}


# -- the claims -----------------------------------------------------------------------------------


def _summary(plan: Plan, results: Results, judged: list[Judgement]) -> Part:
    rows = []
    for number, (claim, verdicts) in enumerate(judged, 1):
        for kind, by_data in verdicts.items():
            first = {"claim": f"{number}. {claim.text}", "where": claim.where} if kind == "as published" else {}
            words = {data: _said(verdict, plan) for data, verdict in by_data.items()}
            overall = claims.together(verdict.word for verdict in by_data.values())
            rows.append({**first, "LSQ": kind, "overall": f"**{overall}**", **words})
    rule = (claims.__doc__ or "").partition("The rule:\n\n")[2].strip()
    note = (
        "In brackets: comparisons won, of how many; the smallest and the largest difference, mean ± spread; and the "
        f"seeds they rest on, where these are fewer than {plan.seeds}.\n\n{rule}"
    )
    return Part("The paper's claims", note, ("claim", "where", "LSQ", "overall", *results.data), rows)


def _said(verdict: Verdict, plan: Plan) -> str:
    """The word, and the figures behind it."""
    if not verdict.judged:
        return verdict.word
    won = sum(one.outcome == claims.WON for one in verdict.judged)
    rising = sorted(verdict.judged, key=lambda one: one.difference.mean)
    ends = dict.fromkeys(_hundredths(one.difference) for one in (rising[0], rising[-1]))
    figures = f"{won} of {len(rising)}: {' to '.join(ends)} {_unit(rising[0])}"
    few = f"; {_seeds(*verdict.seeds)}" if verdict.seeds[0] < plan.seeds else ""
    missing = f"; {verdict.missing} not measured yet" if verdict.missing else ""
    return f"{verdict.word} ({figures}{few}{missing})"


def _details(judged: list[Judgement]) -> Part:
    rows = [
        {"claim": number, "LSQ": kind, "data": data, **_cells(one)}
        for number, (_, verdicts) in enumerate(judged, 1)
        for kind, by_data in verdicts.items()
        for data, verdict in by_data.items()
        for one in verdict.judged
    ]
    note = (
        "Every comparison behind the table above. Differences are in points (hundredths) of the quantity, or in per "
        "cent of the rival's; positive: as the paper claims."
    )
    columns = ("claim", "LSQ", "data", "bits", "this", "before that", "in", "difference", "needed", "seeds", "outcome")
    return Part("The comparisons", note, columns, rows)


def _cells(one: Judged) -> dict[str, Any]:
    comparison = one.comparison
    ours, rival = comparison.ours, comparison.rival
    said = ours.quantity.name
    if rival is not None and rival.quantity is not ours.quantity:
        said += f" / {rival.quantity.name}"
    return {
        "bits": ours.code.budget,
        "this": ours.code.label,
        "before that": "none" if rival is None else rival.code.label,
        "in": said,
        "difference": f"{_hundredths(one.difference)} {_unit(one)}",
        "needed": f"{100 * comparison.margin:g}",
        "seeds": one.difference.seeds,
        "outcome": one.outcome,
    }


def _unit(one: Judged) -> str:
    return "%" if one.comparison.less else "points"


def _hundredths(difference: Summary) -> str:
    spread = "" if difference.spread is None else f" ± {100 * difference.spread:.2f}"
    return f"{100 * difference.mean:+.2f}{spread}"


def _left_out(files: list[Rows]) -> Part:
    """Codes that these vectors cannot have."""
    why = {
        (row.data, row.system, row["budget"]): row["impossible"] for rows in files for row in rows if row["impossible"]
    }
    rows = [{"data": data, "code": label, "bits": bits, "why": text} for (data, label, bits), text in why.items()]
    return Part(
        "Left out", "Codes that vectors of so few dimensions cannot have.", ("data", "code", "bits", "why"), rows
    )
