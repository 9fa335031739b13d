"""Partitions on disk, in Kafka's file formats: segments, indexes, checkpoints, recovery, flushes.

Offsets, batches and files belong here; leaders, clients and sockets do not.
"""
