"""Records of the topics of groups and transactions are shown as JSON, in Kafka's form and with its names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast_log.broker.tools.internal_records import RecordDecoder, of_offsets, of_transactions
from holdfast_log.coordinator.groups.consumer_records import changes
from holdfast_log.coordinator.groups.records import (
    CommittedOffset,
    group_record,
    managed_group_record,
    offset_record,
)
from holdfast_log.coordinator.shards.effects import MalformedRecord, ShardRecord
from holdfast_log.coordinator.transactions.records import Transaction, transaction_record
from holdfast_log.coordinator.transactions.states import TransactionState
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.groups.test_consumer_records import GROUP as CONSUMER_GROUP
from tests.coordinator.groups.test_consumer_records import TOPIC
from tests.coordinator.groups.test_records import GROUP, MANAGED, ORDERS_3


def shown(decode: RecordDecoder, record: ShardRecord) -> tuple[Any, Any]:
    key, value = decode(record.key, record.value)
    return json.loads(key), None if value is None else json.loads(value)


def test_a_committed_offset() -> None:
    key, value = shown(of_offsets, offset_record("g", ORDERS_3, CommittedOffset(42, 5, "meta", 1000)))
    assert key == {"type": "1", "data": {"group": "g", "topic": "orders", "partition": 3}}
    assert value["version"] == "3"
    assert value["data"].items() >= {"offset": 42, "leaderEpoch": 5, "metadata": "meta"}.items()
    deleted = offset_record("g", ORDERS_3, None)
    assert shown(of_offsets, deleted) == (key, None)


def test_groups_of_each_kind() -> None:
    key, value = shown(of_offsets, group_record("g", GROUP))
    assert key == {"type": "2", "data": {"group": "g"}}
    assert value["data"].items() >= {"protocolType": "consumer", "generation": 7, "leaderId": "m-1"}.items()
    assert [member["memberId"] for member in value["data"]["members"]] == ["m-1", "i-2"]
    assert value["data"]["members"][0]["subscription"] == b"sub".hex()

    key, value = shown(of_offsets, managed_group_record("g", MANAGED))
    assert key == {"type": "30000", "data": {"group": "g"}}
    assert value["data"]["members"][0]["owned"] == ["orders-3", "orders-0"]

    found = {}
    for record in changes("g", None, CONSUMER_GROUP):
        key, value = shown(of_offsets, record)
        assert key["data"]["groupId"] == "g"
        found[key["type"]] = value["data"]
    assert found["3"] == {"epoch": 6} and found["6"] == {"epoch": 5}
    assert found["4"] == {"topics": [{"topicId": str(TOPIC), "name": "t", "partitions": 3}]}
    assert found["5"]["topics"] == ["t"] and found["5"]["assignor"] == "uniform"
    assert len(found["7"]) == 2 and found["8"]["epoch"] == 5


@pytest.mark.parametrize("is_flexible", [False, True])
def test_a_transaction(is_flexible: bool) -> None:
    partitions = frozenset((TopicPartition("t", 1),))
    transaction = Transaction(7, 2, 60_000, TransactionState.ONGOING, partitions, 1000, 900)
    key, value = shown(of_transactions, transaction_record("pay", transaction, is_flexible=is_flexible))
    assert key == {"type": "0", "data": {"transactionalId": "pay"}}
    assert value["version"] == str(int(is_flexible))
    wanted = {"producerId": 7, "producerEpoch": 2, "transactionTimeoutMs": 60_000}
    assert value["data"].items() >= wanted.items()
    assert value["data"]["transactionPartitions"] == [{"topic": "t", "partitionIds": [1]}]
    assert shown(of_transactions, transaction_record("pay", None, is_flexible=is_flexible)) == (key, None)


@pytest.mark.parametrize("decode", [of_offsets, of_transactions])
def test_what_is_no_such_record_is_refused(decode: RecordDecoder) -> None:
    with pytest.raises(MalformedRecord, match="unknown type 99"):
        decode(b"\0\x63abc", b"")
    with pytest.raises(MalformedRecord):
        decode(b"", b"")
    good = offset_record("g", ORDERS_3, CommittedOffset(42, 5, "meta", 1000)).key
    if decode is of_offsets:
        with pytest.raises(MalformedRecord):
            decode(good, b"\0\x03\0")
    else:
        with pytest.raises(MalformedRecord):
            decode(b"\0\0\0\x01a", b"\0\x07")
