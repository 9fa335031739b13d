"""The records of consumer groups, compared with bytes written by hand from Kafka's schemas of keys 3 to 8."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

import pytest

from holdfast_log.coordinator.groups.consumer_assignment import CurrentAssignment, IdPartition, MemberState
from holdfast_log.coordinator.groups.consumer_records import (
    ConsumerGroupValue,
    ConsumerKey,
    ConsumerMemberValue,
    ConsumerMeta,
    ReplayedGroup,
    TopicOfGroup,
    changes,
)
from holdfast_log.coordinator.groups.records import decode_key
from holdfast_log.coordinator.shards.effects import MalformedRecord, ShardRecord

TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")
META = ConsumerMeta(None, "r", "c", "/h", ("t",), "", 300_000, "uniform")
CURRENT = CurrentAssignment(
    5, 4, MemberState.UNREVOKED, frozenset([IdPartition(TOPIC, 1)]), frozenset([IdPartition(TOPIC, 2)])
)
MEMBER = ConsumerMemberValue(META, frozenset([IdPartition(TOPIC, 1), IdPartition(TOPIC, 0)]), CURRENT)
GROUP = ConsumerGroupValue(6, 5, (TopicOfGroup(TOPIC, "t", 3),), {"m": MEMBER})

EXPECTED = {
    b"\x00\x05\x00\x01g\x00\x01m": b"\x00\x00"  # version
    + b"\x00"  # no instance id
    + b"\x02r\x02c\x03/h"  # rack, client, host
    + b"\x02\x02t"  # one topic
    + b"\x01"  # an empty regular expression
    + b"\x00\x04\x93\xe0"  # rebalance timeout
    + b"\x08uniform"
    + b"\x00",  # no tagged fields: not a classic member
    b"\x00\x04\x00\x01g": b"\x00\x00\x02" + TOPIC.bytes + b"\x02t\x00\x00\x00\x03\x01\x00\x00",
    b"\x00\x03\x00\x01g": b"\x00\x00\x00\x00\x00\x06\x00",
    b"\x00\x07\x00\x01g\x00\x01m": b"\x00\x00\x02"
    + TOPIC.bytes
    + b"\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00",
    b"\x00\x06\x00\x01g": b"\x00\x00\x00\x00\x00\x05\x00",
    b"\x00\x08\x00\x01g\x00\x01m": b"\x00\x00\x00\x00\x00\x05\x00\x00\x00\x04\x01"
    + (b"\x02" + TOPIC.bytes + b"\x02\x00\x00\x00\x01\x00")
    + (b"\x02" + TOPIC.bytes + b"\x02\x00\x00\x00\x02\x00")
    + b"\x00",
}


def replayed(records: list[ShardRecord]) -> ConsumerGroupValue | None:
    group = ReplayedGroup()
    for key, value in records:
        decoded = decode_key(key)
        assert isinstance(decoded, ConsumerKey)
        assert decoded.group_id == "g"
        group.take(decoded, value)
    return group.value()


def test_a_new_group_has_kafkas_bytes() -> None:
    assert dict(changes("g", None, GROUP)) == EXPECTED


def test_records_are_read_in_whatever_order_compaction_has_left_them() -> None:
    records = list(changes("g", None, GROUP))
    for seed in range(20):
        random.Random(seed).shuffle(records)
        assert replayed(records) == GROUP


def test_only_what_has_changed_is_written() -> None:
    moved = replace(CURRENT, epoch=6)
    after = replace(GROUP, members={"m": MEMBER._replace(current=moved)})
    (record,) = changes("g", GROUP, after)
    assert record.key == b"\x00\x08\x00\x01g\x00\x01m"
    assert list(changes("g", GROUP, GROUP)) == []


def test_a_member_that_is_gone_is_deleted_and_so_is_a_group() -> None:
    gone = list(changes("g", GROUP, replace(GROUP, members={})))
    assert [key for key, _ in gone] == [b"\x00%c\x00\x01g\x00\x01m" % kind for kind in (8, 7, 5)]
    assert all(value is None for _, value in gone)
    deleted = list(changes("g", GROUP, None))
    assert {key for key, _ in deleted} == set(EXPECTED)
    assert all(value is None for _, value in deleted)
    assert replayed([*changes("g", None, GROUP), *deleted]) is None
    assert list(changes("g", None, None)) == []


def test_a_static_member_that_is_away_has_epoch_minus_two_as_in_kafka() -> None:
    away = CurrentAssignment(5, 4, MemberState.AWAY, frozenset([IdPartition(TOPIC, 1)]))
    group = replace(GROUP, members={"m": MEMBER._replace(current=away)})
    written = dict(changes("g", GROUP, group))[b"\x00\x08\x00\x01g\x00\x01m"]
    assert written is not None
    assert written[2:11] == b"\xff\xff\xff\xfe\x00\x00\x00\x05\x00"
    restored = replayed(list(changes("g", None, group)))
    assert restored is not None
    assert restored.members["m"].current == replace(away, previous_epoch=5)


def test_what_a_newer_kafka_adds_is_skipped() -> None:
    """Kafka 4.1 writes a hash of the topics beside the epoch of the group."""
    group = ReplayedGroup()
    group.take(ConsumerKey(3, "g"), b"\x00\x00\x00\x00\x00\x06\x01\x00\x08" + bytes(8))
    assert group.epoch == 6


@pytest.mark.parametrize("kind", range(3, 9))
@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x01", b"\x00\x00\xff\xff\xff\xff\x0f"], ids=repr)
def test_bytes_of_another_format_are_malformed(kind: int, value: bytes) -> None:
    group = ReplayedGroup()
    with pytest.raises(MalformedRecord):
        group.take(ConsumerKey(kind, "g", "m"), value)
    assert group == ReplayedGroup()


def test_an_unknown_state_is_malformed() -> None:
    value = b"\x00\x00\x00\x00\x00\x05\x00\x00\x00\x04\x07\x01\x01\x00"
    with pytest.raises(MalformedRecord, match="state 7"):
        ReplayedGroup().take(ConsumerKey(8, "g", "m"), value)


@pytest.mark.parametrize(
    "key", [b"\x00\x03", b"\x00\x03\x00\x05g", b"\x00\x08\x00\x01g", b"\x00\x05\x00\x01g\xff"]
)
def test_a_truncated_key_is_malformed(key: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_key(key)
