"""Coordinators whose state is kept in a compacted internal topic: one shard, a pure machine, for each of its
partitions, run by the partition's leader.

`HostedShard` loads a shard, handles its events and performs their effects in order. What groups and
transactions decide is in `coordinator.groups` and `coordinator.transactions`.
"""
