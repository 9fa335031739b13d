"""The partition of a message with a key, by Kafka's default.

Messages without a key get their partition a batch at a time (`clients.sending.queues`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

Partitioner: TypeAlias = Callable[[str, bytes | None, int], int | None]
"""(topic, serialized key, number of partitions) -> partition, or None to leave the choice to the producer.

Called for every message that names no partition: by the thread that calls `send`, or later by the producer's
thread if the topic was unknown then.
"""


@lru_cache(maxsize=16 * 1024)  # Keys repeat; a look-up costs a tenth of the loop.
def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with the seed that Kafka's Java client uses, as an unsigned number."""
    multiplier = 0x5BD1E995
    length = len(data)
    state = 0x9747B28C ^ length
    whole = length & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * multiplier & 0xFFFFFFFF
        word ^= word >> 24
        state = (state * multiplier & 0xFFFFFFFF) ^ (word * multiplier & 0xFFFFFFFF)
    rest = data[whole:]
    if rest:
        state ^= int.from_bytes(rest, "little")
        state = state * multiplier & 0xFFFFFFFF
    state ^= state >> 13
    state = state * multiplier & 0xFFFFFFFF
    return state ^ (state >> 15)


def by_key(topic: str, key: bytes | None, partition_count: int) -> int | None:
    """The partition that Kafka's Java client chooses for `key`; None without a key."""
    if key is None:
        return None
    return (murmur2(bytes(key)) & 0x7FFFFFFF) % partition_count
