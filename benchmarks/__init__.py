"""Benchmarks: `python -m benchmarks` in a checkout."""
