"""The records of `__transaction_state`, against bytes laid out by Kafka's definitions of them."""

from __future__ import annotations

import struct

import pytest

from holdfast_log.coordinator.shards.effects import MalformedRecord
from holdfast_log.coordinator.transactions.records import (
    Transaction,
    decode_transaction,
    decode_transaction_key,
    transaction_record,
)
from holdfast_log.coordinator.transactions.states import TransactionState
from tests.coordinator.transactions.world import A0, A1, B0

ONGOING = Transaction(
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({A0, A1, B0}),
    updated_ms=2_000,
    started_ms=1_000,
)


def test_a_record_of_version_0() -> None:
    key, value = transaction_record("id", ONGOING, is_flexible=False)
    assert key == b"\0\0" + b"\0\2id"
    assert value == b"".join(
        (
            struct.pack(">hqhib", 0, 7, 3, 60_000, 1),
            struct.pack(">i", 2),
            b"\0\1a" + struct.pack(">iii", 2, 0, 1),
            b"\0\1b" + struct.pack(">ii", 1, 0),
            struct.pack(">qq", 2_000, 1_000),
        )
    )
    assert decode_transaction_key(key) == "id"
    assert decode_transaction(value) == ONGOING


def test_a_record_of_version_1_has_tagged_fields() -> None:
    transaction = Transaction(
        7, 3, 60_000, TransactionState.PREPARE_COMMIT, frozenset({B0}), 2_000, 1_000, 5, 9, 2
    )
    _, value = transaction_record("id", transaction, is_flexible=True)
    assert value == b"".join(
        (
            struct.pack(">hqhib", 1, 7, 3, 60_000, 2),
            b"\2" + b"\2b" + b"\2" + struct.pack(">i", 0) + b"\0",
            struct.pack(">qq", 2_000, 1_000),
            b"\3",
            b"\0\x08" + struct.pack(">q", 5),
            b"\1\x08" + struct.pack(">q", 9),
            b"\2\2" + struct.pack(">h", 2),
        )
    )
    assert decode_transaction(value) == transaction


def test_an_id_without_a_transaction_has_no_list_of_partitions() -> None:
    empty = Transaction(7, 0, 60_000, TransactionState.EMPTY, frozenset(), 2_000)
    _, value = transaction_record("id", empty, is_flexible=False)
    assert value is not None
    assert value[17:21] == b"\xff\xff\xff\xff"
    assert decode_transaction(value) == empty


def test_a_tombstone_has_no_value() -> None:
    assert transaction_record("id", None, is_flexible=True).value is None


def test_keys_of_other_versions_are_not_transactional_ids() -> None:
    assert decode_transaction_key(b"\0\1\0\2id") is None


@pytest.mark.parametrize(
    "value",
    [b"", b"\0", b"\0\2" + bytes(60), b"\0\0" + bytes(10), b"\0\0" + bytes(14) + b"\x63" + bytes(60)],
    ids=["empty", "short", "version 2", "cut off", "state 99"],
)
def test_malformed_values_are_refused(value: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_transaction(value)


@pytest.mark.parametrize("key", [b"", b"\0\0\0\5id"])
def test_malformed_keys_are_refused(key: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_transaction_key(key)
