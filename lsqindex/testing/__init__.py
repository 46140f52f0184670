"""For whoever writes an encoder: its contract as a test suite, and the kernels again in plain NumPy."""

from .claims import clustered_vectors
from .conformance import EncoderConformance
from .table_claims import true_distances

__all__ = ["EncoderConformance", "clustered_vectors", "true_distances"]
