"""What a managed group with single readers has the leaders of its partitions know."""

from __future__ import annotations

from coordinator.groups.effects import NOBODY, GroupReader, ReaderClaim, ShardResult
from coordinator.groups.managed_group import ManagedGroup, ManagedMember
from protocol.topic_partition import TopicPartition


def claim(group: ManagedGroup, result: ShardResult, member: ManagedMember) -> None:
    """Have the leaders know that this member reads what it owns, where the group has single readers."""
    if group.single_reader:
        reader = GroupReader(member.consumer_id, member.client_id, member.client_host)
        result.claims += [
            ReaderClaim(group.group_id, reader, member.generation, partition) for partition in member.owned
        ]


def claim_for_nobody(group: ManagedGroup, result: ShardResult) -> None:
    """The last member is gone: nobody has the partitions any more."""
    if group.single_reader:
        result.claims += [
            ReaderClaim(group.group_id, NOBODY, group.generation, TopicPartition(topic, number))
            for topic, count in group.partitions.items()
            for number in range(count)
        ]
