"""Which partition of an internal topic stores a key: as in Kafka, and cheaply for names of any length."""

from __future__ import annotations

from holdfast_log.coordinator.shards.partitions import _REMEMBERED_MAX, _remembered_hash, partition_of_key


def test_a_key_has_the_partition_that_kafka_gives_it() -> None:
    # Math.abs of "hello".hashCode() = 99162322, and of one that is negative without its sign bit.
    assert partition_of_key("hello", 50) == 99_162_322 % 50
    assert partition_of_key("polygenelubricants", 50) == 0


def test_no_name_is_remembered_that_is_long() -> None:
    """Clients may send names of 32 KB, each another: thousands of them would take hundreds of MB."""
    before = _remembered_hash.cache_info().currsize
    for number in range(20):
        assert 0 <= partition_of_key(f"{number}" + "x" * _REMEMBERED_MAX, 50) < 50
    assert _remembered_hash.cache_info().currsize == before
    partition_of_key("a name that no other test uses", 50)
    assert _remembered_hash.cache_info().currsize == before + 1
