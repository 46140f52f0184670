"""Subset structures: what lets a search read only part of the rows."""
