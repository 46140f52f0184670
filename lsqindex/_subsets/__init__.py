"""Subset structures: what lets a search read only part of the rows.

    base.py       the interface of every structure: configuration, upkeep in a transaction, checking, statistics
    stored.py     which structures there are, and the one that a file has
    multi_index/  the multi-index of the paper

A structure is derived from the columns of an index and can be built again from them. Rows that are not in it yet are
*fresh*: searches scan them, so that no row is ever missing.
"""
