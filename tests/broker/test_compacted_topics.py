"""A compacted topic takes only records with keys: any other batch is refused as Kafka refuses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.replication.appends import Append
from holdfast_log.clients.sending.conditions import refusal
from holdfast_log.protocol.compression import Compression
from holdfast_log.protocol.errors import ErrorCode, InvalidRecordError
from tests.broker.world import World, only_produced, produce_request
from tests.models.batches import START_MS, batch, encoded


def led(directory: Path, *policy: str) -> World:
    world = World(directory, topic_config={"cleanup.policy": policy})
    world.assign("t")
    return world


def rows(*keys: bytes | None, compression: Compression = Compression.NONE) -> bytes:
    return bytes(encoded(((START_MS, key, b"value") for key in keys), compression))


@pytest.mark.parametrize("policy", [("compact",), ("compact", "delete")])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.LZ4])
def test_a_batch_with_a_record_without_a_key_is_refused_whole(
    tmp_path: Path, policy: tuple[str, ...], compression: Compression
) -> None:
    world = led(tmp_path, *policy)
    records = rows(b"k", None, b"", None, compression=compression)
    row = only_produced(world.client().call(produce_request("t", records)))
    assert (row.error_code, row.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [(each.batch_index, each.batch_index_error_message) for each in row.record_errors] == [
        (index, "Compacted topic cannot accept message without key in topic partition t-0.")
        for index in (1, 3)
    ]
    assert row.error_message is not None
    assert row.error_message.startswith("2 of 4 records have no key, the first at index 1 of the batch.")
    assert world.replicas.partition("t", 0).log.log_end_offset == 0


@pytest.mark.parametrize("version", [3, 7])
def test_versions_without_record_errors_get_the_code(tmp_path: Path, version: int) -> None:
    row = only_produced(led(tmp_path, "compact").client().call(produce_request("t", rows(None)), version))
    assert row.error_code == ErrorCode.INVALID_RECORD


def test_a_batch_of_keys_is_appended_a_tombstone_too(tmp_path: Path) -> None:
    world = led(tmp_path, "compact")
    tombstone = bytes(encoded([(START_MS, b"k", None)]))
    for records in (rows(b"k", b""), tombstone):
        assert only_produced(world.client().call(produce_request("t", records))).error_code == 0


@pytest.mark.parametrize("policy", [("delete",), ()])
def test_other_topics_take_records_without_keys(tmp_path: Path, policy: tuple[str, ...]) -> None:
    row = only_produced(led(tmp_path, *policy).client().call(produce_request("t", batch(b"x"))))
    assert row.error_code == 0


def test_the_rule_follows_the_topics_settings(tmp_path: Path) -> None:
    world = led(tmp_path, "delete")
    world.logs.settings.set_topic("t", {"cleanup.policy": "compact"})
    row = only_produced(world.client().call(produce_request("t", batch(b"x"))))
    assert row.error_code == ErrorCode.INVALID_RECORD


def test_what_the_broker_itself_writes_is_not_checked(tmp_path: Path) -> None:
    world = led(tmp_path, "compact")
    append = Append("t", 0, memoryview(bytearray(batch(b"x"))), AppendOrigin.COORDINATOR)
    world.replicas.append([append], 1, None)
    assert append.error is None


def test_the_answer_names_a_bounded_number_of_records(tmp_path: Path) -> None:
    row = only_produced(led(tmp_path, "compact").client().call(produce_request("t", rows(*[None] * 3000))))
    assert len(row.record_errors) == 1000
    assert row.error_message is not None and row.error_message.startswith("3000 of 3000 records")


def test_our_producers_error_names_the_records_and_the_reason(tmp_path: Path) -> None:
    row = only_produced(led(tmp_path, "compact").client().call(produce_request("t", rows(b"k", None))))
    error = refusal(row)
    assert isinstance(error, InvalidRecordError) and not error.retriable
    assert [index for index, _ in error.records] == [1]
    assert "is compacted (cleanup.policy=compact)" in str(error)
