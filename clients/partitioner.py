"""Which partition a message goes to: by its key where it has one, else the same one for a while."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

Partitioner: TypeAlias = Callable[[str, bytes, int], int]
"""(topic, serialized key, number of partitions) -> partition. Called in the sending application's thread."""


@lru_cache(maxsize=16 * 1024)  # Keys come again; a look-up costs a tenth of the loop.
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


def murmur2_partition(topic: str, key: bytes, partition_count: int) -> int:
    """The partition that Java's default partitioner gives to `key`: equal keys meet, whoever sends them."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyChooser:
    """Partitions for messages without a key (KIP-480, KIP-794).

    One partition of a topic is kept until about a batch has gone there, so that batches get full; then
    another is drawn, among those that have a leader.
    """

    def __init__(self, sticky_bytes: int, rng: random.Random) -> None:
        self._sticky_bytes = sticky_bytes
        self._rng = rng
        self._current: dict[str, _Choice] = {}

    def partition(self, topic: str, size: int, available: Sequence[int]) -> int:
        """The partition for a message of `size` bytes; `available` must not be empty.

        The same sequence object must be given as long as its content is the same.
        """
        choice = self._current.get(topic)
        if choice is None or choice.room <= 0 or choice.available is not available:
            previous = None if choice is None else choice.partition
            choice = _Choice(self._another(previous, available), self._sticky_bytes, available)
            self._current[topic] = choice
        choice.room -= size
        return choice.partition

    def _another(self, previous: int | None, available: Sequence[int]) -> int:
        others = [partition for partition in available if partition != previous]
        return self._rng.choice(others or available)


@dataclass(slots=True)
class _Choice:
    """The partition that a topic's messages go to, and how many bytes more may."""

    partition: int
    room: int
    available: Sequence[int]
