"""The methods of a consumer that concern its group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast_log.clients.arguments import A_NAME, A_TIMEOUT, PARTITIONS, checked
from holdfast_log.clients.consuming.loop import ConsumerLoop
from holdfast_log.clients.errors import ClosedError, NoGroupError
from holdfast_log.clients.fetching.arguments import OFFSETS
from holdfast_log.clients.fetching.consumer_use import one_thread
from holdfast_log.clients.fetching.queries import ConsumerQueries
from holdfast_log.clients.groups.membership import GroupIdentity
from holdfast_log.clients.message import OffsetAndMetadata
from holdfast_log.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from holdfast_log.clients.groups.session import GroupSession


class GroupCalls(ConsumerQueries):
    """What a consumer asks of its group. Raises NoGroupError for one without a `group.id`."""

    _group: GroupSession | None
    _loop: ConsumerLoop

    @one_thread
    @checked(pattern=A_NAME)
    def add_pattern(self, pattern: str) -> None:
        """Consume all topics whose whole names match a regular expression, those that are created later too.

        Needs `group.protocol=consumer`: the brokers match it, in RE2's syntax, and internal topics never
        match. Replaces an earlier expression; topics of `add_topic` are consumed beside it. `poll` raises an
        InvalidRegularExpressionError if the brokers cannot use it.
        """
        self._required_group("add_pattern").subscribe_pattern(pattern)
        self._loop.begin_beside()

    @one_thread
    def remove_pattern(self) -> None:
        """Undo `add_pattern`. Other members get the partitions, or nobody does."""
        self._required_group("remove_pattern").subscribe_pattern(None)

    @one_thread
    @checked(partitions=PARTITIONS, timeout_ms=A_TIMEOUT)
    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets of any partitions; None for a partition without one.

        For one partition: `committed([partition])[partition]`.
        """
        group = self._required_group("committed")
        return group.commits.committed(partitions, self._limit_ms(timeout_ms), self._loop.turn)

    @one_thread
    @checked(offsets=OFFSETS, timeout_ms=A_TIMEOUT)
    def rewind(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Move the group to these offsets, in partitions of any of its members. Returns the new offsets.

        Needs `group.protocol=managed` (client rewrite, "Offset Rewind"). The owners stop, commit, and
        continue at the new offsets when this returns. The records of the last `poll` count as processed.
        Raises OffsetOutOfRangeError, UnknownTopicOrPartitionError, NoGroupError and others.
        """
        group = self._required_group("rewind")
        return group.rewind(offsets, self._limit_ms(timeout_ms), self._loop.turn)

    @one_thread
    def group_identity(self) -> GroupIdentity:
        """The group, and this consumer's generation and member id in it; -1 and "" outside the group."""
        return self._required_group("group_identity").identity

    @one_thread
    def group_metadata(self) -> GroupIdentity:
        """What a transaction needs to commit this consumer's offsets (`send_offsets`), as `group_identity`:
        a member that was replaced meanwhile is refused by it (KIP-447), and an owner that has lost its
        partitions too."""
        return self._required_group("group_metadata").commits.identity

    @property
    def last_commit_error(self) -> Exception | None:
        """Why the last automatic commit failed; None after one that succeeded."""
        return None if self._group is None else self._group.commits.last_error

    def _required_group(self, what: str) -> GroupSession:
        if self._loop.is_closed:
            raise ClosedError("the consumer is closed")
        if self._group is None:
            raise NoGroupError(f"{what}() needs a consumer with a group.id")
        return self._group
