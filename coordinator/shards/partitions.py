"""The partition of an internal topic that stores a key, by Kafka's rule, on which tools rely."""

from __future__ import annotations

from functools import lru_cache

from holdfast_log.protocol.key_hash import java_hash

_REMEMBERED_MAX = 256
"""Characters of a key whose hash is remembered: clients may send many names of 32 KB, each another."""


def partition_of_key(key: str, partition_count: int) -> int:
    """The partition that stores the key's records; its leader is the key's coordinator."""
    hashed = _remembered_hash(key) if len(key) <= _REMEMBERED_MAX else java_hash(key)
    return (hashed & 0x7FFFFFFF) % partition_count


@lru_cache(maxsize=16_384)
def _remembered_hash(key: str) -> int:
    return java_hash(key)
