"""The document store of lsqindex, where Haystack looks for it."""

from lsqindex.hosts.haystack import LsqDocumentStore

__all__ = ["LsqDocumentStore"]
