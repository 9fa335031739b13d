"""What a shard asks of a group without knowing its protocol: one `GroupKind` for each protocol.

The requests of a protocol are its own (`classic_requests`, `managed_requests`, `consumer_requests`). Whatever
concerns any group, such as its offsets, its record, deadlines, topics and descriptions, goes through this
interface.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from holdfast_log.coordinator.groups.deadlines import TimerKey
from holdfast_log.coordinator.groups.effects import DescribeAnswer, ShardResult
from holdfast_log.coordinator.groups.states import GroupType
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

G = TypeVar("G")


class Expiry(NamedTuple):
    """How the offsets of a group expire: counted from `unused_since_ms`, or if that is None from each commit.
    Those of topics in `still_read` do not."""

    unused_since_ms: int | None = None
    still_read: Collection[str] = frozenset()


class GroupKind(Generic[G]):
    """The groups of one protocol on one shard."""

    group_type: ClassVar[GroupType]
    value: ClassVar[type]
    """The class of what the log has of a group, its `durable`."""

    # Restoring and undoing

    def restored(self, group_id: str, value: Any) -> G:
        """The group as a new coordinator restores it from `value`."""
        raise NotImplementedError

    def resume(self, group: G, result: ShardResult, now_ms: int) -> None:
        """Set the deadlines of a restored group, and do what its previous coordinator may have left undone.
        Writes no records unless the group must change."""
        raise NotImplementedError

    def abandon(self, group: G) -> Sequence[RequestToken]:
        """Forget the deadlines of a group that is discarded. Returns the requests that wait in it."""
        raise NotImplementedError

    # Events

    def leave(
        self,
        group: G,
        result: ShardResult,
        request: RequestToken,
        members: Sequence[tuple[str, str | None]],
        now_ms: int,
    ) -> None:
        """LeaveGroup of (member id, instance id) pairs."""
        raise NotImplementedError

    def topics_changed(self, group: G, result: ShardResult, topics: Collection[str], now_ms: int) -> None:
        """`topics` have been created, deleted or given more partitions."""

    def fall_due(self, group: G, key: TimerKey, result: ShardResult, now_ms: int) -> None:
        """A deadline of the group has passed."""
        raise NotImplementedError

    def delete(self, group: G, result: ShardResult) -> ErrorCode:
        """Delete an empty group with its offsets; the error if it may not be deleted."""
        raise NotImplementedError

    # Offsets

    def has_committed(self, group: G, member_id: str, now_ms: int) -> None:
        """A member commits offsets."""

    def may_commit(self, group: G, member_id: str, partition: TopicPartition) -> bool:
        """Whether a caller that may commit may do so for this partition."""
        return True

    def check_fetch(self, group: G, member_id: str | None, epoch: int) -> ErrorCode:
        """NONE if a caller that names itself as a member may fetch offsets; else the error. Only members of
        consumer groups do."""
        return ErrorCode.NONE

    def topics_in_use(self, group: G) -> Collection[str] | None:
        """The topics that the members of a group read, whose offsets must stay; None if unknown."""
        raise NotImplementedError

    def expiry(self, group: G) -> Expiry | None:
        """How the offsets of a group expire now; None: not at all."""
        raise NotImplementedError

    def is_vacant(self, group: G) -> bool:
        """Whether the group exists for its offsets only, and ends with them."""
        raise NotImplementedError

    # To look at

    def describe(self, group: G) -> DescribeAnswer:
        """The group in the terms of Kafka's consumer protocol, so that tools can read it."""
        raise NotImplementedError

    def protocol_type(self, group: G) -> str:
        raise NotImplementedError

    def member_bytes(self, group: G, *, without: str = "") -> int:
        """Bytes of what the group holds for its members, whose size they choose; except for one member."""
        raise NotImplementedError
