"""The retriever of lsqindex, where Haystack looks for it."""

from lsqindex.hosts.haystack import LsqEmbeddingRetriever

__all__ = ["LsqEmbeddingRetriever"]
