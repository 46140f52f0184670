"""The examples run as their docstrings say: on files made here, from the command line, again and again."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance

from lsqindex import Index
from tests.settings import ROOT

EXAMPLES = ROOT / "examples"


class Examples:
    """Runs an example's ``main`` as the command line would, in this process: a start of Python for each is slow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def run(self, example: str, *arguments: str | Path) -> tuple[bool, str, str]:
        """Whether it went well, what it printed, what it said on stderr. Any exception but an exit fails the test."""
        spec = importlib.util.spec_from_file_location("example", EXAMPLES / example)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._capsys.readouterr()
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", [example, *map(str, arguments)])
            patch.setattr(sys, "path", list(sys.path))
            try:
                module.main()
                code: str | int | None = None
            except SystemExit as exit:
                code = exit.code
        out, err = self._capsys.readouterr()
        return code in (None, 0), out, err + (code if isinstance(code, str) else "")

    def out(self, example: str, *arguments: str | Path) -> str:
        good, out, err = self.run(example, *arguments)
        assert good, out + err
        return out

    def refuses(self, example: str, *arguments: str | Path, says: str) -> None:
        good, _, err = self.run(example, *arguments)
        assert not good
        assert re.search(says, err), err


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Examples:
    return Examples(monkeypatch, capsys)


@pytest.mark.parametrize("example", ["text_search.py", "similar_images.py"])
def test_examples_are_programs(example: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a text", encoding="utf-8")
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    command = [sys.executable, str(EXAMPLES / example), *(["update"] if "text" in example else []), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 added, 0 deleted" in done.stdout
    done = subprocess.run([*command[:-1], str(tmp_path / "nowhere")], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


# -- text_search ------------------------------------------------------------------------------------


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "garden").mkdir(parents=True)
    (folder / "garden" / "roses.md").write_text("# Roses\n\nPrune the roses in early spring.\n", encoding="utf-8")
    (folder / "backup.txt").write_text("\nRotate the backup encryption keys every month.\n", encoding="utf-8")
    (folder / "soup.txt").write_text("Kürbissuppe: pumpkin, ginger and coconut milk.\n", encoding="utf-8")
    (folder / "picture.png").write_bytes(b"not a text")
    return folder


def _first(examples: Examples, notes: Path, query: str, *options: str | Path) -> str:
    """The best match, ``path:line``; nothing if there is none."""
    lines = examples.out("text_search.py", "search", notes, query, *options).splitlines()
    return lines[0].split()[1] if lines else ""


def test_texts_are_found_by_their_words(examples: Examples, notes: Path) -> None:
    assert "3 pieces of 3 files; 3 added, 0 deleted" in examples.out("text_search.py", "update", notes)
    assert _first(examples, notes, "backup keys") == "backup.txt:2"
    assert _first(examples, notes, "pruning a rose") == "garden/roses.md:1"
    assert _first(examples, notes, "KÜRBIS") == "soup.txt:1"
    assert len(examples.out("text_search.py", "search", notes, "backup keys of roses", "-k", "1").splitlines()) == 1
    with Index.open(notes / ".text_search.lsq", read_only=True) as index:
        assert index.check() == []


def test_only_what_changed_is_embedded_again(examples: Examples, notes: Path) -> None:
    examples.out("text_search.py", "update", notes)
    with Index.open(notes / ".text_search.lsq", read_only=True) as index:
        before = set(index.ids())
    assert "0 added, 0 deleted" in examples.out("text_search.py", "update", notes)

    (notes / "backup.txt").write_text("Water the orchids on Sunday.\n", encoding="utf-8")
    assert "1 added, 1 deleted" in examples.out("text_search.py", "update", notes)
    assert _first(examples, notes, "orchids") == "backup.txt:1"
    assert "backup" not in _first(examples, notes, "rotate encryption keys")
    with Index.open(notes / ".text_search.lsq", read_only=True) as index:
        assert len(before & set(index.ids())) == 2

    (notes / "soup.txt").unlink()
    (notes / "new.md").write_text("Sharpen the chisels.\n", encoding="utf-8")
    assert "3 pieces of 3 files; 1 added, 1 deleted" in examples.out("text_search.py", "update", notes)
    assert _first(examples, notes, "chisel") == "new.md:1"
    assert "soup" not in examples.out("text_search.py", "search", notes, "pumpkin ginger coconut")


def test_a_file_that_changed_since_the_update_is_told(examples: Examples, notes: Path) -> None:
    examples.out("text_search.py", "update", notes)
    (notes / "backup.txt").write_text("Something else.\n", encoding="utf-8")
    assert "changed since" in examples.out("text_search.py", "search", notes, "backup encryption keys")


def test_long_texts_are_cut_and_lines_are_right(examples: Examples, notes: Path) -> None:
    paragraphs = [f"Paragraph {i} is about topic{i}topic. " * 12 for i in range(30)]
    (notes / "long.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
    table = [f"| row {i} | some value |" * 4 for i in range(300)]
    table[250] = "| row 250 | extraordinary |"
    (notes / "table.md").write_text("\n".join(table), encoding="utf-8")
    examples.out("text_search.py", "update", notes)
    assert _first(examples, notes, "topic17topic") == "long.txt:35"
    place = _first(examples, notes, "extraordinary")
    assert place.startswith("table.md:")
    assert 230 < int(place.rpartition(":")[2]) <= 251


def test_an_embedding_can_be_plugged_in(
    examples: Examples, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_model.py").write_text(
        "import numpy as np\n"
        "def embed(texts):\n"
        "    return np.array([[t.lower().count(w) for w in 'spring month milk'.split()] + [.1] for t in texts])\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    options = ("--embed", "my_model:embed", "--file", tmp_path / "own.lsq")
    assert "3 added" in examples.out("text_search.py", "update", notes, *options)
    assert _first(examples, notes, "milk milk", *options) == "soup.txt:1"
    with Index.open(tmp_path / "own.lsq", read_only=True) as index:
        assert index.dim == 4
    # Another model's vectors have other dimensions: refused, and the index is as it was.
    examples.refuses(
        "text_search.py", "search", notes, "milk", "--file", tmp_path / "own.lsq", says="4 dimensions are needed"
    )


def test_bad_arguments_of_text_search_are_told(examples: Examples, notes: Path, tmp_path: Path) -> None:
    examples.refuses("text_search.py", "update", tmp_path / "nowhere", says="is not a directory")
    examples.refuses("text_search.py", "search", notes, says="search needs a query")
    examples.refuses("text_search.py", "update", notes, "query", says="update has none")
    examples.refuses("text_search.py", "search", notes, "before any update", says=r"\.text_search\.lsq")
    examples.refuses("text_search.py", "update", notes, "--embed", "no_such_module:f", says="module:function is needed")
    examples.refuses("text_search.py", "update", notes, "--embed", "json:nothing", says="module:function is needed")
    examples.refuses("text_search.py", "update", notes, "--file", notes / "soup.txt", says="soup.txt")
    examples.out("text_search.py", "update", notes)
    examples.refuses("text_search.py", "search", notes, "roses", "-k", "0", says="k")
    empty = tmp_path / "empty"
    empty.mkdir()
    examples.refuses("text_search.py", "update", empty, says="no text")
    assert list(empty.iterdir()) == []


# -- similar_images ---------------------------------------------------------------------------------


def _drawn(seed: int) -> Image.Image:
    """A picture of twelve coloured shapes."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (320, 240), tuple(rng.integers(0, 256, 3).tolist()))
    pen = ImageDraw.Draw(image)
    for i in range(12):
        x, y, wide, high = (int(rng.integers(low, up)) for low, up in ((0, 320), (0, 240), (20, 120), (20, 120)))
        box, colour = (x - wide, y - high, x + wide, y + high), tuple(rng.integers(0, 256, 3).tolist())
        (pen.ellipse if i % 2 else pen.rectangle)(box, fill=colour)
    return image


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten different pictures; of number 0 three copies, of number 1 one, in a folder of its own."""
    folder = tmp_path / "photos"
    (folder / "old <&> copies").mkdir(parents=True)
    for seed in range(10):
        _drawn(seed).save(folder / f"{seed}.png")
    _drawn(0).resize((150, 112)).save(folder / "0-small.jpg", quality=60)
    ImageEnhance.Brightness(_drawn(0)).enhance(1.25).save(folder / "0-bright.jpg")
    _drawn(0).crop((6, 5, 314, 235)).save(folder / "0-cropped.png")
    _drawn(1).convert("L").save(folder / "old <&> copies" / "1-grey.gif")
    return folder


def _groups(examples: Examples, photos: Path, *options: str | Path) -> list[set[str]]:
    lines = examples.out("similar_images.py", photos, *options).splitlines()
    return [set(re.split(" {2,}", line)) for line in lines[1:-1]]


def test_near_duplicates_are_found_and_others_are_not(examples: Examples, photos: Path) -> None:
    copies = {"0.png", "0-small.jpg", "0-bright.jpg", "0-cropped.png"}
    assert _groups(examples, photos) == [copies, {"1.png", "old <&> copies/1-grey.gif"}]
    page = (photos / "similar_images.html").read_text(encoding="utf-8")
    assert page.count("<section>") == 2
    assert page.count("<figure>") == page.count('src="data:image/jpeg;base64,') == 6
    assert "old &lt;&amp;&gt; copies" in page
    assert "old <&>" not in page
    with Index.open(photos / ".similar_images.lsq", read_only=True) as index:
        assert index.check() == []
        assert len(index) == 14


def test_only_new_and_changed_images_are_looked_at_again(examples: Examples, photos: Path, tmp_path: Path) -> None:
    assert "14 images; 14 added, 0 deleted" in examples.out("similar_images.py", photos)
    assert "14 images; 0 added, 0 deleted" in examples.out("similar_images.py", photos)
    _drawn(2).save(photos / "3.png")  # changed: now a copy of number 2
    (photos / "0-small.jpg").unlink()
    (photos / "old <&> copies" / "1-grey.gif").unlink()
    sheet = tmp_path / "sheet.html"
    told = examples.out("similar_images.py", photos, "--sheet", sheet)
    assert "12 images; 1 added, 3 deleted" in told
    assert _groups(examples, photos) == [{"0.png", "0-bright.jpg", "0-cropped.png"}, {"2.png", "3.png"}]
    assert sheet.read_text(encoding="utf-8").count("<figure>") == 5


def test_distance_and_description_can_be_chosen(
    examples: Examples, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _groups(examples, photos, "--distance", "2") != []
    assert len(_groups(examples, photos, "--distance", "2")[0]) == 14  # a cosine distance is never more
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def describe(images):\n"
        "    return np.array([np.asarray(i.resize((4, 4)), float).ravel() - 128 for i in images])\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    examples.out("similar_images.py", photos, "--embed", "mine:describe", "--file", "mine.lsq")
    with Index.open(tmp_path / "mine.lsq", read_only=True) as index:
        assert index.dim == 48


def test_what_is_no_image_is_left_out_and_told(examples: Examples, photos: Path) -> None:
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    (photos / "cut.png").write_bytes((photos / "4.png").read_bytes()[:500])
    Image.new("RGBA", (40, 40), (0, 0, 0, 0)).save(photos / "clear.png")
    good, out, err = examples.run("similar_images.py", photos)
    assert good, err
    assert "15 images" in out
    assert "broken.jpg: left out" in err
    assert "cut.png: left out" in err


def test_bad_arguments_of_similar_images_are_told(examples: Examples, photos: Path, tmp_path: Path) -> None:
    examples.refuses("similar_images.py", tmp_path / "nowhere", says="is not a folder")
    examples.refuses("similar_images.py", photos, "--distance", "far", says="invalid float")
    examples.refuses("similar_images.py", photos, "--embed", "nonsense", says="module:function is needed")
    examples.refuses("similar_images.py", photos, "--file", photos / "1.png", says="1.png")
    examples.refuses("similar_images.py", photos, "--sheet", tmp_path / "no" / "folder.html", says="folder.html")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "0 images" in examples.out("similar_images.py", empty)
