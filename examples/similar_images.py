"""Find near duplicates in a folder of images: resized, brightened, recompressed or slightly cropped copies.

    python examples/similar_images.py PHOTOS                    # writes PHOTOS/similar_images.html
    python examples/similar_images.py PHOTOS                    # later: looks at new and changed images only
    python examples/similar_images.py PHOTOS --distance 0.03 --sheet /tmp/copies.html

Images are described by a small vector (below), which sees composition and edges and not what is shown. A model
that does, such as CLIP, can be plugged in: ``--embed module:function``, a function that makes an array of n rows
from a list of n Pillow images, and a ``--distance`` and a ``--file`` of its own. Needs Pillow.

How it keeps up: an id is ``path@time-size`` of an image file. Images that are in the folder and not in the index
are described and added, ids that no image has any more are deleted. There is nothing else to remember.
"""

from __future__ import annotations

import argparse
import base64
import html
import io
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageOps

from lsqindex import Index
from lsqindex.errors import LsqIndexError

Embed = Callable[[list[Image.Image]], ArrayLike]
SUFFIXES = {".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff"}
#: So many images are described and added at a time, durably.
BLOCK = 64
SIDE = 32
STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em; background: #f6f6f4; color: #222 }
section { display: flex; flex-wrap: wrap; gap: 1em; padding: 1em; margin: 1em 0; background: #fff; border-radius: 8px }
figure { width: 170px; margin: 0 }  figcaption { overflow-wrap: anywhere; color: #555 }
img { width: 170px; height: 130px; object-fit: contain; background: #eee }
"""


def shapes_and_edges(images: list[Image.Image]) -> NDArray[np.float32]:
    """Per image the low frequencies of 32 × 32 grey pixels, and how strong edges of 8 directions are in 4 × 4 parts.

    Both are of length 1 and without mean, so brightness and contrast do not matter. The last number is the same for
    all: it makes plain images, which have neither, equal to each other.
    """
    n = np.arange(SIDE)
    cosines = np.cos(np.pi / SIDE * np.outer(np.arange(10), n + 0.5))  # the discrete cosine transform, its first 10
    rows = []
    for image in images:
        grey = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), np.float64)
        low = (cosines @ grey @ cosines.T).ravel()[1:]  # without the mean
        down, right = np.gradient(grey)
        direction = (np.arctan2(down, right) / np.pi * 4).astype(int) % 8
        part = 4 * (n[:, None] // 8) + n[None, :] // 8
        edges = np.bincount((8 * part + direction).ravel(), np.hypot(down, right).ravel(), minlength=128)
        rows.append(np.concatenate([*(x / max(float(np.linalg.norm(x)), 1.0) for x in (low, edges)), [0.01]]))
    return np.asarray(rows, np.float32)


def opened(path: Path) -> Image.Image | None:
    """The image, small, upright and on white; None, and a word about it, if it cannot be read."""
    try:
        with Image.open(path) as image:
            image.thumbnail((256, 256))
            rgba = ImageOps.exif_transpose(image).convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what Pillow raises
        print(f"{path}: left out ({error})", file=sys.stderr)
        return None


def update(folder: Path, index: Index, embed: Embed) -> None:
    """Add what is new or changed, delete what is gone."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file()):
        stat = path.stat()
        found[f"{path.relative_to(folder).as_posix()}@{stat.st_mtime_ns:x}-{stat.st_size:x}"] = path
    known = set(index.ids())
    new = [name for name in found if name not in known]

    def described() -> Iterator[tuple[ArrayLike, list[str]]]:
        for first in range(0, len(new), BLOCK):
            images = {name: opened(found[name]) for name in new[first : first + BLOCK]}
            good = {name: image for name, image in images.items() if image is not None}
            if good:
                yield embed(list(good.values())), list(good)

    added = index.add(described(), upsert=True)  # batch by batch, each on the disk before the next is described
    gone = index.delete(sorted(known - found.keys()))
    print(f"{index.path}: {len(index):,} images; {len(added):,} added, {gone:,} deleted")


def groups(index: Index, distance: float) -> list[list[str]]:
    """Images within ``distance`` of one another, directly or by way of others; the largest groups first."""
    names = index.ids()
    parent = {name: name for name in names}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name] = parent[parent[name]]
        return name

    for first in range(0, len(names), 1000):
        block = names[first : first + 1000]
        near = index.search(index.get(block), k=10, rerank=100)  # the kept vectors are the queries
        for name, matches in zip(block, near.items(), strict=True):
            for other, far in matches:
                if far <= distance:
                    parent[root(other)] = root(name)
    together: dict[str, list[str]] = {}
    for name in names:
        together.setdefault(root(name), []).append(name)
    return sorted((group for group in together.values() if len(group) > 1), key=len, reverse=True)


def write_sheet(folder: Path, found: list[list[str]], sheet: Path) -> None:
    """A page with a row for each group, the image of most bytes first; thumbnails are in the page itself."""
    title = f"{len(found):,} groups of near duplicates in {html.escape(str(folder))}"
    page = [f'<!doctype html><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>']
    for group in found:
        page.append("<section>")
        paths = [folder / name.rpartition("@")[0] for name in group]
        for size, path in sorted(((path.stat().st_size, path) for path in paths), reverse=True):
            image, jpeg = opened(path), io.BytesIO()
            if image is not None:
                image.save(jpeg, "JPEG")
                source = f"data:image/jpeg;base64,{base64.b64encode(jpeg.getvalue()).decode()}"
                name = f"{html.escape(path.relative_to(folder).as_posix())}<br>{size:,} bytes"
                link = f'<a href="{path.resolve().as_uri()}"><img alt="" src="{source}"></a>'
                page.append(f"<figure>{link}<figcaption>{name}</figcaption></figure>")
        page.append("</section>")
    sheet.write_text("\n".join(page) + "\n", encoding="utf-8")


def plugged_in(name: str) -> Embed:
    """The function ``module:function``, of a module in the current directory or installed."""
    sys.path.insert(0, "")
    try:
        found: Embed = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        sys.exit(f"--embed {name}: {error}; module:function is needed")
    return found


def main() -> None:
    """Read the command line, bring the index up to date, print groups and write the page."""
    parser = argparse.ArgumentParser(description="Find near duplicates in a folder of images.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--file", type=Path, help="the index (default: FOLDER/.similar_images.lsq)")
    parser.add_argument("--sheet", type=Path, help="the page to write (default: FOLDER/similar_images.html)")
    parser.add_argument("--distance", type=float, default=0.05, help="how far near duplicates may be apart (0.05)")
    parser.add_argument("--embed", metavar="MODULE:FUNCTION", help="a description of images; the same at every call")
    given = parser.parse_args()
    if not given.folder.is_dir():
        parser.error(f"{given.folder}: is not a folder")
    file, sheet = (
        given.file or given.folder / ".similar_images.lsq",
        given.sheet or given.folder / "similar_images.html",
    )
    embed = plugged_in(given.embed) if given.embed else shapes_and_edges
    try:
        if not file.exists():
            dim = np.asarray(embed([Image.new("RGB", (64, 64))])).shape[-1]
            Index.create(file, dim, metric="cosine", ids="str", keep_vectors="float16").close()
        with Index.open(file) as index:
            update(given.folder, index, embed)
            found = groups(index, given.distance)
        for group in found:
            print("  ".join(name.rpartition("@")[0] for name in group))
        write_sheet(given.folder, found, sheet)
    except (LsqIndexError, OSError) as error:
        sys.exit(f"similar_images: {error}")
    print(f"{sheet}: {len(found):,} groups")


if __name__ == "__main__":
    main()
