"""Programs that start, stop and inspect brokers and local clusters, for first steps, tests and benchmarks.

Programs that talk to a cluster through a client are in `clients.tools`.
"""
