"""For whoever writes an encoder: its contract as a test suite, and the kernels again in plain NumPy."""

from .conformance import EncoderConformance, clustered_vectors, true_distances

__all__ = ["EncoderConformance", "clustered_vectors", "true_distances"]
