"""Connects coordinators to this broker: each partition of an internal topic that it leads is the log of one
shard (`coordinator.shards`), written and read through the broker's own replicas.
"""
