"""Brokers as child processes, and whole clusters of them, for trying things out, tests and benchmarks."""
