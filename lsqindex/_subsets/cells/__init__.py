"""Cells: rows stored with their codes beside the rows that are near to them.

    options.py    what users ask for, and how many cells an index has
    structure.py  cells as a subset structure: configuration, and what is done when
    training.py   centres: k-means on a sample
    vectors.py    the vectors of rows, as k-means sees them
    entries.py    records of cells: read and written
    listing.py    fresh rows move into cells
    upkeep.py     cells are split and dissolved, and their entries re-assigned
    found.py      the cells of a snapshot, where they lie, for searches
    kernel.py     these, as the kernel wants them
    rule.py       how many cells a query visits for a recall
    calibration.py  that rule, fitted to the cells; sampled.py has the queries it is fitted to
    checking.py   whether cells and rows agree

The database ``cells`` has three records a cell, all with the header of every record (docs/format.md):

    "k" cell      its entries: codes as in the column of codes, then row numbers
    "t" cell      its tail: entries that were added since the cell was last written, at most 32
    "c" cell      its centre and its spread

Every row is in the cell whose centre is nearest and, with spilling, in one more. Rows in one record ascend. Entries of
deleted rows stay until their record is written again; searches must not return them.

Entries change only in a transaction that also raises ``state.relisted``.
"""
