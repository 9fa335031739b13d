"""Control records: the bytes of Kafka's markers, what is read of them, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.protocol.batches import BatchHeader, has_valid_crc, read_header, write_header
from holdfast_log.protocol.control_records import (
    EndMarker,
    end_marker_batch,
    end_marker_of,
    readable_end_marker,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode


def test_the_bytes_of_a_marker_are_kafkas() -> None:
    batch = end_marker_batch(7, 3, EndMarker(is_commit=True, coordinator_epoch=5), 1_000, base_offset=9)
    # The layout of EndTransactionMarker in a batch of MemoryRecords.withEndTransactionMarker.
    assert batch[:12].hex() == "0000000000000009" + "00000042"
    assert batch[16:17].hex() == "02"
    assert batch[21:].hex() == (
        "0030"  # transactional, control
        "00000000"  # last offset delta
        "00000000000003e8" "00000000000003e8"  # timestamps
        "0000000000000007" "0003" "ffffffff" "00000001"  # producer, epoch, no sequence, one record
        "20" "00" "00" "00"  # length, attributes, timestamp delta, offset delta
        "08" "0000" "0001"  # the key: version 0, commit
        "0c" "0000" "00000005"  # the value: version 0, coordinator epoch
        "00"
    )  # fmt: skip
    assert len(batch) == 78


@given(
    st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.booleans(), st.integers(-1, 2**31 - 1),
    st.integers(0, 2**60),
)  # fmt: skip
def test_a_marker_is_read_as_it_was_written(
    producer_id: int, epoch: int, is_commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> None:
    marker = EndMarker(is_commit, coordinator_epoch)
    batch = end_marker_batch(producer_id, epoch, marker, timestamp_ms)
    header = read_header(batch)
    assert has_valid_crc(batch, header)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch) == (producer_id, epoch)
    assert end_marker_of(memoryview(batch), header) == marker


def changed(key: str, value: str) -> tuple[memoryview, BatchHeader]:
    """A control batch whose record has this key and value, in hexadecimal."""
    batch = end_marker_batch(1, 0, EndMarker(is_commit=True), 0)
    record = bytes.fromhex("000000" + f"{len(key):02x}" + key + f"{len(value):02x}" + value + "00")
    batch[61:] = bytes((2 * len(record),)) + record
    write_header(
        batch, attributes=0x30, record_count=1, last_offset_delta=0, base_timestamp=0, max_timestamp=0,
        producer_id=1, producer_epoch=0,
    )  # fmt: skip
    return memoryview(batch), read_header(batch)


def test_later_versions_are_read_as_the_first() -> None:
    assert end_marker_of(*changed("00070000ff", "000300000002ff")) == EndMarker(False, 2)


@pytest.mark.parametrize("type_", ["0002", "0006", "ffff"])
def test_control_records_of_other_types_end_nothing(type_: str) -> None:
    assert end_marker_of(*changed("0000" + type_, "")) is None


@pytest.mark.parametrize(
    ("key", "value"), [("0000", "000000000000"), ("ffff0001", "000000000000"), ("00000001", "0000"),
                       ("00000000", "ffff00000000")],
)  # fmt: skip
def test_records_that_no_broker_writes_are_refused(key: str, value: str) -> None:
    with pytest.raises(BrokerError) as raised:
        end_marker_of(*changed(key, value))
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE
    assert readable_end_marker(*changed(key, value)) is None


def test_a_batch_whose_record_was_removed_has_no_marker() -> None:
    batch = end_marker_batch(1, 0, EndMarker(is_commit=True), 0)[:61]
    write_header(
        batch, attributes=0x30, record_count=0, last_offset_delta=0, base_timestamp=0, max_timestamp=0,
        producer_id=1, producer_epoch=0,
    )  # fmt: skip
    assert end_marker_of(memoryview(batch), read_header(batch)) is None
