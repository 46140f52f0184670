"""What the paper claims, one by one, and what the rows say of it.

A claim is a set of comparisons: this code before that one, in that quantity, by that margin. Of each the differences
are taken seed by seed, so that what a seed does to both cancels; positive is what the paper says. The rule:

- a comparison is **won** if the mean difference is above the margin by more than the spread (the standard deviation
  over seeds; with one seed: above it at all), **lost** if it is below it by more than that, and **level** else;
- on a data set the claim **holds** if all comparisons are won, **does not hold** if none is, and **holds in part**
  else;
- over all data sets it holds if it does on each, does not hold if it does on none, not even in part, and holds in part
  else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from .codes import CK_MEANS, IMPROVED, ITQ, LSH, LSQ_B, LSQ_N, OK_MEANS, PQ, SEARCHED, Code
from .plan import Plan
from .seeds import LEAST, RISE, ROUNDS, Quantity, Results, Summary, area, subset_area, value

HOLDS, IN_PART, NOT, UNKNOWN = "holds", "holds in part", "does not hold", "not measured"
WON, LEVEL, LOST = "won", "level", "lost"

#: What words of the paper are taken to mean: a large margin (of accuracy), much smaller, much faster.
LARGE_MARGIN = 0.05
MUCH_SMALLER = 0.1
MUCH_FASTER = 0.5
#: A rise of the error that is no more than this share of it is not counted as one.
NO_RISE = 0.001


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    code: Code
    quantity: Quantity


@dataclass(frozen=True)
class Comparison:
    """``ours`` before ``rival`` by more than ``margin``; without a rival before 0.

    ``less``: less is better, and differences are shares of the rival's number (of 1 without a rival).
    """

    ours: Side
    rival: Side | None
    margin: float = 0.0
    less: bool = False

    def difference(self, results: Results, data: str) -> Summary | None:
        """Over the seeds that both sides have."""
        left = _by_seed(results, data, self.ours)
        right = dict.fromkeys(left, 0.0) if self.rival is None else _by_seed(results, data, self.rival)
        return Summary.of([self._difference(left[seed], right[seed]) for seed in sorted(left.keys() & right.keys())])

    def can_be(self, results: Results, data: str) -> bool:
        """Whether vectors of a data set can have both codes."""
        sides = (self.ours, self.rival or self.ours)
        return all(results.can_be(data, side.code.label, side.code.budget) for side in sides)

    def _difference(self, ours: float, rival: float) -> float:
        if not self.less:
            return ours - rival
        return (rival - ours) / rival if rival else -ours

    def outcome(self, difference: Summary) -> str:
        """Won, lost or level."""
        beyond, spread = difference.mean - self.margin, difference.spread or 0.0
        return WON if beyond > spread else LOST if beyond < -spread else LEVEL


def _by_seed(results: Results, data: str, side: Side) -> dict[int, float]:
    return results.by_seed(data, side.code.label, side.code.budget, side.quantity)


Comparisons = Callable[[Plan], Iterable[Comparison]]


@dataclass(frozen=True)
class Claim:
    """A claim, where the paper makes it, and the comparisons that decide: of LSQ as published, and as improved."""

    text: str
    where: str
    published: Comparisons
    improved: Comparisons = field(default=lambda plan: ())


@dataclass(frozen=True)
class Judged:
    """A comparison on a data set, and how it ended."""

    comparison: Comparison
    difference: Summary
    outcome: str


@dataclass(frozen=True)
class Verdict:
    """What a data set says of a claim."""

    judged: tuple[Judged, ...]
    #: Comparisons that are not measured yet; not counted: those of codes that such vectors cannot have.
    missing: int = 0

    @property
    def word(self) -> str:
        """Holds, holds in part, does not hold; or not measured."""
        won = sum(one.outcome == WON for one in self.judged)
        return UNKNOWN if not self.judged else HOLDS if won == len(self.judged) else IN_PART if won else NOT

    @property
    def seeds(self) -> tuple[int, int]:
        """On how few and how many seeds comparisons rest."""
        counts = [one.difference.seeds for one in self.judged] or [0]
        return min(counts), max(counts)


def judge(comparisons: Iterable[Comparison], results: Results, data: str) -> Verdict:
    """All comparisons that are measured on a data set."""
    found = [(comparison, comparison.difference(results, data)) for comparison in comparisons]
    missing = sum(d is None and c.can_be(results, data) for c, d in found)
    return Verdict(tuple(Judged(c, d, c.outcome(d)) for c, d in found if d is not None), missing)


def together(words: Iterable[str]) -> str:
    """The word over all data sets.

    >>> together([HOLDS, HOLDS]), together([HOLDS, NOT]), together([NOT, UNKNOWN]), together([IN_PART])
    ('holds', 'holds in part', 'does not hold', 'holds in part')
    """
    known = {word for word in words if word != UNKNOWN}
    return UNKNOWN if not known else known.pop() if len(known) == 1 else IN_PART


# -- the claims -----------------------------------------------------------------------------------

SYMMETRIC, ASYMMETRIC = area("symmetric"), area("asymmetric")
ERROR, ACCURACY, CORRELATION = value("error"), value("accuracy"), value("correlation")
INDICES = value("correlation of indices")


def _main(method: str, plan: Plan, bits: int = 1) -> Code:
    return Code(method, bits, plan.budget)


def _pairs(
    ours: Iterable[Code],
    rivals: Iterable[Code],
    quantity: Quantity,
    margin: float = 0.0,
    *,
    less: bool = False,
    rival_quantity: Quantity | None = None,
) -> Iterator[Comparison]:
    """Every one of ours with every rival."""
    others = list(rivals)
    for code in ours:
        for other in others:
            yield Comparison(Side(code, quantity), Side(other, rival_quantity or quantity), margin, less)


def _by_bits(
    sizes: Iterable[int],
    plan: Plan,
    ours: str,
    rivals: Iterable[str],
    quantity: Quantity,
    margin: float = 0.0,
    *,
    less: bool = False,
    rival_quantity: Quantity | None = None,
) -> Iterator[Comparison]:
    """A method with others of the same bits a dimension, at the main budget."""
    names = list(rivals)
    for bits in sizes:
        others = [_main(rival, plan, bits) for rival in names]
        mine = [_main(ours, plan, bits)]
        yield from _pairs(mine, others, quantity, margin, less=less, rival_quantity=rival_quantity)


def _by_budget(
    plan: Plan, ours: tuple[str, int], rivals: Iterable[tuple[str, int]], quantity: Quantity
) -> Iterator[Comparison]:
    """A method with others, at every budget."""
    names = list(rivals)
    for budget in plan.budgets:
        yield from _pairs([Code(*ours, budget)], [Code(*rival, budget) for rival in names], quantity)


def _nary(plan: Plan, methods: Iterable[str]) -> list[Code]:
    names = list(methods)
    return [_main(method, plan, bits) for bits in plan.field_bits for method in names]


def _by_tables(plan: Plan, ours: str, rivals: Iterable[str], n_ary: bool) -> Iterator[Comparison]:
    """A binary code with others, by subset indexing with tables of equal bits."""
    names = list(rivals)
    for bits in plan.table_bits:
        others = [_main(rival, plan, bits if n_ary else 1) for rival in names]
        yield from _pairs([_main(ours, plan)], others, subset_area(bits))


def _binary(plan: Plan) -> list[Code]:
    return [_main(method, plan) for method in (ITQ, OK_MEANS, LSH)]


CLAIMS = (
    Claim(
        "By distance estimation n-ary codes are better than binary codes (LSQ(N) and CK-means than LSQ(B) and ITQ; "
        "improved: CK-means than LSQ improved, which is binary).",
        "4.1, figure 5; conclusion",
        lambda p: _pairs(_nary(p, (LSQ_N, CK_MEANS)), [_main(LSQ_B, p), _main(ITQ, p)], SYMMETRIC),
        lambda p: _pairs(_nary(p, (CK_MEANS,)), [_main(IMPROVED, p)], ASYMMETRIC),
    ),
    Claim(
        "By distance estimation LSQ outperforms CK-means, at every number of bits a dimension.",
        "4.1, figure 5",
        lambda p: _by_bits(p.field_bits, p, LSQ_N, (CK_MEANS,), SYMMETRIC),
        lambda p: _pairs([_main(IMPROVED, p)], _nary(p, (CK_MEANS,)), ASYMMETRIC),
    ),
    Claim(
        "By distance estimation LSQ outperforms CK-means at every budget.",
        "4.1, figure 6",
        lambda p: _by_budget(p, (LSQ_N, p.main_bits), [(CK_MEANS, p.main_bits)], SYMMETRIC),
        lambda p: _by_budget(p, (IMPROVED, 1), [(CK_MEANS, p.main_bits)], ASYMMETRIC),
    ),
    Claim(
        "By distance estimation n-ary LSQ outperforms all other methods (CK-means, PQ, ITQ, OK-means, LSH).",
        "abstract; conclusion",
        lambda p: [
            *_by_bits(p.field_bits, p, LSQ_N, (CK_MEANS, PQ), SYMMETRIC),
            *_pairs(_nary(p, (LSQ_N,)), _binary(p), SYMMETRIC),
        ],
        lambda p: _pairs([_main(IMPROVED, p)], [*_nary(p, (CK_MEANS, PQ)), *_binary(p)], ASYMMETRIC),
    ),
    Claim(
        "By subset indexing binary codes (LSQ(B)) outperform n-ary codes (CK-means), at every number of bits a table.",
        "4.2, figure 7; abstract; conclusion",
        lambda p: _by_tables(p, LSQ_B, (CK_MEANS,), n_ary=True),
        lambda p: _by_tables(p, IMPROVED, (CK_MEANS,), n_ary=True),
    ),
    Claim(
        "By subset indexing binary codes (LSQ(B)) outperform n-ary codes (CK-means) at every budget.",
        "4.2, figure 8",
        lambda p: _by_budget(p, (LSQ_B, 1), [(CK_MEANS, p.main_bits)], subset_area(p.main_bits)),
        lambda p: _by_budget(p, (IMPROVED, 1), [(CK_MEANS, p.main_bits)], subset_area(p.main_bits)),
    ),
    Claim(
        "Of n-ary codes CK-means is the best for subset indexing (against LSQ(N) and PQ).",
        "4.2",
        lambda p: _nary_by_tables(p, (LSQ_N, PQ)),
        lambda p: _nary_by_tables(p, (SEARCHED,)),
    ),
    Claim(
        "Of binary codes those of LSQ are the best for subset indexing (against ITQ, OK-means, LSH).",
        "4.2; abstract",
        lambda p: _by_tables(p, LSQ_B, (ITQ, OK_MEANS, LSH), n_ary=False),
        lambda p: _by_tables(p, IMPROVED, (ITQ, OK_MEANS, LSH), n_ary=False),
    ),
    Claim(
        "By subset indexing LSQ(B) outperforms ITQ and OK-means at every budget.",
        "4.3, figure 9",
        lambda p: _by_budget(p, (LSQ_B, 1), [(ITQ, 1), (OK_MEANS, 1)], subset_area(p.main_bits)),
        lambda p: _by_budget(p, (IMPROVED, 1), [(ITQ, 1), (OK_MEANS, 1)], subset_area(p.main_bits)),
    ),
    Claim(
        "Binary codes of LSQ lead to higher accuracy than those of ITQ (by distance estimation, at every budget).",
        "2.2.1, relation to ITQ",
        lambda p: _by_budget(p, (LSQ_B, 1), [(ITQ, 1)], SYMMETRIC),
        lambda p: _by_budget(p, (IMPROVED, 1), [(ITQ, 1)], ASYMMETRIC),
    ),
    Claim(
        f"LSQ(B) converges much faster than OK-means (taken as: in at most {1 - MUCH_FASTER:.0%} of its rounds).",
        "4.4, figure 10",
        lambda p: _pairs([_main(LSQ_B, p)], [_main(OK_MEANS, p)], ROUNDS, MUCH_FASTER, less=True),
        lambda p: _pairs([_main(IMPROVED, p)], [_main(OK_MEANS, p)], ROUNDS, MUCH_FASTER, less=True),
    ),
    Claim(
        "The reconstruction error of LSQ(B) in training ends much below those of ITQ and OK-means (taken as: by "
        f"{MUCH_SMALLER:.0%}).",
        "4.4, figure 10",
        lambda p: _pairs([_main(LSQ_B, p)], [_main(ITQ, p), _main(OK_MEANS, p)], LEAST, MUCH_SMALLER, less=True),
        lambda p: _pairs([_main(IMPROVED, p)], [_main(ITQ, p), _main(OK_MEANS, p)], LEAST, MUCH_SMALLER, less=True),
    ),
    Claim(
        "Every round of training LSQ reduces its objective (taken as: no round raises the error by more than "
        f"{NO_RISE:.1%}).",
        "2.2.1, convergence",
        lambda p: _steady([_main(LSQ_B, p), *_nary(p, (LSQ_N,))]),
        lambda p: _steady([_main(IMPROVED, p), *_nary(p, (SEARCHED,))]),
    ),
    Claim(
        "As features for a classifier LSQ codes outperform CK-means, also refined.",
        "4.5, figure 11",
        lambda p: _by_bits(p.table_bits, p, LSQ_N, (CK_MEANS,), ACCURACY),
        lambda p: _by_bits(p.table_bits, p, SEARCHED, (CK_MEANS,), ACCURACY),
    ),
    Claim(
        f"… by a large margin (taken as: {100 * LARGE_MARGIN:.0f} points of accuracy).",
        "2.2.2",
        lambda p: _by_bits(p.table_bits, p, LSQ_N, (CK_MEANS,), ACCURACY, LARGE_MARGIN),
        lambda p: _by_bits(p.table_bits, p, SEARCHED, (CK_MEANS,), ACCURACY, LARGE_MARGIN),
    ),
    Claim(
        "As features LSQ codes outperform cluster indices of CK-means that are not refined, by as much.",
        "4.5, figure 11",
        lambda p: _by_bits(
            p.table_bits, p, LSQ_N, (CK_MEANS,), ACCURACY, LARGE_MARGIN, rival_quantity=value("accuracy of indices")
        ),
        lambda p: _by_bits(
            p.table_bits, p, SEARCHED, (CK_MEANS,), ACCURACY, LARGE_MARGIN, rival_quantity=value("accuracy of indices")
        ),
    ),
    Claim(
        "LSQ codes preserve similarities, cluster indices do not (taken as: their distances correlate better with "
        "those between the vectors).",
        "2.2.2; conclusion",
        lambda p: _by_bits(p.field_bits, p, LSQ_N, (CK_MEANS,), CORRELATION, rival_quantity=INDICES),
        lambda p: _by_bits(p.field_bits, p, SEARCHED, (CK_MEANS,), CORRELATION, rival_quantity=INDICES),
    ),
    Claim(
        "LSQ achieves lower reconstruction error than other n-ary codes (CK-means, PQ).",
        "conclusion",
        lambda p: _by_bits(p.field_bits, p, LSQ_N, (CK_MEANS, PQ), ERROR, less=True),
        lambda p: _pairs([_main(IMPROVED, p)], _nary(p, (CK_MEANS, PQ)), ERROR, less=True),
    ),
    Claim(
        "n-ary codes are more accurate for quantization than binary ones (LSQ(N) than LSQ(B), CK-means than OK-means; "
        "improved: CK-means than LSQ improved).",
        "3.2",
        lambda p: [
            *_pairs(_nary(p, (LSQ_N,)), [_main(LSQ_B, p)], ERROR, less=True),
            *_pairs(_nary(p, (CK_MEANS,)), [_main(OK_MEANS, p)], ERROR, less=True),
        ],
        lambda p: _pairs(_nary(p, (CK_MEANS,)), [_main(IMPROVED, p)], ERROR, less=True),
    ),
)


def _nary_by_tables(plan: Plan, rivals: Iterable[str]) -> Iterator[Comparison]:
    names = list(rivals)
    for bits in plan.table_bits:
        yield from _by_bits([bits], plan, CK_MEANS, names, subset_area(bits))


def _steady(codes: Iterable[Code]) -> Iterator[Comparison]:
    for code in codes:
        yield Comparison(Side(code, RISE), None, -NO_RISE, less=True)
