"""A partition on disk, in the file formats of Kafka: segments, indexes, checkpoints, recovery.

Knows offsets, batches and files; knows nothing of leaders, clients or sockets.
"""
