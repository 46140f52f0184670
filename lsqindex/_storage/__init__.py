"""The file: one LMDB environment with everything an index is.

    env ──▶ a snapshot to read, or a writer ──▶ store: rows in and out ──▶ columns, ids, deleted
     └─ pages: is LMDB's skeleton sound?           └─ records: header + checksum around every value

``keys`` builds every key, ``meta`` holds options and state, ``rewrite`` makes a compacted copy, ``check``
looks at everything. Nothing here knows an encoder: codes are bytes of a width.
"""
