"""The life of an LMDB file: opening, locks, growth, and what to check before LMDB reads a page."""

from . import forks as forks  # its hooks are needed as soon as a file can be open
