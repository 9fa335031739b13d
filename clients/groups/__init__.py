"""A consumer's part in a group: finding the coordinator, membership, assignment, committed offsets.

Everything here is sans-IO, like the fetcher: calls go out, replies come in, and events tell the consumer
which partitions to revoke and to read.
"""
