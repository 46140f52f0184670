"""The retriever of lsqindex, where Haystack looks for it."""

from lsqindex.hosts.haystack_retriever import LsqEmbeddingRetriever

__all__ = ["LsqEmbeddingRetriever"]
