"""Search a directory of text files: one index file beside them, brought up to date in moments.

    python examples/text_search.py update NOTES                 # index NOTES/**/*.txt and *.md
    python examples/text_search.py update NOTES                 # later: only what is new, changed or gone
    python examples/text_search.py search NOTES "rotate the backup keys"

Without more, texts are compared by their words and parts of words. That needs nothing but NumPy, and it is
*lexical*: "car" does not find "automobile". For search by meaning plug in a model, a function that makes an
array of n rows from a list of n texts. With sentence-transformers, in a file my_model.py:

    from sentence_transformers import SentenceTransformer
    embed = SentenceTransformer("all-MiniLM-L6-v2").encode

    python examples/text_search.py update NOTES --embed my_model:embed --file notes-minilm.lsq
    python examples/text_search.py search NOTES "a car" --embed my_model:embed --file notes-minilm.lsq

How it keeps up: an id is ``path:line@digest`` of a piece of text. Pieces that are on the disk and not in the
index are embedded and added, ids that no piece has any more are deleted. There is nothing else to remember, and
an interrupted update goes on where it was.
"""

from __future__ import annotations

import argparse
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lsqindex import Index
from lsqindex.errors import LsqIndexError

Embed = Callable[[list[str]], ArrayLike]

#: Short paragraphs are put together until a piece has so many characters.
PIECE = 400
#: So many pieces are embedded and added at a time, durably.
BLOCK = 256


def words_and_parts(texts: list[str], dim: int = 1024) -> NDArray[np.float32]:
    """The embedding that needs no model: words and their three-letter parts, each hashed to a place and a sign.

    Long words count more than short ones, which stands in for their rarity: so no statistics of the whole
    collection are needed, which would change with every file.
    """
    vectors = np.zeros((len(texts), dim), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
        tokens = Counter[str]()
        for word, times in Counter(re.findall(r"\w+", text.lower())).items():
            rare = min(len(word), 8) ** 2 / 16 * times**0.5
            tokens[word] += rare
            for first in range(len(word) - 2):
                tokens[word[first : first + 3] + "…"] += rare / len(word) ** 0.5
        for token, weight in tokens.items():
            number = int.from_bytes(blake2b(token.encode(), digest_size=8).digest(), "little")
            vector[number % dim] += weight if number >> 63 else -weight
    return vectors


def pieces(directory: Path, path: Path, model: str) -> Iterator[tuple[str, str]]:
    """(id, text) of each piece of a file. The id depends on the model, too: another one embeds everything anew."""
    name = path.relative_to(directory).as_posix()
    begin, lines = 1, list[str]()
    every = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate([*every, ""], start=1):
        lines.append(line)
        last = number > len(every)
        size = sum(map(len, lines))
        if last or size >= 4 * PIECE or (size >= PIECE and not line.strip()):
            text = "\n".join(lines).strip()
            if text:
                begin += next(i for i, line in enumerate(lines) if line.strip())
                yield f"{name}:{begin}@{blake2b(f'{model} {text}'.encode(), digest_size=6).hexdigest()}", text
            begin, lines = number + 1, []


def update(directory: Path, file: Path, embed: Embed, model: str) -> None:
    """Add what is new or changed, delete what is gone."""
    paths = sorted(path for path in directory.rglob("*") if path.suffix in (".txt", ".md") and path.is_file())
    found = {name: text for path in paths for name, text in pieces(directory, path, model)}
    if not file.exists():
        if not found:
            sys.exit(f"{directory}: no text in *.txt or *.md files here")
        dim = np.asarray(embed(["how many dimensions?"])).shape[-1]
        # Vectors are kept, so that the best of a search are ranked by them and not by their codes.
        Index.create(file, dim, metric="cosine", ids="str", keep_vectors="float16").close()
    with Index.open(file) as index:
        known = set(index.ids())
        new = [name for name in found if name not in known]
        blocks = (new[first : first + BLOCK] for first in range(0, len(new), BLOCK))
        # An iterator of (vectors, ids): each block is on the disk before the next one is embedded. Whether
        # another process has added a piece meanwhile does not matter: upsert.
        index.add(((embed([found[name] for name in block]), block) for block in blocks), upsert=True)
        gone = index.delete(sorted(known - found.keys()))
        stats = index.stats()
        if stats["free_bytes"] > stats["file_bytes"] / 2:  # deleting leaves room, and so does training
            index.compact()
        print(f"{file}: {len(index):,} pieces of {len(paths):,} files; {len(new):,} added, {gone:,} deleted")


def search(directory: Path, file: Path, embed: Embed, model: str, query: str, k: int) -> None:
    """Print the ``k`` nearest pieces; reads only, while others may update."""
    with Index.open(file, read_only=True) as index:
        found = index.search(np.asarray(embed([query]))[0], k=k, rerank=10 * k)
    for name, distance in found.items():
        place = name.rpartition("@")[0]
        path = directory / place.rpartition(":")[0]
        text = dict(pieces(directory, path, model)).get(name) if path.is_file() else None
        if distance < 0.95:  # a cosine distance: 0 is the same direction, 1 has nothing in common; near 1 is chance
            shown = "(changed since, or of another model: update)" if text is None else " ".join(text.split())[:90]
            print(f"{1 - distance:.3f}  {place}  {shown}")


def plugged_in(name: str) -> Embed:
    """The function ``module:function``, of a module in the current directory or installed."""
    sys.path.insert(0, "")
    try:
        found: Embed = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        sys.exit(f"--embed {name}: {error}; module:function is needed")
    return found


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description="Search a directory of text files.")
    parser.add_argument("command", choices=("update", "search"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("query", nargs="?", help="of search: what to look for")
    parser.add_argument("--file", type=Path, help="the index (default: DIRECTORY/.text_search.lsq)")
    parser.add_argument("--embed", metavar="MODULE:FUNCTION", help="an embedding; the same at every call")
    parser.add_argument("-k", type=int, default=5, help="how many to find (5)")
    given = parser.parse_args()
    if not given.directory.is_dir():
        parser.error(f"{given.directory}: is not a directory")
    if (given.command == "search") != bool(given.query):
        parser.error("search needs a query, and update has none")
    file = given.file or given.directory / ".text_search.lsq"
    embed = plugged_in(given.embed) if given.embed else words_and_parts
    model = given.embed or "words_and_parts"
    try:
        if given.command == "update":
            update(given.directory, file, embed, model)
        else:
            search(given.directory, file, embed, model, given.query, given.k)
    except (LsqIndexError, OSError) as error:
        sys.exit(f"text_search: {error}")


if __name__ == "__main__":
    main()
