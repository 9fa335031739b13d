"""The records of `__transaction_state`, in Kafka's own formats: a key of version 0 has the transactional id,
a value of version 0 or 1 what is known of it. Version 1 is flexible: its tagged fields keep what producers
need that get a new epoch with each transaction (KIP-890).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from holdfast_log.coordinator.shards.effects import MalformedRecord, ShardRecord
from holdfast_log.coordinator.transactions.states import TransactionState
from holdfast_log.protocol import schema
from holdfast_log.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    ProtocolMessage,
    message,
    wire,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.protocol.wire import MalformedMessage

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
_VERSION = struct.Struct(">h")
_FLEXIBLE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Transaction:
    """What the coordinator knows of a transactional id. Times are ms since the epoch.

    `started_ms` is when the first partition was added, -1 before. `previous_producer_id` and
    `last_producer_epoch` recognise a repeated request; the latter is not stored. `next_producer_id` replaces
    the producer id when all partitions have the marker. `client_version` is the transaction.version of the
    producer; from 2 on its epoch rises with each transaction.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    updated_ms: int
    started_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_unfinished(self) -> bool:
        """Whether a transaction is open, or partitions still lack its marker."""
        return self.state is TransactionState.ONGOING or self.state.is_ending


@message(versions="0")
class TransactionLogKey(ProtocolMessage):
    transactional_id: str


@schema.struct
class TransactionLogPartitions:
    topic: str
    partition_ids: list[Int32]


@message(versions="0-1", flexible="1+")
class TransactionLogValue(ProtocolMessage):
    """The value of a record; `transaction_partitions` is null in the state Empty."""

    producer_id: Int64
    previous_producer_id: Int64 = wire("1+", default=-1, tag=0, ignorable=True)
    next_producer_id: Int64 = wire("1+", default=-1, tag=1, ignorable=True)
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[TransactionLogPartitions] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = wire("1+", default=0, tag=2, ignorable=True)


def transaction_record(
    transactional_id: str, transaction: Transaction | None, *, is_flexible: bool
) -> ShardRecord:
    """The record that holds a transactional id, or with None deletes it."""
    key = _VERSION.pack(0) + schema.encode(TransactionLogKey(transactional_id=transactional_id), 0)
    if transaction is None:
        return ShardRecord(key, None)
    version = _FLEXIBLE_VERSION if is_flexible else 0
    return ShardRecord(key, _VERSION.pack(version) + schema.encode(_log_value(transaction), version))


def decode_transaction_key(key: bytes) -> str | None:
    """The transactional id; None for a key of an unknown version. Raises `MalformedRecord`."""
    if _version_of(key) != 0:
        return None
    try:
        return schema.decode(TransactionLogKey, 0, key[2:]).transactional_id
    except MalformedMessage as error:
        raise MalformedRecord(str(error)) from None


def decode_transaction(value: bytes) -> Transaction:
    """Decode a value. Raises `MalformedRecord`."""
    version = _version_of(value)
    if version not in (0, _FLEXIBLE_VERSION):
        raise MalformedRecord(f"transaction value of unknown version {version}")
    try:
        found = schema.decode(TransactionLogValue, version, value[2:])
        state = TransactionState(found.transaction_status)
    except (MalformedMessage, ValueError) as error:
        raise MalformedRecord(str(error)) from None
    return Transaction(
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        state,
        frozenset(
            TopicPartition(each.topic, index)
            for each in found.transaction_partitions or ()
            for index in each.partition_ids
        ),
        found.transaction_last_update_timestamp_ms,
        found.transaction_start_timestamp_ms,
        found.previous_producer_id,
        found.next_producer_id,
        found.client_transaction_version,
    )


def by_topic(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of partitions by topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def _version_of(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise MalformedRecord("no version")
    (version,) = _VERSION.unpack_from(data)
    return int(version)


def _log_value(transaction: Transaction) -> TransactionLogValue:
    partitions = None
    if transaction.state is not TransactionState.EMPTY:
        partitions = [
            TransactionLogPartitions(topic=topic, partition_ids=indexes)
            for topic, indexes in by_topic(transaction.partitions).items()
        ]
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.value,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
