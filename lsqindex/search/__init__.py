"""From queries to the nearest rows.

    query ──▶ tables ──▶ scan: a distance for every row ──▶ topk: the k nearest ──▶ rerank: exact distances

Searching knows layouts, tables and rows; no encoder by name, and nothing of LMDB.
"""
