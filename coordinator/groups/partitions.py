"""The partition of `__consumer_offsets` that stores a group."""

from __future__ import annotations

from holdfast_log.coordinator.shards.partitions import partition_of_key

OFFSETS_TOPIC = "__consumer_offsets"


def partition_of_group(group_id: str, partition_count: int) -> int:
    """The partition that stores the group's records; its leader is the group's coordinator."""
    return partition_of_key(group_id, partition_count)
