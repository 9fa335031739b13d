"""The reader claims of a managed group with single readers."""

from __future__ import annotations

from holdfast_log.coordinator.groups.effects import NOBODY, GroupReader, ReaderClaim, ShardResult
from holdfast_log.coordinator.groups.managed_group import ManagedGroup, ManagedMember
from holdfast_log.protocol.topic_partition import TopicPartition


def claim_owned(group: ManagedGroup, result: ShardResult, member: ManagedMember) -> None:
    """Claim the member's partitions for it, if the group has single readers."""
    if group.single_reader:
        reader = GroupReader(member.consumer_id, member.client_id, member.client_host)
        result.claims += [
            ReaderClaim(group.group_id, reader, member.generation, partition) for partition in member.owned
        ]


def clear_readers(group: ManagedGroup, result: ShardResult) -> None:
    """Clear the readers of all partitions after the last member has left, if the group has single readers."""
    if group.single_reader:
        result.claims += [
            ReaderClaim(group.group_id, NOBODY, group.generation, TopicPartition(topic, number))
            for topic, count in group.partitions.items()
            for number in range(count)
        ]
