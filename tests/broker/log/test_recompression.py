"""The topic setting `compression.type`: the codec in which a leader stores batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.preparation import prepare_append
from holdfast_log.broker.log.settings import COMPRESSION_TYPES, LogSettings
from holdfast_log.broker.replication import examinations
from holdfast_log.protocol.batches import BatchHeader, Compression, has_valid_crc, split, write_header
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.records import iterate
from tests.broker.world import Client, World, fetch_request, only_fetched, only_produced, produce_request
from tests.models.batches import START_MS, batch

VALUES = [b"one " * 20, b"two " * 20, b"three " * 20]
STORED = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def world_with(directory: Path, decompression_max_bytes: int = 128 << 20, **settings: object) -> World:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    world = World(directory, topic_config=config, decompression_max_bytes=decompression_max_bytes)
    world.assign("t")
    return world


def produce(client: Client, records: bytes) -> tuple[int, int]:
    """Append a batch; (error code, base offset)."""
    produced = only_produced(client.call(produce_request("t", records)))
    return produced.error_code, produced.base_offset


def stored(world: World, offset: int = 0) -> tuple[memoryview, BatchHeader]:
    fetched = only_fetched(world.client().call(fetch_request(world.topic_id("t"), offset)))
    assert isinstance(fetched.records, memoryview)
    return fetched.records, split(fetched.records)[0]


@pytest.mark.parametrize("sent", list(Compression))
@pytest.mark.parametrize("setting", COMPRESSION_TYPES)
def test_a_batch_is_stored_in_the_topics_codec(tmp_path: Path, setting: str, sent: Compression) -> None:
    world = world_with(tmp_path, compression_type=setting)
    assert produce(world.client(), batch(b"before")) == (0, 0)
    records = batch(*VALUES, compression=sent)
    assert produce(world.client(), records) == (0, 1)
    found, header = stored(world, 1)
    assert header.compression == STORED.get(setting, sent)
    assert has_valid_crc(found, header)
    assert [(record.offset, record.timestamp, record.value) for record in iterate(found)] == [
        (1 + index, START_MS, value) for index, value in enumerate(VALUES)
    ]
    if header.compression == sent:
        assert bytes(found)[17:] == records[17:], "only the offset and the leader epoch change"


def test_a_retry_of_a_recompressed_batch_is_recognised(tmp_path: Path) -> None:
    world = world_with(tmp_path, compression_type="zstd")
    first = batch(*VALUES, producer_id=7, producer_epoch=2, base_sequence=0)
    second = batch(b"next", producer_id=7, producer_epoch=2, base_sequence=len(VALUES))
    client = world.client()
    assert [produce(client, each) for each in (first, first, second, first)] == [
        (0, 0),
        (0, 0),
        (0, 3),
        (0, 0),
    ]
    _, header = stored(world)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)
    assert world.replicas.partition("t", 0).log.log_end_offset == 4


def test_the_brokers_time_is_written_into_the_recompressed_batch(tmp_path: Path) -> None:
    world = world_with(tmp_path, compression_type="gzip", message_timestamp_type="LogAppendTime")
    assert produce(world.client(), batch(*VALUES, timestamp=5)) == (0, 0)
    found, header = stored(world)
    assert (header.compression, has_valid_crc(found, header)) == (Compression.GZIP, True)
    assert {record.timestamp for record in iterate(found)} == {world.now_ms()}


def test_an_expected_offset_survives_recompression(tmp_path: Path) -> None:
    world = world_with(tmp_path, compression_type="lz4", check_expected_offsets=True)
    assert produce(world.client(), batch(b"a", base_offset=0)) == (0, 0)
    assert produce(world.client(), batch(b"b", base_offset=1)) == (0, 1)
    assert produce(world.client(), batch(b"c", base_offset=1))[0] == ErrorCode.OFFSET_MISMATCH


def test_a_batch_that_exceeds_the_size_limit_after_recompression_is_refused(tmp_path: Path) -> None:
    world = world_with(tmp_path, compression_type="uncompressed", max_message_bytes=1000)
    records = batch(bytes(5000), compression=Compression.GZIP)
    assert len(records) < 1000
    assert produce(world.client(), records) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert world.replicas.partition("t", 0).log.log_end_offset == 0


def test_a_batch_that_decompresses_to_too_many_bytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examinations, "QUICK_BYTES_MAX", 5_000)
    world = world_with(
        tmp_path, compression_type="gzip", max_message_bytes=1000, decompression_max_bytes=40_000
    )
    within, beyond = (batch(bytes(size), compression=Compression.ZSTD) for size in (9000, 11_000))
    assert [produce(world.client(), each)[0] for each in (within, beyond)] == [0, ErrorCode.INVALID_RECORD]


def test_a_batch_that_cannot_be_decompressed_is_refused(tmp_path: Path) -> None:
    damaged = bytearray(batch(*VALUES))
    header = split(damaged)[0]
    write_header(
        damaged,
        attributes=Compression.ZSTD,
        record_count=header.record_count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
    )
    world = world_with(tmp_path, compression_type="gzip")
    assert produce(world.client(), bytes(damaged))[0] == ErrorCode.INVALID_RECORD


def test_batches_written_by_the_broker_are_not_recompressed(tmp_path: Path) -> None:
    log = world_with(tmp_path, compression_type="gzip").replicas.partition("t", 0).log
    prepared = prepare_append(
        log, memoryview(bytearray(batch(*VALUES))), origin=AppendOrigin.COORDINATOR, now_ms=START_MS
    )
    assert prepared.headers[0].compression == Compression.NONE


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(ValueError, match=r"compression\.type"):
        LogSettings.of({"compression.type": "brotli"})
