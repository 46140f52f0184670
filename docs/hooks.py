r"""What the site of ``mkdocs.yml`` needs beyond MkDocs.

    markdown ─▶ links that leave docs/ become text, doctests are marked as such ─▶ HTML ─▶ LaTeX becomes MathML

Equations are written for GitHub, as ``$…$`` and ``$$…$$``. ``pymdownx.arithmatex`` finds them, and this file converts
them to MathML, which browsers draw without a script or a downloaded font.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

_EQUATION = re.compile(r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>', re.DOTALL)
_DOCTEST = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
_DIRECTIVE = re.compile(r"[ ]+# doctest: \+\w+$", re.MULTILINE)
_CELL = re.compile(r"<td[ >].*?</td>", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\((\.\.?/[^)\s]*)\)")
_FOLDER = "/*.md"
# The bars of a norm keep the height of letters; before an exponent, one of the pair would grow and the other not.
_BAR = re.compile(r"<m([io])[^>]*>&#x02016;</m\1>")
_LOW_BAR = '<mo stretchy="false" lspace="0" rspace="0">&#x02016;</mo>'
# A sign after one of , ( [ { = begins a number; MathML would take it for a binary operator and add space.
_SIGN = re.compile(r"((?:\[|&#x000(?:2C|28|5B|7B|3D);)</m[io]>)<mo>(&#x(?:02212|0002B);)</mo>")


def on_config(config: Any) -> Any:
    """Expand ``folder/*.md`` in the nav to one entry per file."""
    config.nav = listed(config.nav, Path(config.docs_dir))
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Prepare a page that is also written for GitHub."""
    markdown = _DIRECTIVE.sub("", _DOCTEST.sub("```pycon\n", markdown))
    return kept_links(markdown, Path(page.file.src_uri), Path(config.docs_dir))


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Convert equations, and unescape bars in the code of tables, which GitHub needs escaped."""
    try:
        return _CELL.sub(lambda cell: cell[0].replace(r"\|", "|"), with_mathml(content))
    except Exception as error:
        raise PluginError(f"{page.file.src_uri}: latex2mathml cannot read an equation: {error!r}") from error


def listed(nav: Any, docs: Path) -> Any:
    """``nav`` with ``folder/*.md`` replaced by the files of the folder, sorted by name.

    >>> import tempfile
    >>> docs = Path(tempfile.mkdtemp())
    >>> (docs / "results").mkdir()
    >>> _ = (docs / "results/b.md").write_text("# b"), (docs / "results/a.md").write_text("# a")
    >>> listed([{"Results": ["first.md", "results/*.md"]}], docs)
    [{'Results': ['first.md', 'results/a.md', 'results/b.md']}]
    """
    if isinstance(nav, dict):
        return {title: listed(entry, docs) for title, entry in nav.items()}
    if not isinstance(nav, list):
        return nav
    entries: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and entry.endswith(_FOLDER):
            found = sorted((docs / entry.removesuffix(_FOLDER)).glob("*.md"))
            entries += [file.relative_to(docs).as_posix() for file in found]
        else:
            entries.append(listed(entry, docs))
    return entries


def kept_links(markdown: str, page: Path, docs: Path) -> str:
    """``markdown`` without links to files of the repository that are not in the site; their text stays.

    >>> kept_links("see [the tests](../tests) and [tuning](../howto/tune.md)", Path("a/b.md"), Path("docs"))
    'see [the tests](../tests) and [tuning](../howto/tune.md)'
    >>> kept_links("see [the tests](../tests) and [tuning](howto/tune.md)", Path("b.md"), Path("docs"))
    'see the tests and [tuning](howto/tune.md)'
    """

    def kept(link: re.Match[str]) -> str:
        target = (docs / page.parent / link[2].partition("#")[0]).resolve()
        return link[0] if target.is_relative_to(docs.resolve()) else link[1]

    return _LINK.sub(kept, markdown)


def with_mathml(content: str) -> str:
    r"""``content`` with marked LaTeX replaced by MathML.

    >>> with_mathml(r'<p>Half: <span class="arithmatex">\(\frac{x}{2}\)</span></p>')[:23]
    '<p>Half: <math xmlns="h'
    """

    def drawn(equation: re.Match[str]) -> str:
        display = equation[1] == "div"
        math = convert(html.unescape(equation[2]).strip(), display="block" if display else "inline")
        return _SIGN.sub(r'\1<mo form="prefix">\2</mo>', _BAR.sub(_LOW_BAR, math))

    return _EQUATION.sub(drawn, content)
