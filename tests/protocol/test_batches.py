"""Batch headers: the layout byte by byte, and what is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.protocol import batches, checksum
from holdfast_log.protocol.batches import Compression, TimestampType
from holdfast_log.protocol.errors import BrokerError, ErrorCode

RECORDS = bytes.fromhex("10 00 00 00 01 04 6869 00".replace(" ", ""))
"""One record: length 8, no attributes, deltas 0, no key, the value "hi", no headers."""


def make_batch(payload: bytes = RECORDS, **fields: int) -> bytearray:
    values = {
        "attributes": 0,
        "record_count": 1,
        "last_offset_delta": 0,
        "base_timestamp": 1000,
        "max_timestamp": 1000,
    }
    batch = bytearray(batches.HEADER_SIZE) + payload
    batches.write_header(batch, **(values | fields))
    return batch


def refusal(buffer: bytes | bytearray, max_bytes: int = 1_000_000) -> ErrorCode:
    with pytest.raises(BrokerError) as raised:
        for header in batches.split(buffer):
            batches.check(buffer, header, max_bytes)
    return raised.value.code


def test_the_layout_is_the_one_kafka_writes() -> None:
    batch = make_batch(
        b"records",
        attributes=batches.attributes(Compression.LZ4, is_transactional=True),
        record_count=3,
        last_offset_delta=2,
        base_timestamp=0x0102030405060708,
        max_timestamp=0x1112131415161718,
        base_offset=0x2122232425262728,
        leader_epoch=7,
        producer_id=9,
        producer_epoch=4,
        base_sequence=5,
    )
    covered = bytes.fromhex(
        "0013"  # attributes: lz4, transactional
        "00000002"  # last offset delta
        "0102030405060708"
        "1112131415161718"
        "0000000000000009"  # producer id
        "0004"
        "00000005"
        "00000003"  # records
    )
    expected = (
        bytes.fromhex("2122232425262728" + f"{49 + 7:08x}" + "00000007" + "02")
        + checksum.crc32c(covered + b"records").to_bytes(4, "big")
        + covered
        + b"records"
    )
    assert bytes(batch) == expected


@given(
    attributes=st.integers(0, 0x7F),
    delta=st.integers(0, 2**31 - 2),
    base_offset=st.integers(0, 2**62),
    leader_epoch=st.integers(-1, 2**31 - 1),
    producer_id=st.integers(-1, 2**63 - 1),
    producer_epoch=st.integers(-1, 2**15 - 1),
    sequence=st.integers(-1, 2**31 - 1),
    timestamps=st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1)),
)
def test_what_is_written_is_read(
    attributes: int,
    delta: int,
    base_offset: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
    timestamps: tuple[int, int],
) -> None:
    batch = make_batch(
        attributes=attributes,
        record_count=delta + 1,
        last_offset_delta=delta,
        base_timestamp=timestamps[0],
        max_timestamp=timestamps[1],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )
    header = batches.read_header(memoryview(b"before" + bytes(batch)), 6)
    assert (header.position, header.end, header.size) == (6, 6 + len(batch), len(batch))
    assert (header.base_offset, header.last_offset, header.next_offset) == (
        base_offset,
        base_offset + delta,
        base_offset + delta + 1,
    )
    assert (header.leader_epoch, header.record_count) == (leader_epoch, delta + 1)
    assert (header.base_timestamp, header.max_timestamp) == timestamps
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (
        producer_id,
        producer_epoch,
        sequence,
    )
    assert header.compression == attributes & 7
    assert header.timestamp_type == bool(attributes & 8)
    assert header.is_transactional == bool(attributes & 16)
    assert header.is_control == bool(attributes & 32)
    assert header.has_delete_horizon == bool(attributes & 64)
    assert batches.has_valid_crc(batch, batches.read_header(batch))


def test_sequences_wrap_at_two_to_the_31() -> None:
    batch = make_batch(record_count=5, last_offset_delta=4, producer_id=1, base_sequence=2**31 - 2)
    assert batches.read_header(batch).last_sequence == 2


def test_several_batches_in_one_buffer() -> None:
    first, second = make_batch(b"a" * 10), make_batch(b"b" * 20)
    headers = batches.split(memoryview(bytes(first + second)))
    assert [header.position for header in headers] == [0, len(first)]
    assert [header.size for header in headers] == [len(first), len(second)]
    assert batches.split(b"") == []


def test_a_buffer_cut_anywhere_yields_its_whole_batches() -> None:
    buffer = make_batch(b"a" * 10) + make_batch(b"b" * 20)
    first_end = batches.HEADER_SIZE + 10
    for size in range(len(buffer)):
        whole = batches.whole_batches(memoryview(buffer)[:size])
        assert len(whole) == (1 if size >= first_end else 0)
        if size not in (0, first_end):
            assert refusal(bytes(buffer[:size])) is ErrorCode.CORRUPT_MESSAGE
    assert len(batches.whole_batches(buffer)) == 2


def test_every_flipped_bit_under_the_checksum_is_noticed() -> None:
    batch = make_batch()
    for bit in range(21 * 8, len(batch) * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        assert refusal(damaged) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_the_formats_before_batches_are_named_in_the_refusal(magic: int) -> None:
    message = struct.pack(">qiIbb", 0, 14, 0, magic, 0) + b"\xff" * 8
    assert refusal(message) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_unknown_magic(magic: int) -> None:
    batch = make_batch()
    batch[16] = magic
    assert refusal(batch) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 48, 2**31 - 1])
def test_impossible_lengths(length: int) -> None:
    batch = make_batch()
    struct.pack_into(">i", batch, 8, length)
    assert refusal(batch) is ErrorCode.CORRUPT_MESSAGE
    assert batches.batch_size_at(batch, 0) == (length + 12 if length > 48 else None)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 2, "last_offset_delta": 0}, ErrorCode.INVALID_RECORD),
        ({"record_count": 1, "last_offset_delta": 1}, ErrorCode.INVALID_RECORD),
        ({"record_count": -5, "last_offset_delta": -6}, ErrorCode.INVALID_RECORD),
        ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 16}, ErrorCode.INVALID_RECORD),
        ({"producer_id": -2}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1, "producer_epoch": -1, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1, "producer_epoch": 0, "base_sequence": -1}, ErrorCode.INVALID_RECORD),
    ],
)
def test_headers_that_contradict_themselves(fields: dict[str, int], code: ErrorCode) -> None:
    assert refusal(make_batch(**fields)) is code


def test_a_batch_over_the_limit() -> None:
    batch = make_batch()
    assert refusal(batch, max_bytes=len(batch) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    batches.check(batch, batches.read_header(batch), max_bytes=len(batch))


def test_offset_and_leader_epoch_are_assigned_outside_the_checksum() -> None:
    buffer = make_batch() + make_batch()
    second = batches.split(buffer)[1]
    batches.assign(memoryview(buffer), second.position, 4711, 12)
    first, second = batches.split(buffer)
    assert (first.base_offset, first.leader_epoch) == (0, -1)
    assert (second.base_offset, second.leader_epoch) == (4711, 12)
    assert batches.has_valid_crc(buffer, second)


def test_the_brokers_time() -> None:
    batch = make_batch(attributes=Compression.GZIP)
    header = batches.set_log_append_time(memoryview(batch), batches.read_header(batch), 99_000)
    assert header == batches.read_header(batch)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.max_timestamp, header.base_timestamp, header.compression) == (
        99_000,
        1000,
        Compression.GZIP,
    )
    assert batches.has_valid_crc(batch, header)


@given(st.binary(max_size=200))
def test_any_bytes_give_batches_or_a_refusal(data: bytes) -> None:
    for function in (batches.split, batches.whole_batches):
        try:
            headers = function(data)
        except BrokerError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
        else:
            assert all(header.end <= len(data) for header in headers)
