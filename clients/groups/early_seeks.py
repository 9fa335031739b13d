"""Positions that the application sets before the group has assigned the partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast_log.clients.fetching.positions import Position
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.topic_partition import TopicPartition


class EarlySeeks:
    """The seeks that wait until the group assigns their partitions to this consumer."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._waiting: dict[TopicPartition, Callable[[Position], None]] = {}
        self._has_told = False

    def add(self, partition: TopicPartition, go: Callable[[Position], None]) -> None:
        """Set a position by `go` as soon as there is one; replaces an earlier seek."""
        self._waiting[partition] = go

    def forget(self, topic: str) -> None:
        """Drop the seeks to a topic, which is no longer subscribed."""
        self._waiting = {key: go for key, go in self._waiting.items() if key.topic != topic}

    def carry_out(self, assigned: Sequence[Position]) -> Exception | None:
        """Set the positions that the group has assigned now. Returns, once, the error for those that it has
        assigned to no partition of this consumer with its first partitions."""
        for position in assigned:
            go = self._waiting.pop(position.key, None)
            if go is not None:
                go(position)
        if not assigned or self._has_told:
            return None
        self._has_told = True
        if not self._waiting:
            return None
        return error_for(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"seek() has no effect on {', '.join(map(str, self._waiting))}: group {self._group_id} has not "
            "assigned it to this consumer. Should it do so later, reading begins at that place",
        )
