"""Benchmarks: ``python -m bench --help`` names them. Every figure of this project is printed by one of them."""

#: How many threads NumPy's BLAS and FAISS take; read when these are first imported.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
