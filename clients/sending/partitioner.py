"""The partition of a message with a key, by Kafka's default.

Messages without a key get their partition a batch at a time (`clients.sending.queues`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from holdfast_log.protocol.key_hash import murmur2

Partitioner: TypeAlias = Callable[[str, bytes | None, int], int | None]
"""(topic, serialized key, number of partitions) -> partition, or None to leave the choice to the producer.

Called for every message that names no partition: by the thread that calls `send`, or later by the producer's
thread if the topic was unknown then.
"""


def by_key(topic: str, key: bytes | None, partition_count: int) -> int | None:
    """The partition that Kafka's Java client chooses for `key`; None without a key."""
    if key is None:
        return None
    return (murmur2(bytes(key)) & 0x7FFFFFFF) % partition_count
