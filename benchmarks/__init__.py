"""Benchmarks, most of them beside a peer in the same run: python -m benchmarks.NAME."""
