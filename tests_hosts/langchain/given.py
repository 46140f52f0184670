"""What tests of the store for LangChain share: embeddings and digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from lsqindex.hosts.langchain import LsqVectorStore

Vectors = NDArray[np.float32]


class Looked(Embeddings):
    """Texts are numbers: of rows of an array that has their vectors. Counts what it is asked for."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        self.asked: list[int] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(len(texts))
        return [self.vectors[int(text)].tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class OnlyAsync(Embeddings):
    """Cannot be asked but by those who wait."""

    def __init__(self, inner: Embeddings) -> None:
        self.inner = inner

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise NotImplementedError

    def embed_query(self, text: str) -> list[float]:
        raise NotImplementedError

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.inner.embed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        return self.inner.embed_query(text)


FAKE = DeterministicFakeEmbedding(size=16)
DIGITS: Vectors = load_digits().data.astype(np.float32)
DIGITS_EMBEDDING = Looked(DIGITS)
TEXTS = [str(i) for i in range(len(DIGITS))]
#: Codes, not vectors, are searched from 500 documents on.
CODED: dict[str, Any] = {"train_size": 500, "bits": 128}


def ids(documents: list[Document]) -> list[str | None]:
    return [document.id for document in documents]


def digits(**options: Any) -> LsqVectorStore:
    """All digits but the last hundred, which are for queries."""
    metadatas = [{"label": int(label)} for label in load_digits().target[:-100]]
    return LsqVectorStore.from_texts(TEXTS[:-100], DIGITS_EMBEDDING, metadatas, ids=TEXTS[:-100], **options)
