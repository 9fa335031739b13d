"""The application's listener for partitions that the group of an asyncio consumer assigns and revokes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from holdfast_log.clients.groups.listener import RebalanceListener
from holdfast_log.protocol.topic_partition import TopicPartition

CallBack = Callable[[Callable[[], object], str], Any]
"""Makes a call in the application's loop, and waits for its end; the text names the call."""


class AsyncRebalanceListener:
    """A base class whose methods do nothing. They are called in the consumer's loop, and may be coroutines:
    `async def on_partitions_revoked(self, partitions)`.

    `poll` waits for them. A method may await calls of the consumer, for example `commit` or `seek`, but not
    `poll` or `close`. The group waits for it, for at most `max.poll.interval.ms`; then it is cancelled.
    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These will go to other members. Offsets of processed records can still be committed."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These are newly assigned; partitions that stayed are not included."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These may have other owners already, because the membership has ended: it is too late to commit.

        Calls `on_partitions_revoked` unless overridden.
        """
        return self.on_partitions_revoked(partitions)


class ListenerInLoop(RebalanceListener):
    """What the ordinary consumer calls in its thread: has the application's listener called in the loop."""

    def __init__(self, listener: AsyncRebalanceListener | RebalanceListener, call_back: CallBack) -> None:
        self._listener = listener
        self._call_back = call_back

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        call = partial(self._listener.on_partitions_revoked, partitions)
        self._call_back(call, "on_partitions_revoked")

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        call = partial(self._listener.on_partitions_assigned, partitions)
        self._call_back(call, "on_partitions_assigned")

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._call_back(partial(self._listener.on_partitions_lost, partitions), "on_partitions_lost")
