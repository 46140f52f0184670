"""What tests of the store for LlamaIndex share: filters, queries and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.schema import (
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from numpy.typing import NDArray

Op = FilterOperator
ROOT = Path(__file__).parents[2]


def where(key: str, operator: FilterOperator = Op.EQ, value: Any = None) -> MetadataFilter:
    return MetadataFilter(key=key, operator=operator, value=value)


def filters(*parts: Any, condition: FilterCondition | None = FilterCondition.AND) -> MetadataFilters:
    return MetadataFilters(filters=list(parts), condition=condition)


def ask(
    store: BasePydanticVectorStore, embedding: Sequence[float], top: int = 1, **more: Any
) -> VectorStoreQueryResult:
    return store.query(VectorStoreQuery(query_embedding=list(embedding), similarity_top_k=top, **more))


A, B, C = "AF3BE6C4-5F43-4D74-B075-6B0E07900DE8", "7D9CD555-846C-445C-A9DD-F8924A01411D", "452D24AB-F185-414C-A352"


def three_nodes() -> list[TextNode]:
    """Of weight 1 and rank a, of weight 2 and rank c, of weight 3 and rank c."""
    told: list[tuple[str, list[float], float, str, list[str], str]] = [
        (A, [1.0, 0.0], 1.0, "a", ["medium", "high"], "6FTR78Yun"),
        (B, [0.0, 1.0], 2.0, "c", ["medium"], "6FTR78Ygl"),
        (C, [1.0, 1.0], 3.0, "c", ["low", "medium", "high"], "6FTR78Ztl"),
    ]
    return [
        TextNode(
            text="lorem ipsum",
            id_=name,
            embedding=embedding,
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"test-{i}")},
            metadata={"weight": weight, "rank": rank, "quality": quality, "identifier": identifier},
        )
        for i, (name, embedding, weight, rank, quality, identifier) in enumerate(told)
    ]


def unit_nodes(n: int, dim: int, seed: int = 0) -> tuple[list[TextNode], NDArray[np.float32]]:
    vectors = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    return [
        TextNode(id_=str(i), text=f"text {i}", embedding=vector, metadata={"tenth": i % 10})
        for i, vector in enumerate(vectors.tolist())
    ], vectors
