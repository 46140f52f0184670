"""Every kernel again in plain NumPy: slow, obvious, the oracle of the tests.

The compiled kernels (``cython_src/``) must give the same bits as these functions, on every
instruction set.
"""

from .assign import nearest_centres, second_cells
from .cells import Asked, Cells, Rule, Visits, search_cells
from .encoders import TENURE, bits, descend, feedback, flips, pack, product, unpack
from .exact import exact_distances, expected_misses
from .lists import best_rows, costs, list_payload, probes, scores
from .scanning import nearest, progressive, quantize, rounding, scan
from .searching import Codes, search
from .tables import distances, field_distances, linear_tables, nibble_distances, nibble_tables, nibbles

__all__ = [
    "TENURE",
    "Asked",
    "Cells",
    "Codes",
    "Rule",
    "Visits",
    "best_rows",
    "bits",
    "costs",
    "descend",
    "distances",
    "exact_distances",
    "expected_misses",
    "feedback",
    "field_distances",
    "flips",
    "linear_tables",
    "list_payload",
    "nearest",
    "nearest_centres",
    "nibble_distances",
    "nibble_tables",
    "nibbles",
    "pack",
    "probes",
    "product",
    "progressive",
    "quantize",
    "rounding",
    "scan",
    "scores",
    "search",
    "search_cells",
    "second_cells",
    "unpack",
]
