"""Benchmarks: ``python -m bench encoders``."""
