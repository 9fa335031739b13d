"""The memory of what groups hold, whose size clients choose: members' subscriptions and assignments, and the
topics of managed groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.consumer_group import ConsumerGroup
from holdfast_log.coordinator.groups.consumer_records import ConsumerMeta
from holdfast_log.coordinator.groups.managed_group import ManagedGroup

_MEMBER_BYTES = 500
"""What a member of a managed group costs besides its names."""
_TOPIC_BYTES = 100
"""What a topic of a managed group costs besides its name."""


class MemberMemory:
    """Counts what the groups of all shards of a broker hold. `count` returns their bytes.

    It adds what joins, and counts anew only when that would be over the limit.
    """

    def __init__(self, bytes_max: int, count: Callable[[], int]) -> None:
        self._bytes_max = bytes_max
        self._count = count
        self._added_bytes = 0

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes may be held; they then count as held."""
        if self._added_bytes + size > self._bytes_max:
            self._added_bytes = self._count()
            if self._added_bytes + size > self._bytes_max:
                return False
        self._added_bytes += size
        return True


def classic_bytes(group: ClassicGroup, *, without: str = "") -> int:
    """Bytes of the subscriptions and assignments of a classic group's members, except for one member."""
    return sum(
        len(member.assignment) + protocols_bytes(member.protocols)
        for member in group.members.values()
        if member.member_id != without
    )


def managed_bytes(group: ManagedGroup, *, without: str = "") -> int:
    """Bytes of a managed group's topics and of its members' names, except for one member."""
    members = (each for each in group.members.values() if each.consumer_id != without)
    return topics_bytes(group.partitions) + sum(
        consumer_bytes(each.consumer_id, each.client_id, each.client_host) for each in members
    )


def protocols_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    """Bytes of a member's subscriptions in all its protocols, their names included."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def topics_bytes(topics: Collection[str]) -> int:
    """Bytes for the topics of a managed group."""
    return sum(map(len, topics)) + _TOPIC_BYTES * len(topics)


def consumer_bytes(consumer_id: str, client_id: str, client_host: str) -> int:
    """Bytes for a member of a managed group."""
    return len(consumer_id) + len(client_id) + len(client_host) + _MEMBER_BYTES


def subscription_bytes(meta: ConsumerMeta) -> int:
    """Bytes for a member of a consumer group and its subscription."""
    names = (meta.instance_id or "", meta.rack_id or "", meta.client_id, meta.client_host, meta.regex)
    protocols = () if meta.classic is None else meta.classic.protocols
    return topics_bytes(meta.topics) + sum(map(len, names)) + protocols_bytes(protocols) + _MEMBER_BYTES


def consumer_group_bytes(group: ConsumerGroup, *, without: str = "") -> int:
    """Bytes of the members of a consumer group and their subscriptions, except for one member."""
    members = (each for each in group.members.values() if each.member_id != without)
    return sum(len(each.member_id) + subscription_bytes(each.meta) for each in members)
