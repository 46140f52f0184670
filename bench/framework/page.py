"""A page of results: the same tables as Markdown and as HTML, and plots in the HTML.

    Page ─┬─ facts: what the numbers depend on         NAME.md    headings, notes, tables
          └─ Part ─┬─ note                      ──▶    NAME.html  one file, plots inline, no script, nothing fetched
                   ├─ columns, rows: a table           NAME-PLOT.svg, NAME-PLOT.png   on request
                   └─ Plot ── Curve

Plots (``plots.py``) need Matplotlib; without it the page says so and has its tables. The same results give the same
bytes.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .plots import FONT, ROLES, Curve, Drawing, Plot, can_draw, draw, numbered_groups
from .report import Row, cells, table

__all__ = ["Curve", "Page", "Part", "Plot", "as_markdown", "write"]


@dataclass(frozen=True)
class Part:
    """A heading, a word to the reader (Markdown: paragraphs, lists, ``code``, bold), a table, and plots."""

    heading: str
    note: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any] | Row] = ()
    plots: Sequence[Plot] = ()


@dataclass(frozen=True)
class Page:
    """All results of a benchmark."""

    #: The name of the files.
    name: str
    title: str
    #: What a reader should know first.
    remark: str
    #: What the numbers depend on.
    facts: Mapping[str, str]
    parts: Sequence[Part]


def write(page: Page, out: Path, pictures: bool = False) -> None:
    """Write ``page`` to ``out``: NAME.md and NAME.html; with ``pictures`` also NAME-PLOT.svg and NAME-PLOT.png."""
    out.mkdir(parents=True, exist_ok=True)
    plots = [plot for part in page.parts for plot in part.plots]
    groups = numbered_groups(plots)
    drawn = {plot.name: draw(plot, groups, f"{page.name}-{plot.name}") for plot in plots} if can_draw() else {}
    if len(drawn) not in (0, len(plots)):
        raise ValueError(f"two plots of {page.name} have one name")
    pictures = pictures and bool(drawn)
    (out / f"{page.name}.md").write_text(as_markdown(page, pictures), encoding="utf-8")
    (out / f"{page.name}.html").write_text(_as_html(page, drawn), encoding="utf-8")
    if pictures:
        for name, drawing in drawn.items():
            (out / f"{page.name}-{name}.svg").write_text(drawing.alone, encoding="utf-8")
            (out / f"{page.name}-{name}.png").write_bytes(drawing.png())


def as_markdown(page: Page, pictures: bool = False) -> str:
    """The page as Markdown; with ``pictures`` it shows the files of its plots."""
    facts = "\n".join(f"- {name}: {value}" for name, value in page.facts.items())
    blocks = [f"# {page.title}", page.remark, facts]
    for part in page.parts:
        blocks += [f"## {part.heading}", part.note]
        blocks += [f"![{plot.title}]({page.name}-{plot.name}.svg)" for plot in part.plots if pictures]
        blocks += [table(part.columns, part.rows)] if part.rows else []
    return "\n\n".join(block for block in blocks if block) + "\n"


# -- HTML -----------------------------------------------------------------------------------------

_STYLE = f"""{ROLES}
body {{ margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--ground); color: var(--ink);
  font: 1rem/1.5 {FONT} }}
h1 {{ font-size: 1.8rem; margin: 0 0 .5rem }}
h2 {{ font-size: 1.25rem; margin: 3rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--grid) }}
p, ul {{ max-width: 48rem }}
a {{ color: var(--hue1) }}
nav ul {{ columns: 14rem; padding-left: 1.2rem }}
code {{ font-size: .9em }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .875rem }}
dt {{ color: var(--soft) }}
dd {{ margin: 0 }}
.table {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums }}
th, td {{ padding: .2rem .75rem .2rem 0; text-align: left; vertical-align: baseline }}
th {{ border-bottom: 1px solid var(--soft); color: var(--soft); font-weight: 600 }}
td {{ border-bottom: 1px solid var(--grid) }}
.number, .short {{ white-space: nowrap }}
.number {{ text-align: right }}
figure {{ margin: 1.5rem 0 }}
figure svg {{ width: 100%; max-width: 56rem; height: auto }}
.missing {{ color: var(--soft) }}"""

# Characters of a cell that need no second line.
_SHORT = 40
# What a number looks like in a cell: sign, digits, exponent, spread, unit.
_NUMBER = re.compile(r"[-+−]?[\d,]*\.?\d+(e[-+]?\d+)?( ?± ?[\d.,]+)?( ?[%×])?", re.IGNORECASE)


def _as_html(page: Page, drawn: Mapping[str, Drawing]) -> str:
    anchors = [f"{number}-{_slug(part.heading)}" for number, part in enumerate(page.parts, 1)]
    links = "".join(
        f'<li><a href="#{anchor}">{_inline(part.heading)}</a></li>'
        for anchor, part in zip(anchors, page.parts, strict=True)
    )
    facts = "".join(f"<dt>{_inline(name)}</dt><dd>{_inline(value)}</dd>\n" for name, value in page.facts.items())
    parts = itertools.chain.from_iterable(
        _html_of_part(part, anchor, drawn) for anchor, part in zip(anchors, page.parts, strict=True)
    )
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        '<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{html.escape(page.title)}</title>\n<style>{_STYLE}</style>\n</head>",
        f"<body>\n<h1>{_inline(page.title)}</h1>",
        *_blocks(page.remark),
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>',
        f"<dl>\n{facts}</dl>",
        *parts,
        "</body>\n</html>",
    ]
    return "\n".join(lines) + "\n"


def _html_of_part(part: Part, anchor: str, drawn: Mapping[str, Drawing]) -> Iterator[str]:
    yield f'<h2 id="{anchor}">{_inline(part.heading)}</h2>'
    yield from _blocks(part.note)
    yield from (f"<figure>{drawn[plot.name].inline}</figure>" for plot in part.plots if plot.name in drawn)
    if any(plot.name not in drawn for plot in part.plots):
        yield '<p class="missing">Plots are left out: <code>pip install matplotlib</code> and make the page again.</p>'
    if part.rows:
        yield _html_table(part)


def _html_table(part: Part) -> str:
    shown = cells(part.columns, part.rows)
    kinds = [_kind(column) for column in zip(part.columns, *shown, strict=True)]
    head = "".join(f"<th{kind}>{_inline(text)}</th>" for kind, text in zip(kinds, part.columns, strict=True))
    lines = (
        "<tr>" + "".join(f"<td{kind}>{_inline(text)}</td>" for kind, text in zip(kinds, line, strict=True)) + "</tr>"
        for line in shown
    )
    body = "\n".join(lines)
    return f'<div class="table"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _kind(column: Sequence[str]) -> str:
    """Numbers, where every cell that says something says one; short words, which are not broken; or text."""
    said = [text for text in column[1:] if text]
    if said and all(_NUMBER.fullmatch(text) for text in said):
        return ' class="number"'
    return ' class="short"' if max(map(len, column)) <= _SHORT else ""


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs and lists."""
    for block in filter(None, text.split("\n\n")):
        items = re.split(r"^- ", block, flags=re.MULTILINE)
        if items[0] == "" and len(items) > 1:
            yield "<ul>" + "".join(f"<li>{_inline(item.strip())}</li>" for item in items[1:]) + "</ul>"
        else:
            yield f"<p>{_inline(block)}</p>"


def _inline(text: str) -> str:
    """``code``, bold and links within the page's own folder.

    >>> _inline("`a<b` is **not** [there](other.md)")
    '<code>a&lt;b</code> is <strong>not</strong> <a href="other.md">there</a>'
    """
    safe = html.escape(text, quote=False)
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    safe = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe)
    return re.sub(r'\[([^\]]+)\]\(([^)\s:"]+)\)', r'<a href="\2">\1</a>', safe)


def _slug(text: str) -> str:
    return re.sub(r"\W+", "-", text.lower()).strip("-")
