"""Which partition of `__consumer_offsets` keeps a group: Kafka's rule, so that tools find it themselves."""

from __future__ import annotations

from functools import lru_cache

OFFSETS_TOPIC = "__consumer_offsets"


def partition_of_group(group_id: str, partition_count: int) -> int:
    """The partition that keeps the group's offsets; its leader coordinates the group."""
    return (_java_hash(group_id) & 0x7FFFFFFF) % partition_count


@lru_cache(maxsize=16_384)
def _java_hash(text: str) -> int:
    """Java's String.hashCode, which goes over UTF-16 units, as an unsigned number."""
    units = text.encode("utf-16-be", "surrogatepass")
    number = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) & 0xFFFFFFFF
    return number
