"""The life of an LMDB file: opening, locks, growth, and what to check before LMDB reads a page."""
