"""The partition of an internal topic that stores a key, by Kafka's rule, on which tools rely."""

from __future__ import annotations

from functools import lru_cache


def partition_of_key(key: str, partition_count: int) -> int:
    """The partition that stores the key's records; its leader is the key's coordinator."""
    return (_java_hash(key) & 0x7FFFFFFF) % partition_count


@lru_cache(maxsize=16_384)
def _java_hash(text: str) -> int:
    """Java's String.hashCode, computed over UTF-16 code units, as an unsigned number."""
    units = text.encode("utf-16-be", "surrogatepass")
    number = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) & 0xFFFFFFFF
    return number
