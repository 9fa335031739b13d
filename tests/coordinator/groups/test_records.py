"""The records of __consumer_offsets, compared with bytes written by hand from Kafka's schemas."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.coordinator.groups.records import (
    CommittedOffset,
    GroupKey,
    GroupValue,
    ManagedGroupKey,
    ManagedGroupValue,
    ManagedMemberValue,
    MemberValue,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_managed_group_value,
    decode_offset_value,
    fits,
    group_record,
    managed_group_record,
    offset_record,
)
from holdfast_log.coordinator.shards.effects import MalformedRecord
from holdfast_log.protocol.topic_partition import TopicPartition

ORDERS_3 = TopicPartition("orders", 3)
GROUP = GroupValue(
    "consumer",
    7,
    "range",
    "m-1",
    1234,
    (
        MemberValue("m-1", None, "c", "/10.0.0.1", 60_000, 10_000, b"sub", b"assigned"),
        MemberValue("i-2", "i", "c", "/10.0.0.2", 60_001, 10_001, b"", b""),
    ),
)
MANAGED = ManagedGroupValue(
    30_000,
    True,
    "sticky",
    12,
    (("orders", 4), ("später", 0)),
    (ManagedMemberValue("c-1", "c", "/10.0.0.1", 30_000, 12, (ORDERS_3, TopicPartition("orders", 0))),),
)

TEXT = st.text(max_size=20)
INT = st.integers(-(2**31), 2**31 - 1)
TIME = st.integers(0, 2**63 - 1)


class TestOffsets:
    def test_key_and_value_have_kafkas_bytes(self) -> None:
        record = offset_record("g", ORDERS_3, CommittedOffset(42, 5, "meta", 1000))
        assert record.key == b"\x00\x01\x00\x01g\x00\x06orders\x00\x00\x00\x03"
        assert record.value == (
            b"\x00\x03" + struct.pack(">qi", 42, 5) + b"\x00\x04meta" + struct.pack(">q", 1000)
        )

    def test_a_commit_with_its_own_expiry_is_written_as_v1(self) -> None:
        record = offset_record("g", ORDERS_3, CommittedOffset(42, 5, "meta", 1000, 2000))
        assert record.value == (
            b"\x00\x01" + struct.pack(">q", 42) + b"\x00\x04meta" + struct.pack(">qq", 1000, 2000)
        )
        assert decode_offset_value(record.value) == CommittedOffset(42, -1, "meta", 1000, 2000)

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (
                b"\x00\x00" + struct.pack(">q", 9) + b"\x00\x00" + struct.pack(">q", 77),
                CommittedOffset(9, -1, "", 77),
            ),
            (
                b"\x00\x01" + struct.pack(">q", 9) + b"\x00\x00" + struct.pack(">qq", 77, -1),
                CommittedOffset(9, -1, "", 77),
            ),
            (
                b"\x00\x02" + struct.pack(">q", 9) + b"\x00\x01x" + struct.pack(">q", 77),
                CommittedOffset(9, -1, "x", 77),
            ),
        ],
    )
    def test_older_values_are_read(self, value: bytes, expected: CommittedOffset) -> None:
        assert decode_offset_value(value) == expected

    def test_a_deletion_is_a_tombstone_under_the_same_key(self) -> None:
        committed = offset_record("g", ORDERS_3, CommittedOffset(1, -1, "", 0))
        deleted = offset_record("g", ORDERS_3, None)
        assert deleted.key == committed.key
        assert deleted.value is None

    def test_both_key_versions_are_read(self) -> None:
        key = offset_record("g", ORDERS_3, None).key
        assert decode_key(key) == OffsetKey("g", ORDERS_3)
        assert decode_key(b"\x00\x00" + key[2:]) == OffsetKey("g", ORDERS_3)

    @given(
        group_id=TEXT,
        topic=TEXT,
        partition=INT,
        offset=st.integers(-(2**63), 2**63 - 1),
        epoch=INT,
        metadata=TEXT,
        at_ms=TIME,
    )
    def test_encoded_records_decode_to_the_same_value(
        self, group_id: str, topic: str, partition: int, offset: int, epoch: int, metadata: str, at_ms: int
    ) -> None:
        committed = CommittedOffset(offset, epoch, metadata, at_ms)
        record = offset_record(group_id, TopicPartition(topic, partition), committed)
        assert decode_key(record.key) == OffsetKey(group_id, TopicPartition(topic, partition))
        assert record.value is not None
        assert decode_offset_value(record.value) == committed


class TestClassicGroups:
    def test_key_and_value_have_kafkas_bytes(self) -> None:
        record = group_record("g", GROUP)
        assert record.key == b"\x00\x02\x00\x01g"
        assert record.value == (
            b"\x00\x03"
            b"\x00\x08consumer" + struct.pack(">i", 7) + b"\x00\x05range"
            b"\x00\x03m-1" + struct.pack(">qi", 1234, 2) + b"\x00\x03m-1"
            b"\xff\xff"
            b"\x00\x01c"
            b"\x00\x09/10.0.0.1" + struct.pack(">ii", 60_000, 10_000) + b"\x00\x00\x00\x03sub"
            b"\x00\x00\x00\x08assigned"
            b"\x00\x03i-2"
            b"\x00\x01i"
            b"\x00\x01c"
            b"\x00\x09/10.0.0.2" + struct.pack(">ii", 60_001, 10_001) + b"\x00\x00\x00\x00"
            b"\x00\x00\x00\x00"
        )

    def test_encoded_records_decode_to_the_same_value(self) -> None:
        record = group_record("g", GROUP)
        assert decode_key(record.key) == GroupKey("g")
        assert record.value is not None
        assert decode_group_value(record.value) == GROUP

    def test_an_empty_group_decodes_to_the_same_value(self) -> None:
        empty = GroupValue("consumer", 8, None, None, None, ())
        value = group_record("g", empty).value
        assert value is not None
        assert decode_group_value(value) == empty

    def test_a_value_without_rebalance_timeout_uses_the_session_timeout(self) -> None:
        value = (
            b"\x00\x00"
            b"\x00\x08consumer" + struct.pack(">i", 7) + b"\x00\x05range"
            b"\x00\x01m" + struct.pack(">i", 1) + b"\x00\x01m"
            b"\x00\x01c"
            b"\x00\x01h" + struct.pack(">i", 30_000) + b"\x00\x00\x00\x00"
            b"\x00\x00\x00\x00"
        )
        group = decode_group_value(value)
        assert group.state_since_ms is None
        assert group.members == (MemberValue("m", None, "c", "h", 30_000, 30_000, b"", b""),)


class TestManagedGroups:
    def test_encoded_records_decode_to_the_same_value(self) -> None:
        record = managed_group_record("g", MANAGED)
        assert decode_key(record.key) == ManagedGroupKey("g")
        assert record.value is not None
        assert decode_managed_group_value(record.value) == MANAGED

    def test_a_group_with_single_readers_is_restored(self) -> None:
        value = replace(MANAGED, single_reader=True)
        record = managed_group_record("g", value)
        assert record.value is not None
        assert decode_managed_group_value(record.value) == value

    def test_a_group_without_single_readers_is_written_in_version_0(self) -> None:
        assert (managed_group_record("g", MANAGED).value or b"")[:2] == b"\x00\x00"

    def test_the_key_version_is_above_all_of_kafkas(self) -> None:
        assert managed_group_record("g", None).key[:2] == struct.pack(">h", 30_000)


def test_keys_of_unknown_versions_decode_to_none() -> None:
    """For example those of Kafka 4's share groups."""
    assert decode_key(b"\x00\x0a\x00\x01g") is None


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_decoded_or_refused(data: bytes) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value, decode_managed_group_value):
        try:
            decode(data)
        except MalformedRecord:
            continue


@pytest.mark.parametrize("record", [group_record("g", GROUP), managed_group_record("g", MANAGED)])
def test_a_truncated_value_is_refused(record: tuple[bytes, bytes]) -> None:
    decode = decode_group_value if record == group_record("g", GROUP) else decode_managed_group_value
    for length in range(len(record[1])):
        with pytest.raises(MalformedRecord):
            decode(record[1][:length])


def test_strings_over_32767_bytes_do_not_fit_a_record() -> None:
    assert fits("a" * 32_767, None, "b")
    assert not fits("a" * 32_768)
    assert not fits("ü" * 16_384)
