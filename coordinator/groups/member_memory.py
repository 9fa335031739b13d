"""The memory of members' subscriptions and assignments, whose size clients choose."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.coordinator.groups.classic_group import ClassicGroup


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


def member_bytes(group: ClassicGroup, *, without: str = "") -> int:
    """Bytes of the subscriptions and assignments of a group's members, except for one member."""
    return sum(
        len(member.assignment) + sum(len(metadata) for _, metadata in member.protocols)
        for member in group.members.values()
        if member.member_id != without
    )
