"""Benchmarks: ``python -m bench encoders``, ``python -m bench storage``, ``python -m bench scan``."""

#: How many threads NumPy's BLAS and FAISS take; read when these are first imported.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
