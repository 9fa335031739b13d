"""Brokers as child processes, and clusters of them, for trying Holdfast out, for tests and benchmarks."""
