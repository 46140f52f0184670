"""What benchmarks have in common: sections that ask questions, rows that answer them, bars, and a page of it all.

    Benchmark ── Section ─── questions ──▶ Row after Row ──▶ NAME.json
                    │                          │
                    └─ columns, note, bars, plots ──▶ Page: NAME.md, NAME.html

All questions are known before the first is answered, so there is a time left. Rows already in the result file are
kept, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from ..material import data
from . import page
from .bars import BAR_COLUMNS, Verdict, bar_table
from .page import Page, Part, Plot
from .progress import Progress
from .report import Rows
from .runner import Question, Sheet, chosen_sections


class Plan(Protocol):
    """How much is measured; what else it says, sections know."""

    @property
    def name(self) -> str:
        """The name of the result files."""

    @property
    def remark(self) -> str:
        """What a reader of the results should know first."""


PlanT = TypeVar("PlanT", bound=Plan)
RunT = TypeVar("RunT", bound=Sheet)


@dataclass(frozen=True)
class Section(Generic[PlanT, RunT]):
    """What is asked, the columns of its table, a word to the reader, and what the rows say and show."""

    questions: Callable[[RunT], Iterable[Question]]
    columns: tuple[str, ...]
    note: str
    bars: Callable[[Rows, PlanT], Iterable[Verdict]] = lambda rows, plan: ()
    plots: Callable[[Rows], Iterable[Plot]] = lambda rows: ()
    #: More words to the reader, of what was measured.
    sentences: Callable[[Rows], Iterable[str]] = lambda rows: ()


@dataclass(frozen=True)
class Benchmark(Generic[PlanT, RunT]):
    """A benchmark: what of it is not like the others."""

    title: str
    full: PlanT
    quick: PlanT
    sections: Mapping[str, Section[PlanT, RunT]]
    #: What the numbers depend on besides the code.
    facts: Callable[[PlanT], dict[str, str]]
    #: One run of it, which may fill the given directory.
    begin: Callable[[PlanT, Rows, Path], RunT]
    #: The data sets that a section needs.
    needs: Callable[[PlanT, str], Iterable[str]] = lambda plan, section: ()

    def run(self, arguments: argparse.Namespace) -> None:
        """All sections or some, then the tables and the bars."""
        plan = self.quick if arguments.quick else self.full
        chosen = chosen_sections(arguments.section, self.sections)
        data.require(name for section in chosen for name in self.needs(plan, section))
        facts = self.facts(plan)
        if facts.get("faiss") == "not installed":
            print("FAISS is not installed (pip install faiss-cpu): its rows are left out.")
        forget = chosen if arguments.fresh else ()
        rows = Rows(arguments.out / f"{plan.name}.json", forget=forget, facts=facts, seed=data.SEED)
        with _workplace(getattr(arguments, "work", None)) as work:
            self._measure(chosen, plan, self.begin(plan, rows, work))
        made = self.page(plan, rows)
        page.write(made, arguments.out, arguments.pictures)
        print("\n" + page.as_markdown(made))

    def page(self, plan: PlanT, rows: Rows) -> Page:
        """What all rows say."""
        parts = [self._part(name, section, rows) for name, section in self.sections.items() if rows.of(name)]
        bars = [bar.cells() for section in self.sections.values() for bar in section.bars(rows, plan)]
        parts += [Part("Bars", "", BAR_COLUMNS, bars)] if bars else []
        return Page(plan.name, self.title, plan.remark, {**rows.facts, "seed": str(data.SEED)}, parts)

    def _measure(self, chosen: Iterable[str], plan: PlanT, run: RunT) -> None:
        asked = {name: list(self.sections[name].questions(run)) for name in chosen}
        known = [run.known(name, question) for name, questions in asked.items() for question in questions]
        with Progress(len(known), plan.name, kept=len(known) - known.count(None)) as progress:
            for name, questions in asked.items():
                section = self.sections[name]
                run.only(name, [run.answer(name, question, section.columns, progress) for question in questions])
                bars = list(section.bars(run.rows, plan))
                if bars:
                    print(bar_table(bars))

    def _part(self, name: str, section: Section[PlanT, RunT], rows: Rows) -> Part:
        sentences = "\n".join(f"- {sentence}" for sentence in section.sentences(rows))
        note = "\n\n".join(filter(None, (section.note, sentences)))
        return Part(name, note, section.columns, rows.of(name), list(section.plots(rows)))


def add_work(parser: argparse.ArgumentParser) -> None:
    """The option of benchmarks that fill indexes."""
    parser.add_argument("--work", type=Path, help="keep filled indexes here (else: gone after the run)")


@contextmanager
def _workplace(wanted: Path | None) -> Iterator[Path]:
    if wanted is not None:
        yield wanted.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="lsqindex-bench-") as made:
        yield Path(made).resolve()


AnyBenchmark = Benchmark[Any, Any]
