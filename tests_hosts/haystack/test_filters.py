"""Filters, beside Haystack's own reading of them."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pytest
from haystack import Document
from haystack.errors import FilterError
from haystack.utils.filters import document_matches_filter

from haystack_integrations.document_stores.lsqindex import LsqDocumentStore

from .given import Make

FIELDS: dict[str, list[Any]] = {
    "meta.number": [1, 2, 2.5, -3, 10**15, None],
    "meta.text": ["x", "y", "", "2020", "2020-13-45", None],
    "meta.when": [
        "2020-01-01",
        "2020-01-01T00:00:00",
        "2020-01-01 12:00",
        "2020-01-01T00:00:00Z",
        "2020-01-01T02:00:00+02:00",
        "2020-01-01T00:00:00.000001+02:00",
        "1969-07-21T20:17:40",
        "9999-12-31T23:59:59-05:00",
        None,
    ],
    "meta.deep.list": [[1, 2], [2, 1], [], None],
    "content": ["x", "y", None],
}


def random_document(number: int, rng: random.Random) -> Document:
    meta: dict[str, Any] = {}
    for field in ("meta.number", "meta.text", "meta.when", "meta.deep.list"):
        *path, name = field.removeprefix("meta.").split(".")
        if rng.random() < 0.8:
            inner = meta.setdefault(path[0], {}) if path else meta
            inner[name] = rng.choice(FIELDS[field])
    embedding = [1.0, 2.0] if rng.random() < 0.5 else None
    return Document(id=str(number), content=rng.choice(FIELDS["content"]), meta=meta, embedding=embedding)


def random_filter(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    if depth and rng.random() < 0.6:
        conditions = [random_filter(rng, depth - 1) for _ in range(rng.randrange(4))]
        return {"operator": rng.choice(["AND", "OR", "NOT"]), "conditions": conditions}
    field = rng.choice([*FIELDS, "number", "id", "embedding", "meta.absent"])
    others: dict[str, list[Any]] = {"number": [1, 2], "id": ["1", "7", "x"], "embedding": [None]}
    values = {**FIELDS, **others}.get(field, [None, 1])
    ordered = [">", ">=", "<", "<="] if field in ("meta.number", "meta.when", "number") else []
    operator = rng.choice(["==", "!=", "in", "not in", *ordered])
    value = rng.choices(values, k=2) if operator in ("in", "not in") else rng.choice(values)
    return {"field": field, "operator": operator, "value": value}


@pytest.mark.parametrize("fields", [[], ["number", "meta.when", "meta.text", "content"]])
def test_filters_say_what_haystack_says(make: Make, fields: list[str]) -> None:
    """Compared with Haystack's own evaluation, document by document, on a thousand filters in all."""
    rng = random.Random(0)
    store = make(fields=fields)
    documents = [random_document(number, rng) for number in range(60)]
    store.write_documents(documents)
    for _ in range(500):
        filters = random_filter(rng)
        expected = [one.id for one in documents if document_matches_filter(filters, one)]
        assert [one.id for one in store.filter_documents(filters)] == expected, filters


def test_filters_take_datetimes(document_store: LsqDocumentStore) -> None:
    document_store.write_documents([Document(meta={"when": f"20{year}-01-01"}) for year in (19, 20, 21)])
    after = {"field": "meta.when", "operator": ">", "value": datetime(2019, 6, 1)}
    assert document_store.count_documents_by_filter(after) == 2


def test_a_list_has_its_elements(document_store: LsqDocumentStore) -> None:
    document_store.write_documents([Document(meta={"tags": ["a", "b"]}), Document(meta={"tags": ["c"]})])
    assert document_store.count_documents_by_filter({"field": "meta.tags", "operator": "in", "value": ["b", "x"]}) == 1
    assert document_store.count_documents_by_filter({"field": "meta.tags", "operator": "==", "value": "c"}) == 1
    assert document_store.count_documents_by_filter({"field": "meta.tags", "operator": "==", "value": ["a", "b"]}) == 1


@pytest.mark.parametrize(
    "filters",
    [
        {"field": "meta.x", "operator": "~", "value": 1},
        {"field": "meta.x", "operator": ">", "value": True},
        {"field": "meta.x", "operator": ">", "value": {"a": 1}},
        {"field": 3, "operator": "==", "value": 1},
        {"field": "embedding", "operator": "==", "value": [1.0]},
        {"operator": "XOR", "conditions": []},
        {"operator": "AND", "conditions": {"field": "meta.x"}},
        {"operator": "AND", "conditions": ["x"]},
        ["x"],
    ],
)
def test_filters_that_are_none(document_store: LsqDocumentStore, filters: Any) -> None:
    document_store.write_documents([Document(content="x", embedding=[1.0])])
    for ask in (document_store.filter_documents, document_store.delete_by_filter):
        with pytest.raises(FilterError):
            ask(filters)
    with pytest.raises(FilterError):
        document_store.embedding_retrieval([1.0], filters)
    assert document_store.count_documents() == 1
