"""Haystack's documents as payloads and vectors, and documents again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
from haystack.dataclasses import ByteStream, Document, SparseEmbedding
from haystack.document_stores.errors import DocumentStoreError
from numpy.typing import NDArray

from .files import value_at
from .haystack_filters import dates


def payload_of(document: Document, order: int) -> dict[str, Any]:
    """All of a document but its id."""
    payload: dict[str, Any] = {"order": order}
    if document.content is not None:
        payload["content"] = document.content
    if document.score is not None:
        payload["score"] = document.score
    if (blob := document.blob) is not None:
        payload["blob"] = {"data": blob.data, "meta": blob.meta, "mime_type": blob.mime_type}
    if (sparse := document.sparse_embedding) is not None:
        payload["sparse_embedding"] = {"indices": sparse.indices, "values": sparse.values}
    if document.embedding is not None:
        payload["embedding"] = _packed(document.embedding)
    return with_meta(payload, document.meta)


def with_meta(payload: Mapping[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    """A payload with other metadata, and the dates in it."""
    return {**payload, "meta": meta, **dates(meta)}


def document_of(name: str, payload: Any, score: float | None = None, *, embedding: bool = True) -> Document:
    """The document, with another score where one is given."""
    blob, sparse, packed = (payload.get(field) for field in ("blob", "sparse_embedding", "embedding"))
    return Document(
        id=name,
        content=payload.get("content"),
        blob=blob and ByteStream(**blob),
        meta=payload["meta"],
        score=payload.get("score") if score is None else score,
        embedding=np.frombuffer(packed["data"], packed["dtype"]).tolist() if packed and embedding else None,
        sparse_embedding=sparse and SparseEmbedding(**sparse),
    )


def _packed(embedding: Sequence[float]) -> dict[str, Any]:
    """An embedding as it is: in four bytes per number, where these hold them, as they do those of most models."""
    wide = np.array(embedding, "<f8")
    with np.errstate(over="ignore"):
        narrow = wide.astype("<f4")
    kept = narrow if np.array_equal(narrow, wide) else wide
    return {"dtype": kept.dtype.str, "data": kept.tobytes()}


def dim_of(documents: Sequence[Document]) -> int | None:
    """How many numbers embeddings have; None where no document has one."""
    dims = {len(document.embedding) for document in documents if document.embedding is not None}
    if len(dims) > 1:
        raise DocumentStoreError(
            f"embedding: some have {min(dims)} numbers and some {max(dims)}; embed all documents with one model"
        )
    if 0 in dims:
        raise DocumentStoreError("embedding: it is empty; use None for a document without an embedding")
    return dims.pop() if dims else None


def vectors_of(documents: Sequence[Document], dim: int) -> NDArray[np.float32]:
    """Their embeddings, and zeros for those without."""
    vectors = np.zeros((len(documents), dim), np.float32)
    with np.errstate(over="ignore"):  # what is too large is refused by the index, as infinite
        for vector, document in zip(vectors, documents, strict=True):
            if document.embedding is not None:
                vector[:] = document.embedding
    return vectors


def absent(documents: Sequence[Document], ids: Iterable[str]) -> list[Document]:
    """Those whose ids are not among ``ids``, the first of each."""
    there, found = set(ids), list[Document]()
    for document in documents:
        if document.id not in there:
            found.append(document)
            there.add(document.id)
    return found


def meta_name(field: str) -> str:
    """The name of a field within metadata.

    >>> meta_name("meta.year"), meta_name("year")
    ('year', 'year')
    """
    return field.removeprefix("meta.")


def values_of(payloads: Iterable[dict[str, Any]], field: str) -> list[Any]:
    """The values of a field of metadata, where there are any."""
    found = [value_at(payload["meta"], meta_name(field)) for payload in payloads]
    return [value for value in found if value is not None]


def unique(values: Iterable[Any]) -> list[Any]:
    """Each value once.

    >>> unique([1, 1.0, True, "1", 1])
    [1, 1.0, True, '1']
    """
    return list({msgpack.packb(value): value for value in values}.values())
