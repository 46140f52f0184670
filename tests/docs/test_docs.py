"""The documentation site: builds without a warning, whole, and asks no other host for anything."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.settings import ROOT

DOCS = ROOT / "docs"


def build(folder: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of ``folder``; any warning is an error. (``--quiet`` would hide them from ``--strict``, too.)"""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return out


class Page(HTMLParser):
    """What a browser fetches for a page, the text that people see outside of code, and its equations."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.equations = 0
        self.text = ""
        self._hidden: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "link" and given.get("rel") not in {"canonical", "next", "prev"}:
            self.fetched.append(given.get("href", ""))
        elif tag != "a":
            self.fetched += [given[name] for name in ("src", "srcset", "poster", "data") if name in given]
        self.equations += tag == "math"
        if tag in {"code", "pre", "script", "style", "math"}:
            self._hidden.append(tag)
        if tag == "style" or "style" in given:
            self.fetched += re.findall(r"url\(['\"]?([^)'\"]+)", given.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and tag == self._hidden[-1]:
            self._hidden.pop()

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text += data
        elif self._hidden[-1] == "style":
            self.fetched += re.findall(r"(?:url\(|@import)\s*['\"]?([^)'\";]+)", data)


def equations(markdown: str) -> int:
    """How many equations a page has in its source, code left out."""
    prose = re.sub(r"^ *```.*?^ *```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"`[^`\n]*`", "", prose)
    displayed = re.findall(r"\$\$.+?\$\$", prose, flags=re.DOTALL)
    return len(displayed) + len(re.findall(r"\$[^$\n]+\$", re.sub(r"\$\$.+?\$\$", "", prose, flags=re.DOTALL)))


def test_a_dead_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# Page\n\n[dead](nothing.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: small\n")
    done = build(tmp_path, tmp_path / "out")
    assert done.returncode != 0 and "nothing.md" in done.stderr


def test_every_page_is_built(site: Path) -> None:
    sources = [path.relative_to(DOCS) for path in DOCS.rglob("*.md")]
    assert len(sources) >= 25
    assert [path for path in sources if not (site / path.with_suffix(".html")).is_file()] == []
    assert (site / "search/search_index.json").is_file()
    assert list(site.rglob("*.py")) == []


def test_no_page_fetches_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    fetched = {(page.name, url) for page in pages for url in Page(page).fetched}
    assert any(url.endswith(".js") for _, url in fetched) and any(url.endswith(".css") for _, url in fetched)
    assert [(page, url) for page, url in fetched if re.match(r"(?:[a-z]+:)?//", url)] == []
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*['\"]?(?:[a-z]+:)?//", sheet.read_text(encoding="utf-8")) == [], sheet


def test_no_page_has_what_the_scripts_of_the_theme_fetch_more_for(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        # Drawings by Mermaid, facts about a repository, and comments come from other hosts.
        assert not re.search(r'class="[^"]*mermaid|data-md-component="source"|giscus', text), page
    for script in (site / "assets").glob("*.js"):
        assert "//" not in script.read_text(encoding="utf-8"), script


def test_the_search_finds_everything_with_and_without_a_server(site: Path) -> None:
    text = (site / "search/search_index.json").read_text(encoding="utf-8")
    places = {entry["location"] for entry in json.loads(text)["docs"]}
    assert {"cli.html#lsqindex-tune", "reference/index-class.html#lsqindex.Index.search"} <= places
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {"404.html"}
    assert pages == {place.partition("#")[0] for place in places}
    # A page that was opened from the disk can neither fetch JSON nor start a worker.
    assert (site / "search/search_index.js").read_text(encoding="utf-8") == f"var __index = {text}"
    for page in pages:
        content = (site / page).read_text(encoding="utf-8")
        assert 'data-md-component="search-query"' in content
        shim = re.search(r'<script src="([^":]*/)?assets/iframe-worker\.js">', content)
        assert shim and (site / page).parent.joinpath(f"{shim[1] or ''}assets/iframe-worker.js").is_file()


def test_signatures_fit_the_page(site: Path) -> None:
    lines: list[str] = []
    for page in (site / "reference").glob("*.html"):
        for code in re.findall(r'doc-signature highlight"><pre>(.*?)</pre>', page.read_text(encoding="utf-8"), re.S):
            lines += html.unescape(re.sub(r"<[^>]*>", "", code)).splitlines()
    assert any(line.startswith("    rerank: ") for line in lines)  # each argument on a line of its own
    assert [line for line in lines if len(line) > 80] == []


def test_code_is_wrapped_and_drawings_are_not(site: Path) -> None:
    style = (site / "assets/site.css").read_text(encoding="utf-8")
    assert re.search(r"\.highlight pre > code \{[^}]*white-space: pre-wrap", style)
    assert re.search(r"\.language-text pre > code \{[^}]*white-space: pre;", style)
    drawing = re.search(
        r'<div class="([^"]*)"><pre>[^│├└]*[│├└]', (site / "architecture.html").read_text(encoding="utf-8")
    )
    assert drawing and "language-text" in drawing[1]


def test_every_equation_became_mathml(site: Path) -> None:
    for source in DOCS.rglob("*.md"):
        page = Page(site / source.relative_to(DOCS).with_suffix(".html"))
        assert "$$" not in page.text and "\\(" not in page.text and "\\[" not in page.text, source
        assert page.equations == equations(source.read_text(encoding="utf-8")), source
    assert Page(site / "encoders.html").equations > 20


def test_the_reference_has_what_the_package_exports(site: Path) -> None:
    import lsqindex
    from lsqindex import errors

    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html"))
    names = [name for name in lsqindex.__all__ if not name.startswith("__")]
    names += [name for name, kind in vars(errors).items() if isinstance(kind, type)]
    assert [name for name in names if not re.search(rf'id="lsqindex\.(?:\w+\.)*{name}"', pages)] == []
    # What is reStructuredText in a docstring is none on a page.
    assert re.findall(r":(?:class|meth|func):", pages) == []
