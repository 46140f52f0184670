"""Queries and their neighbours as a picture: a row for each query, framed by whether the label is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ZOOM, _FRAME, _GAP = 6, 3, 6
_BLUE, _GREEN, _RED = (66, 103, 178), (46, 160, 67), (207, 34, 46)


def draw(
    path: Path, queries: NDArray[Any], query_labels: NDArray[Any], images: NDArray[Any], labels: NDArray[Any], ids: Any
) -> None:
    """Write the picture; images are (n, height, width) in 0…1, ids (queries, neighbours)."""
    from PIL import Image

    rows = []
    for query, label, found in zip(queries, query_labels, ids, strict=True):
        tiles = [_tile(query, _BLUE), np.full((_side(queries), 3 * _GAP, 3), 255, np.uint8)]
        tiles += [_tile(images[i], _GREEN if labels[i] == label else _RED) for i in found]
        rows.append(np.concatenate(tiles, axis=1))
    picture = np.concatenate(rows, axis=0)
    picture = np.pad(picture, ((_GAP, _GAP), (_GAP, _GAP), (0, 0)), constant_values=255)
    Image.fromarray(picture).save(path)


def _side(images: NDArray[Any]) -> int:
    return int(images.shape[1]) * _ZOOM + 2 * _FRAME + _GAP


def _tile(image: NDArray[Any], colour: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Dark on light, larger, in a frame, with room to the right and below."""
    grey = (255 * (1 - np.clip(image, 0, 1))).astype(np.uint8).repeat(_ZOOM, 0).repeat(_ZOOM, 1)
    height, width = grey.shape
    tile = np.full((height + 2 * _FRAME + _GAP, width + 2 * _FRAME + _GAP, 3), 255, np.uint8)
    tile[: height + 2 * _FRAME, : width + 2 * _FRAME] = colour
    tile[_FRAME : _FRAME + height, _FRAME : _FRAME + width] = grey[:, :, None]
    return tile
