"""Batches that no reader could decode are refused when they are produced, with the reason."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast_log.broker.log.decompression import INLINE_BYTES_MAX, INLINE_DECOMPRESSED_BYTES_MAX
from holdfast_log.broker.replication import examinations
from holdfast_log.protocol.batches import HEADER_SIZE, Compression, has_valid_crc, split, write_header
from holdfast_log.protocol.checksum import crc32c
from holdfast_log.protocol.compression import compress
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import PartitionProduceResponse
from tests.broker.world import World, fetch_request, only_fetched, only_produced, produce_request
from tests.models.batches import START_MS, batch, encoded

VALUES = [b"one " * 20, b"two " * 20, b"three " * 20]
CODECS = [codec for codec in Compression if codec]


def world_with(directory: Path, decompression_max_bytes: int = 128 << 20, **settings: object) -> World:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    world = World(directory, topic_config=config, decompression_max_bytes=decompression_max_bytes)
    world.assign("t")
    return world


def with_payload(
    payload: bytes, count: int, codec: Compression = Compression.NONE, timestamp: int = START_MS
) -> bytes:
    """A batch with a right checksum whose header claims `count` records."""
    found = bytearray(HEADER_SIZE) + payload
    write_header(
        found, attributes=codec, record_count=count, last_offset_delta=count - 1,
        base_timestamp=timestamp, max_timestamp=timestamp,
    )  # fmt: skip
    return bytes(found)


def bomb(size: int, codec: Compression) -> bytes:
    """One record with a value of `size` zeros, or, if that is less, of what Kafka can write."""
    return bytes(encoded([(START_MS, b"k", bytes(size))], codec))


RECORDS = batch(*VALUES)[HEADER_SIZE:]
POISON: dict[str, bytes] = {
    f"garbage under {codec.name.lower()}": with_payload(b"\xff\xfe" * 40, 3, codec) for codec in CODECS
} | {
    "garbage": with_payload(b"\xff" * 60, 3),
    "a varint without end": with_payload(b"\x80" * 60, 3),
    "a negative offset delta": with_payload(RECORDS[:4] + b"\x01" + RECORDS[5:], 3),
    "too many records": with_payload(RECORDS, 4),
    "too few records": with_payload(RECORDS, 2),
    "too few compressed records": with_payload(compress(Compression.ZSTD, RECORDS), 2, Compression.ZSTD),
    "81 bytes that claim 2^31 - 1 records": with_payload(
        compress(Compression.LZ4, b"")[:20].ljust(20, b"\0"), 2**31 - 1, Compression.LZ4
    ),
    "a whole frame that claims 2^31 - 1 records": with_payload(
        compress(Compression.ZSTD, RECORDS), 2**31 - 1, Compression.ZSTD
    ),
}


@pytest.mark.parametrize("name", POISON)
@pytest.mark.parametrize(
    "settings", [{}, {"cleanup.policy": "compact"}, {"compression.type": "gzip"}], ids=str
)
def test_a_batch_that_nobody_could_read_is_refused(
    tmp_path: Path, name: str, settings: dict[str, str]
) -> None:
    world = World(tmp_path, topic_config=settings)
    world.assign("t")
    client = world.client()

    refused = only_produced(client.call(produce_request("t", POISON[name])))

    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert refused.error_message is not None and "othing of" in refused.error_message
    assert world.replicas.partition("t", 0).log.log_end_offset == 0
    accepted = only_produced(client.call(produce_request("t", encoded([(START_MS, b"k", b"v")]))))
    assert (accepted.error_code, accepted.base_offset) == (0, 0)


def test_the_refusal_names_the_record_and_the_reason(tmp_path: Path) -> None:
    broken = bytearray(batch(b"first", b"other"))
    second = broken.rindex(b"\x0aother") - 1
    broken[second] = 0x7E  # The length of its key.
    struct.pack_into(">I", broken, 17, crc32c(memoryview(broken)[21:]))

    refused = only_produced(world_with(tmp_path).client().call(produce_request("t", bytes(broken))))

    ((index, why),) = [
        (error.batch_index, error.batch_index_error_message) for error in refused.record_errors
    ]
    assert (index, why) == (1, "its key ends beyond the record")
    assert refused.error_message == (
        "record 1 of the 2 that the batch claims is invalid: its key ends beyond the record. Nothing of the "
        "batch was written"
    )


def produced_at_times(
    directory: Path, times: list[int], claimed: int, **settings: object
) -> tuple[World, PartitionProduceResponse]:
    found = bytearray(encoded([(time, b"k", b"v") for time in times]))
    struct.pack_into(">q", found, 35, claimed)
    struct.pack_into(">I", found, 17, crc32c(memoryview(found)[21:]))
    world = world_with(directory, **settings)
    return world, only_produced(world.client().call(produce_request("t", bytes(found))))


@pytest.mark.parametrize("claimed", [START_MS - 7, START_MS, START_MS + 9])
def test_a_wrong_largest_timestamp_is_corrected_as_in_kafka(tmp_path: Path, claimed: int) -> None:
    world, produced = produced_at_times(tmp_path, [START_MS, START_MS + 5, START_MS + 2], claimed)

    assert produced.error_code == 0
    records = only_fetched(world.client().call(fetch_request(world.topic_id("t"), 0))).records
    assert records is not None
    (header,) = split(records)
    assert (header.max_timestamp, has_valid_crc(records, header)) == (START_MS + 5, True)


def test_a_record_beyond_the_limits_of_time_is_named(tmp_path: Path) -> None:
    _, produced = produced_at_times(
        tmp_path, [START_MS, START_MS + 5000, START_MS - 3000], START_MS, message_timestamp_after_max_ms=4000
    )

    assert produced.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in produced.record_errors] == [1]


def test_an_early_record_behind_others_is_named(tmp_path: Path) -> None:
    _, produced = produced_at_times(
        tmp_path, [START_MS, START_MS - 3000], START_MS, message_timestamp_before_max_ms=2000
    )

    assert produced.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in produced.record_errors] == [1]


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_whatever_the_topic_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Compression
) -> None:
    monkeypatch.setattr(examinations, "QUICK_BYTES_MAX", 400_000)
    world = world_with(tmp_path, 4_000_000, max_message_bytes=64 << 20)

    codes = [
        only_produced(world.client().call(produce_request("t", bomb(size, codec)))).error_code
        for size in (900_000, 1_100_000)
    ]

    assert codes == [0, ErrorCode.INVALID_RECORD]


LARGE: dict[str, Callable[[], bytes]] = {
    "compressed": lambda: bomb(INLINE_DECOMPRESSED_BYTES_MAX + 1, Compression.ZSTD),
    "uncompressed": lambda: bomb(INLINE_BYTES_MAX, Compression.NONE),
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_batch_is_examined_by_a_worker_and_keeps_its_place(tmp_path: Path, kind: str) -> None:
    world = world_with(tmp_path, max_message_bytes=2 << 20)
    client, other = world.client(), world.client()
    world.workers.is_held = True

    client.ask(produce_request("t", LARGE[kind]()))
    client.ask(produce_request("t", batch(b"small")))
    other.ask(produce_request("t", batch(b"small", compression=Compression.LZ4)))

    log = world.replicas.partition("t", 0).log
    assert log.log_end_offset == 0, "those behind it wait, too"
    world.workers.release()
    answers = [only_produced(each) for each in (*client.answers(), *other.answers())]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 1), (0, 2)]


def test_a_small_batch_is_examined_at_once(tmp_path: Path) -> None:
    world = world_with(tmp_path)
    world.workers.is_held = True

    for codec in Compression:
        produced = only_produced(world.client().call(produce_request("t", batch(*VALUES, compression=codec))))
        assert produced.error_code == 0
