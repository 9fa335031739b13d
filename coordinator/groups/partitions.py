"""The partition of `__consumer_offsets` that stores a group, by Kafka's rule, on which tools rely."""

from __future__ import annotations

from functools import lru_cache

OFFSETS_TOPIC = "__consumer_offsets"


def partition_of_group(group_id: str, partition_count: int) -> int:
    """The partition that stores the group's records; its leader is the group's coordinator."""
    return (_java_hash(group_id) & 0x7FFFFFFF) % partition_count


@lru_cache(maxsize=16_384)
def _java_hash(text: str) -> int:
    """Java's String.hashCode, computed over UTF-16 code units, as an unsigned number."""
    units = text.encode("utf-16-be", "surrogatepass")
    number = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) & 0xFFFFFFFF
    return number
