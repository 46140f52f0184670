"""What tests of the document store for Haystack share."""

from __future__ import annotations

from collections.abc import Callable

from haystack import Document, Pipeline, component
from haystack.components.writers import DocumentWriter
from haystack.document_stores.types import DuplicatePolicy

from haystack_integrations.document_stores.lsqindex import LsqDocumentStore

Make = Callable[..., LsqDocumentStore]


WORDS = ("lake", "ice", "train", "late", "bread", "flour")


@component
class Embedder:
    """Words, counted."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        return {"embedding": embed(text)}


def embed(text: str) -> list[float]:
    return [float(text.count(word)) for word in WORDS]


TEXTS = {"ice on the lake": 1999, "a late train": 2020, "bread needs flour": 2021, "the train is late, late": 2022}


def filled(store: LsqDocumentStore) -> LsqDocumentStore:
    writing = Pipeline()
    writing.add_component("writer", DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE))
    documents = [Document(content=text, meta={"year": year}, embedding=embed(text)) for text, year in TEXTS.items()]
    assert writing.run({"writer": {"documents": documents}})["writer"]["documents_written"] == 4
    return store
