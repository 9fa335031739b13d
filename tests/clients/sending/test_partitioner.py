"""The partitioner agrees with other clients, so that equal keys go to one partition from every client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as theirs

from holdfast_log.clients.sending.partitioner import by_key
from holdfast_log.protocol.key_hash import murmur2


@pytest.mark.parametrize(
    ("key", "hash_"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_equal_those_of_kafka_s_java_client(key: bytes, hash_: int) -> None:
    assert murmur2(key) == hash_ & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_hashes_of_any_keys_equal_those_of_kafka_python(key: bytes) -> None:
    assert murmur2(key) == theirs(key) & 0xFFFFFFFF


@given(st.binary(max_size=16), st.integers(1, 100))
def test_a_key_is_mapped_to_a_partition_by_its_hash(key: bytes, count: int) -> None:
    partition = by_key("flights", key, count)
    assert partition is not None and 0 <= partition < count


def test_the_partitioner_returns_no_partition_for_a_message_without_a_key() -> None:
    assert by_key("flights", None, 6) is None
