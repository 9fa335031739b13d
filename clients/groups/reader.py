"""What a group session needs of the consumer that it serves."""

from __future__ import annotations

from typing import Protocol

from clients.message import OffsetAndMetadata
from protocol.topic_partition import TopicPartition


class ConsumerPort(Protocol):
    """The consumer, as its group session sees it."""

    def turn(self, wait_ms: int) -> None:
        """One turn of the network's event loop."""
        ...

    def now_ms(self) -> int: ...

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where each partition stands whose position is known: after what `poll` has handed out."""
        ...

    def put_back(self, partition: TopicPartition) -> None:
        """Have what was decoded of a partition, and not handed out, be read again if it is wanted."""
        ...
