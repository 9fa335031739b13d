"""Records in batches: what goes in comes out, other libraries agree, and damage is found."""

from __future__ import annotations

import random
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from holdfast_log.protocol.batches import (
    HEADER_SIZE,
    Compression,
    TimestampType,
    attributes,
    check,
    has_valid_crc,
    read_header,
    set_log_append_time,
    split,
    write_header,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.record_codec import zigzag_varint
from holdfast_log.protocol.records import BatchBuilder, Record, decode_columns, iterate

NOW = 1_700_000_000_000
CODECS = list(Compression)

record_fields = st.tuples(
    st.integers(0, 2**42),
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3),
)
Fields = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def sample_records(count: int = 300, seed: int = 1) -> list[Fields]:
    """Records of mixed sizes: nulls, empties, headers, timestamps out of order."""
    rng = random.Random(seed)
    records: list[Fields] = []
    for index in range(count):
        key = rng.choice([None, b"", b"key-%d" % index])
        value = rng.choice([None, b"", rng.randbytes(rng.choice([1, 63, 64, 100, 9000])), b"flight " * 40])
        headers = [("trace", b"\x01" * 70), ("nothing", None)] if index % 7 == 0 else []
        records.append((NOW + rng.randrange(-5000, 20_000_000), key, value, headers))
    return records


def build(records: list[Fields], codec: Compression = Compression.NONE, **stamp: Any) -> bytearray:
    builder = BatchBuilder(codec)
    for record in records:
        builder.append(*record)
    return builder.build(**stamp)


def expected(records: list[Fields], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, timestamp, key, value, tuple(headers))
        for index, (timestamp, key, value, headers) in enumerate(records)
    ]


@given(st.lists(record_fields, min_size=1, max_size=20), st.sampled_from(CODECS), st.integers(0, 2**40))
def test_records_come_back(records: list[Fields], codec: Compression, base_offset: int) -> None:
    batch = build(records, codec, base_offset=base_offset)
    assert list(iterate(batch)) == expected(records, base_offset)


@pytest.mark.parametrize("codec", CODECS)
def test_a_long_batch_comes_back(codec: Compression) -> None:
    """Beyond 8191 records neither offsets nor sizes are among the varints encoded ahead."""
    records: list[Fields] = [(NOW + n, None, b"%d" % n, []) for n in range(20_000)]
    assert list(iterate(build(records, codec))) == expected(records)


def test_a_broker_would_take_the_batch() -> None:
    batch = build(sample_records(), Compression.ZSTD, producer_id=7, producer_epoch=2, base_sequence=40)
    (header,) = split(batch)
    check(batch, header, max_bytes=len(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert (header.record_count, header.last_offset_delta, header.compression) == (300, 299, Compression.ZSTD)


def test_max_timestamp_is_that_of_the_latest_record() -> None:
    header = read_header(build([(NOW, None, b"", []), (NOW + 9, None, b"", []), (NOW - 5, None, b"", [])]))
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 9)


def test_the_size_foretold_is_near_the_size_built() -> None:
    builder = BatchBuilder()
    for _ in range(1000):
        builder.append(NOW, b"key", bytes(100))
    assert len(builder.build()) <= builder.size <= 1.1 * len(builder.build())


def test_a_batch_among_others_is_read_where_its_header_says() -> None:
    first, second = build(sample_records(5)), build(sample_records(9, seed=2), base_offset=5)
    buffer = memoryview(first + second)
    _, header = split(buffer)
    assert list(iterate(buffer, header)) == expected(sample_records(9, seed=2), 5)


class TestColumns:
    def test_columns_are_the_records_turned(self) -> None:
        records = sample_records()
        columns = decode_columns(build(records, Compression.LZ4, base_offset=1000))
        assert columns.offsets == range(1000, 1300)
        assert list(columns.timestamps) == [record[0] for record in records]
        assert columns.keys == [record[1] for record in records]
        assert columns.values == [record[2] for record in records]
        assert columns.headers == [tuple(record[3]) for record in records]

    def test_no_headers_at_all_is_none(self) -> None:
        assert decode_columns(build([(NOW, None, b"v", [])])).headers is None

    def test_the_broker_s_time_is_every_record_s_time(self) -> None:
        batch = build(sample_records(3))
        header = set_log_append_time(batch, read_header(batch), NOW + 77)
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert list(decode_columns(batch).timestamps) == [NOW + 77] * 3

    def test_offsets_have_gaps_after_compaction(self) -> None:
        kept = [(0, b"a"), (70, b"b"), (9000, b"c")]
        batch = compacted(kept, last_offset_delta=9500)
        assert decode_columns(batch).offsets == [100, 170, 9100]
        assert decode_columns(batch).values == [b"a", b"b", b"c"]

    def test_a_batch_may_have_lost_all_its_records(self) -> None:
        assert len(decode_columns(compacted([], last_offset_delta=4))) == 0


def compacted(kept: list[tuple[int, bytes]], last_offset_delta: int) -> bytearray:
    """A batch as a log cleaner leaves it: base offset 100, some records gone."""
    payload = b""
    for delta, value in kept:
        length = zigzag_varint(len(value))
        body = b"\0" + zigzag_varint(0) + zigzag_varint(delta) + b"\x01" + length + value + b"\0"
        payload += zigzag_varint(len(body)) + body
    return with_header(payload, len(kept), last_offset_delta=last_offset_delta, base_offset=100)


def with_header(payload: bytes, record_count: int = 1, **fields: int) -> bytearray:
    """Any bytes behind a valid header."""
    batch = bytearray(HEADER_SIZE) + payload
    header = {"attributes": 0, "last_offset_delta": record_count - 1} | fields
    write_header(batch, record_count=record_count, base_timestamp=NOW, max_timestamp=NOW, **header)
    return batch


class TestOtherLibraries:
    """kafka-python and aiokafka write and read the same batches, each by code of its own."""

    @staticmethod
    def theirs(writer: Any, records: list[Fields], codec: Compression = Compression.NONE) -> bytes:
        """A batch of producer 7 in epoch 3, built by another library."""
        builder = writer(
            magic=2,
            compression_type=int(codec),
            is_transactional=0,
            producer_id=7,
            producer_epoch=3,
            base_sequence=5,
            batch_size=2**24,
        )
        for offset, (timestamp, key, value, headers) in enumerate(records):
            assert builder.append(offset, timestamp, key, value, headers)
        return bytes(builder.build())

    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("reader", [KafkaPythonBatch, AiokafkaBatch])
    def test_they_read_ours(self, codec: Compression, reader: Any) -> None:
        records = sample_records()
        batch = reader(bytes(build(records, codec, producer_id=7, producer_epoch=0, base_sequence=1)))
        assert batch.validate_crc()
        read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
        assert read == expected(records)

    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("writer", [KafkaPythonBuilder, AiokafkaBuilder])
    def test_we_read_theirs(self, codec: Compression, writer: Any) -> None:
        records = sample_records()
        batch = self.theirs(writer, records, codec)
        assert has_valid_crc(batch, read_header(batch))
        assert list(iterate(batch)) == expected(records)

    def test_uncompressed_they_agree_in_every_byte(self) -> None:
        records = sample_records()
        ours = build(records, producer_id=7, producer_epoch=3, base_sequence=5)
        theirs = bytearray(self.theirs(KafkaPythonBuilder, records))
        ours[12:16] = theirs[12:16]  # The leader epoch, which is the broker's to fill in.
        assert ours == theirs


class TestDamage:
    """A valid checksum does not make valid records: another client may have written nonsense."""

    @pytest.mark.parametrize(
        ("payload", "why"),
        [
            ("", "end early"),
            ("0c 00 00 00 01 01", "end early"),  # no header count
            ("0c 00 00 02 01 01 00", "offset delta 1 where 0 is due"),
            ("0c 00 00 00 03 01 00", "key is below -1"),
            ("0c 00 00 00 01 03 00", "value is below -1"),
            ("0c 00 00 00 01 c8 01 00", "end early"),  # a value of 100 bytes
            ("0e 00 00 00 01 01 00 00", "from where its length says"),
            ("0c 00 00 00 01 01 00 ff", "after the last record"),
            ("0c 00 00 00 01 01 01", "headers is negative"),
            ("10 00 00 00 01 01 02 01 00", "no key"),
            ("12 00 00 00 01 01 02 02 ff 00", "not UTF-8"),
            ("12 00 00 00 01 01 02 02 61 03", "below -1"),
            ("12 00 00 00 01 01 02 c8 01 61", "end early"),
            ("0c 00 ff ff ff ff ff ff ff ff ff ff 01", "more than 64 bits"),
        ],
    )
    def test_malformed_records_are_named(self, payload: str, why: str) -> None:
        with pytest.raises(BrokerError, match=why) as caught:
            decode_columns(with_header(bytes.fromhex(payload)))
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE

    def test_a_claim_of_two_billion_records_costs_nothing(self) -> None:
        with pytest.raises(BrokerError, match="end early"):
            decode_columns(with_header(b"\x0c\0\0\0\x01\x01\0", record_count=2**31 - 1))

    def test_offsets_of_a_compacted_batch_must_rise(self) -> None:
        with pytest.raises(BrokerError, match="offset delta 3 after 3"):
            decode_columns(compacted([(3, b""), (3, b"")], last_offset_delta=9))

    def test_a_batch_that_is_cut_off(self) -> None:
        batch = build(sample_records(4))
        with pytest.raises(BrokerError, match="cut off"):
            decode_columns(batch[:-1])

    def test_a_codec_without_a_name(self) -> None:
        batch = with_header(b"", attributes=attributes(6))
        with pytest.raises(BrokerError) as caught:
            decode_columns(batch)
        assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    @pytest.mark.parametrize("codec", CODECS)
    def test_decompression_has_a_limit(self, codec: Compression) -> None:
        batch = build([(NOW, None, bytes(1_000_000), [])], codec)
        with pytest.raises(BrokerError) as caught:
            decode_columns(batch, limit=999_999)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE

    @given(st.binary(max_size=200), st.integers(0, 30))
    def test_any_bytes_are_read_or_refused(self, payload: bytes, record_count: int) -> None:
        try:
            assert len(decode_columns(with_header(payload, record_count))) == record_count
        except BrokerError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE

    @given(st.integers(0), st.integers(1, 255))
    def test_a_changed_byte_is_read_or_refused(self, where: int, change: int) -> None:
        payload = bytearray(build(sample_records(10))[HEADER_SIZE:])
        payload[where % len(payload)] ^= change
        try:
            assert len(decode_columns(with_header(bytes(payload), 10))) == 10
        except BrokerError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE
