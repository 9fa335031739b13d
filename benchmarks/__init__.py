"""Measurements, ours beside a peer's in the same run. Each is started as python -m benchmarks.NAME."""
