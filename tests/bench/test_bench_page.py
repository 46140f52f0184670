"""Pages of results: the same bytes for the same results, whole in a browser, and nothing fetched from elsewhere."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.framework.page import Curve, Page, Part, Plot, write
from bench.framework.plots import HUES

pytest.importorskip("matplotlib", reason="plots are drawn by the extra bench")
Image = pytest.importorskip("PIL.Image", reason="pictures are looked at by Pillow")

ROOT = Path(__file__).parents[2]
RANKS = [1.0, 10.0, 100.0]

RECALL = Plot(
    "recall",
    "Recall@R & <what> it takes",
    "R",
    "recall@R",
    [
        Curve("LSQ(N)", RANKS, [0.2, 0.5, 0.9], spread=[0.01, 0.02, 0.05], group="LSQ"),
        Curve("LSQ(B)", RANKS, [0.3, 0.6, 0.95], spread=[0.01, 0.02, 0.05], group="LSQ"),
        Curve("a rival at $5 and 100 % of $10", RANKS, [0.1, 0.3, 0.8]),
    ],
    log_x=True,
)
SPEED = Plot(
    "speed", "Speed", "queries/s", "recall", [Curve("LSQ(N)", [150.5, 90_000.5], [0.5, 0.9], [0.1, 0.1])], points=True
)
PAGE = Page(
    "results",
    "Results <of> a try",
    "Codes of **256** bits, by `Index.search`.",
    {"cpu": "Some & Other", "seed": "0"},
    [
        Part(
            "recall & more",
            "Of what was measured:\n\n- one `a < b`\n- two",
            ("system", "vectors", "recall", "met"),
            [
                {"system": "LSQ(N)", "vectors": 60_000, "recall": 0.25, "met": True},
                {"system": "LSQ(B)", "vectors": 60_000, "recall": None, "met": False},
            ],
            [RECALL],
        ),
        Part("speed", plots=[SPEED]),
        Part("Bars", columns=("what",), rows=[{"what": "nothing"}]),
    ],
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page")
    write(PAGE, out, pictures=True)
    return out


def _browser() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None and os.environ.get("LSQINDEX_CHROMIUM") == "required":
        pytest.fail("LSQINDEX_CHROMIUM=required, and there is no Chromium")
    return found or pytest.skip("no Chromium; LSQINDEX_CHROMIUM=required would make this an error")


def _open(page: Path, profile: Path, *options: str) -> tuple[str, list[str]]:
    """What the browser prints, and the lines of its console."""
    command = [
        *(_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr"),
        *(f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND", *options, page.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


class Elements(HTMLParser):
    """The elements of a page: name, attributes, text; and what of them is inside what."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str], list[str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}, []))

    def handle_data(self, data: str) -> None:
        if self.found and data.strip():
            self.found[-1][2].append(data.strip())

    def texts(self, *tags: str) -> list[str]:
        return [" ".join(text) for tag, _, text in self.found if tag in tags]

    def ids(self, pattern: str) -> list[str]:
        return [own["id"] for _, own, _ in self.found if re.fullmatch(pattern, own.get("id", ""))]


def test_a_browser_shows_the_whole_page(written: Path, tmp_path: Path) -> None:
    text, console = _open(written / "results.html", tmp_path, "--dump-dom")
    assert console == []
    dom = Elements(text)
    assert dom.texts("h1", "h2") == ["Results <of> a try", "recall & more", "speed", "Bars"]
    assert dom.texts("a") == ["recall & more", "speed", "Bars"]
    assert dom.texts("dt", "dd") == ["cpu", "Some & Other", "seed", "0"]
    assert dom.texts("th") == ["system", "vectors", "recall", "met", "what"]
    assert dom.texts("td") == ["LSQ(N)", "60000", "0.2500", "yes", "LSQ(B)", "60000", "", "no", "nothing"]
    assert len(dom.texts("svg")) == 2
    assert dom.ids(r"recall-curve-\d+") == ["recall-curve-0", "recall-curve-1", "recall-curve-2"]
    assert sorted(dom.ids(r"recall-curve-\d+-spread")) == ["recall-curve-0-spread", "recall-curve-1-spread"]
    assert (dom.ids(r"speed-curve-\d+"), dom.ids(r"speed-curve-\d+-spread")) == (
        ["speed-curve-0"],
        ["speed-curve-0-spread"],
    )
    drawn = dom.texts("text")
    assert {"Recall@R & <what> it takes", "recall@R", "R", "1", "10", "100", "LSQ(N)", "LSQ(B)"} <= set(drawn)
    assert "a rival at $5 and 100 % of" in drawn and "$10" in drawn
    assert {"0", "20,000", "80,000"} <= set(drawn)


def test_the_browser_would_tell_of_anything_fetched(written: Path, tmp_path: Path) -> None:
    """Else the console's silence says nothing."""
    other = tmp_path / "other.html"
    text = (written / "results.html").read_text(encoding="utf-8")
    other.write_text(text.replace("</body>", '<img src="https://example.org/a.png"></body>'), encoding="utf-8")
    _, console = _open(other, tmp_path / "profile", "--dump-dom")
    assert any("https://example.org/a.png" in line for line in console)


def test_a_page_names_nothing_outside_itself(written: Path) -> None:
    for path in (written / "results.html", *written.glob("*.svg")):
        text = path.read_text(encoding="utf-8")
        named = re.findall(r"""(?:src|href)\s*=\s*["']?([^"'>\s]*)|url\(["']?([^"')]*)""", text)
        assert named and all((link or target).startswith("#") for link, target in named)
        assert "<script" not in text and "@import" not in text
        assert set(re.findall(r"https?://[^\"'\s]+", text)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_are_light_or_dark_as_the_reader_likes(written: Path, tmp_path: Path, dark: bool) -> None:
    picture = tmp_path / "page.png"
    likes = ["--blink-settings=preferredColorScheme=0"] if dark else []
    _open(written / "results.html", tmp_path, f"--screenshot={picture}", "--window-size=1200,1600", *likes)
    with Image.open(picture) as image:
        colours = image.convert("RGB").getcolors(image.width * image.height)
    ground = max(colours)[1]
    hue = (255, 157, 92) if dark else (213, 94, 0)
    assert ground == ((13, 17, 23) if dark else (255, 255, 255))
    assert sum(count for count, colour in colours if colour == hue) > 200


def test_the_same_results_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from bench.framework.page import write; from tests.bench.test_bench_page import PAGE"
    )
    command = [sys.executable, "-c", f"{program}; write(PAGE, Path({str(tmp_path)!r}), pictures=True)"]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "0"})
    files = {path.name: path.read_bytes() for path in written.iterdir()}
    assert files == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    pictures = {f"results-{plot}.{kind}" for plot in ("recall", "speed") for kind in ("svg", "png")}
    assert files.keys() == {"results.md", "results.html", *pictures}


def test_pictures_stand_alone(written: Path) -> None:
    for plot in ("recall", "speed"):
        root = ElementTree.parse(written / f"results-{plot}.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("viewBox")
        # Every colour that is asked for by its role is there, light and dark.
        text = (written / f"results-{plot}.svg").read_text(encoding="utf-8")
        roles = set(re.findall(r"var\((--\w+)\)", text))
        assert "--ink" in roles and all(text.count(f"{role}:#") == 2 for role in roles)
        with Image.open(written / f"results-{plot}.png") as image:
            assert image.width > 1000


def test_ids_of_a_page_are_unique(written: Path) -> None:
    ids = Elements((written / "results.html").read_text(encoding="utf-8")).ids(".+")
    assert len(ids) == len(set(ids))


def test_numbers_stand_to_the_right(written: Path) -> None:
    kinds = [own.get("class") for tag, own, _ in Elements((written / "results.html").read_text()).found if tag == "th"]
    assert kinds == ["short", "number", "number", "short", "short"]


def test_markdown_has_the_tables_and_names_the_pictures(written: Path, tmp_path: Path) -> None:
    text = (written / "results.md").read_text(encoding="utf-8")
    assert text.startswith("# Results <of> a try\n\nCodes of **256** bits, by `Index.search`.\n\n- cpu: Some & Other\n")
    assert "| LSQ(N) | 60000   | 0.2500 | yes |" in text
    assert "](results-recall.svg)" in text
    write(PAGE, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"results.md", "results.html"}
    assert ".svg" not in (tmp_path / "results.md").read_text(encoding="utf-8")


def test_a_group_has_one_colour_and_its_curves_differ(tmp_path: Path) -> None:
    def curves(*labels: str) -> list[Curve]:
        return [Curve(label, [1.0, 2.0], [1.0, 2.0], group=label.partition(" ")[0]) for label in labels]

    many = [f"{chr(65 + i)}" for i in range(HUES + 1)]
    plots = [
        Plot("one", "", "", "", curves("a", "b 1", "b 2")),
        Plot("two", "", "", "", curves("c", "b", "a")),
        Plot("many", "", "", "", curves(*many)),
    ]
    write(Page("colours", "", "", {}, [Part("", plots=plots)]), tmp_path, pictures=True)

    def looks(plot: str) -> Iterator[tuple[str, str]]:
        text = (tmp_path / f"colours-{plot}.svg").read_text(encoding="utf-8")
        for style in re.findall(r'-curve-\d+">\s*<path[^>]*style="([^"]*)"', text):
            dashes = re.search(r"stroke-dasharray: ([\d. ,]+)", style)
            yield re.findall(r"stroke: var\(--(\w+)\)", style)[0], dashes[1] if dashes else ""

    (a, b, again), (c, same, also), all_looks = list(looks("one")), list(looks("two")), list(looks("many"))
    assert len({a, b, again}) == 3 and b[0] == again[0] != a[0]
    assert same == b and also == a and c[0] not in (a[0], b[0])
    assert len(set(all_looks)) == HUES + 1


def test_plots_without_points_or_of_one_point_are_drawn(tmp_path: Path) -> None:
    for log in (False, True):
        plots = [
            Plot(f"{kind}", kind, "x", "y", own, log_x=log, log_y=log)
            for kind, own in (("none", []), ("empty", [Curve("a", [], [])]), ("one", [Curve("b", [3.0], [0.0])]))
        ]
        write(Page("few", "Few", "", {}, [Part("plots", plots=plots)]), tmp_path)
        assert (tmp_path / "few.html").read_text(encoding="utf-8").count("<svg") == 3


def test_an_axis_of_shares_is_wide_near_one(tmp_path: Path) -> None:
    plots = [
        Plot("shares", "", "x", "y", [Curve("a", [0.8, 0.9, 0.99, 1.0], [1.0] * 4)], near_one_x=True),
        Plot("one", "", "x", "y", [Curve("a", [1.0], [2.0])], near_one_x=True),
        Plot("none", "", "x", "y", [], near_one_x=True),
    ]
    write(Page("near", "", "", {}, [Part("", plots=plots)]), tmp_path, pictures=True)
    text = (tmp_path / "near-shares.svg").read_text(encoding="utf-8")
    path = re.search(r'shares-curve-0">\s*<path d="([^"]+)"', text)
    assert path is not None
    x = [float(number) for number, _ in re.findall(r"([\d.]+) ([\d.]+)", path[1])]
    # A tenth of a share, nine hundredths, one hundredth: on a plain axis each would be shorter than the one before.
    assert len(x) == 4 and 0 < x[1] - x[0] < x[3] - x[2] < x[2] - x[1]
    assert all(f">{share}</text>" in text for share in ("0.8", "0.9", "0.95", "0.99", "1"))


def test_two_plots_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one name"):
        write(Page("twice", "", "", {}, [Part("a", plots=[SPEED]), Part("b", plots=[SPEED])]), tmp_path)


def test_without_matplotlib_the_page_tells_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    write(PAGE, tmp_path, pictures=True)
    text = (tmp_path / "results.html").read_text(encoding="utf-8")
    assert "<svg" not in text and "pip install matplotlib" in text and "<td" in text
    assert {path.name for path in tmp_path.iterdir()} == {"results.md", "results.html"}


@pytest.mark.parametrize(
    "name",
    ["framework.page", "framework.plots", "framework.progress", "framework.report", "framework.turns", "encoders"],
)
def test_examples_in_the_modules_are_right(name: str) -> None:
    done = doctest.testmod(importlib.import_module(f"bench.{name}"))
    assert done.attempted and not done.failed


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_on_a_terminal_there_is_a_bar_with_the_time_left() -> None:
    import pty

    pytest.importorskip("rich")
    program = """
from bench.framework.progress import Progress
with Progress(4, "storage", kept=1) as progress:
    progress.advance("first", 0.0, kept=True)
    progress.advance("second", 90.0)
    print("between")
"""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    with subprocess.Popen(command, cwd=ROOT, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Linux: nobody has the other end open any more
                break
            if not part:
                break
            shown += part
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert process.returncode == 0, text
    assert "first  [kept from an earlier run]" in text and "between" in text
    assert re.search(r"storage\s.*2/4.*3 min left", text)
