"""Requests to the leaders of partitions, sent again for those whose leader has moved meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.admin.topics import by_leader
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

V = TypeVar("V")
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.REPLICA_NOT_AVAILABLE,
)

AskLeader = Callable[[int, Sequence[TopicPartition]], Iterable[tuple[TopicPartition, int, str | None, V]]]
"""Asks a broker about partitions that it leads: (broker id, partitions) → for each partition the error code
and message, and the answer."""


def ask_leaders(
    asking: Asking, partitions: Iterable[TopicPartition], ask: AskLeader[V]
) -> dict[TopicPartition, V]:
    """The answer about each partition. While a broker restarts, its partitions are asked for again.

    Raises the first error that another leader would give as well, and any error once the admin client's
    timeout has passed.
    """
    found: dict[TopicPartition, V] = {}
    deadline_ms = asking.connection.network.now_ms() + asking.timeout_ms
    left = list(partitions)
    while left:
        is_last = asking.connection.network.now_ms() >= deadline_ms
        moved: list[TopicPartition] = []
        try:
            leaders = by_leader(asking, left)
        except BrokerError as error:
            if error.code not in _MOVED or is_last:
                raise
            leaders, moved = {}, left
        for node, led in leaders.items():
            for at, code, message, value in ask(node, led):
                if code in _MOVED and not is_last:
                    moved.append(at)
                    continue
                raise_first([(str(at), code, message)])
                found[at] = value
        left = moved
        if left:
            asking.pause()
    return found
