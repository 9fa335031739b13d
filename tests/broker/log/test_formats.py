"""Files compared byte by byte with Kafka's formats."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.broker.log import checkpoints, names
from holdfast_log.broker.log.checkpoints import OffsetEntry
from holdfast_log.broker.log.flush_job import close_log
from holdfast_log.broker.log.names import OffsetFile
from holdfast_log.broker.log.producer_state import ProducerStates, decode_snapshot
from holdfast_log.broker.log.truncation import truncate_fully_and_start_at
from holdfast_log.protocol import batches
from holdfast_log.protocol.checksum import crc32c
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.models.batches import timed_batch
from tests.models.logs import DIRECTORY, NOW_MS, append, new_log, sim_disk


def test_indexes_have_kafkas_entries() -> None:
    disk = sim_disk()
    log = new_log(disk, index_interval_bytes=0)
    truncate_fully_and_start_at(log, 1000)
    append(log, 0x0102030405, 1)
    second_position = log.size_bytes
    append(log, 7, 8)
    third_position = log.size_bytes
    append(log, 0x0102030406, 1)
    close_log(log)
    # (offset of the last record - 1000, position of the batch); the batch at position 0 has no entry.
    index = f"00000003 {second_position:08x}00000005 {third_position:08x}"
    assert disk.read(f"{DIRECTORY}/{1000:020d}.index") == bytes.fromhex(index)
    # (largest timestamp so far, last offset of its batch - 1000), for each batch that raises the timestamp.
    times = "0000000102030405 000000010000000102030406 00000005"
    assert disk.read(f"{DIRECTORY}/{1000:020d}.timeindex") == bytes.fromhex(times)


def test_a_producer_snapshot_has_kafkas_bytes() -> None:
    states = ProducerStates()
    records = timed_batch(500, 600, producer_id=0x0A0B, epoch=3, sequence=17)
    states.update(batches.read_header(records), 1000, now_ms=NOW_MS)
    entry = bytes.fromhex(
        "0000000000000a0b"  # producer id
        "0003"  # epoch
        "00000012"  # last sequence
        "00000000000003e9"  # last offset
        "00000001"  # offset delta
        f"{NOW_MS:016x}"  # last written
        "ffffffff"  # coordinator epoch
        "ffffffffffffffff"  # no open transaction
    )
    data = states.encode()
    body = bytes.fromhex("00000001") + entry
    assert data[6 : 6 + len(body)] == body
    assert data[:6] == bytes.fromhex("0001") + crc32c(data[6:]).to_bytes(4, "big")
    # A snapshot without our trailing bytes, as Kafka writes it, is read as well.
    (read,) = decode_snapshot(bytes.fromhex("0001") + crc32c(body).to_bytes(4, "big") + body)
    assert (read.producer_id, read.epoch, read.last_sequence) == (0x0A0B, 3, 18)
    assert read.batches[-1].first_sequence == 17


def sealed(text: bytes) -> bytes:
    """A checkpoint with its checksum, which is written as blanks at the end because Kafka's reader drops
    them."""
    bits = f"{crc32c(text):032b}"
    return text[:-1] + bits.replace("0", " ").replace("1", "\t").encode() + b"\n"


def test_a_bit_that_changes_anywhere_in_a_sealed_file_is_noticed() -> None:
    epochs, topic_id = [(0, 0), (4, 90)], uuid.uuid4()
    tag = checkpoints.topic_tag(topic_id)
    offsets = {TopicPartition("flights", number): OffsetEntry(10 * number, tag) for number in range(3)}
    files: list[tuple[bytes, Callable[[bytes], object], object]] = [
        (checkpoints.encode_offsets(offsets), checkpoints.decode_offsets, offsets),
        (checkpoints.encode_offsets({}), checkpoints.decode_offsets, {}),
        (checkpoints.encode_epochs(epochs), checkpoints.decode_epochs, epochs),
        (checkpoints.encode_partition_metadata(topic_id), checkpoints.decode_partition_metadata, topic_id),
    ]
    for data, decode, value in files:
        assert decode(data) == value
        for number in range(8 * len(data)):
            changed = bytearray(data)
            changed[number // 8] ^= 1 << number % 8
            with contextlib.suppress(ValueError, KeyError):
                assert decode(bytes(changed)) == value


def test_checkpoints_have_kafkas_format() -> None:
    offsets = {
        TopicPartition("flights", 0): OffsetEntry(5),
        TopicPartition("a.b_c-d", 12): OffsetEntry(2**40),
    }
    text = b"0\n2\nflights 0 5\na.b_c-d 12 1099511627776\n"
    assert checkpoints.encode_offsets(offsets) == sealed(text)
    assert checkpoints.decode_offsets(text) == checkpoints.decode_offsets(sealed(text)) == offsets
    assert checkpoints.encode_offsets({}) == b"0\n0\n"
    assert checkpoints.encode_epochs([(0, 0), (4, 90)]) == sealed(b"0\n2\n0 0\n4 90\n")
    assert checkpoints.decode_epochs(b"0\n2\n0 0\n4 90\n") == [(0, 0), (4, 90)]


def test_a_line_of_a_checkpoint_of_offsets_has_a_tag_for_the_topics_id_that_kafkas_reader_drops() -> None:
    topic_id = uuid.UUID(int=7)
    entry = OffsetEntry(5, checkpoints.topic_tag(topic_id))
    offsets = {TopicPartition("flights", 0): entry, TopicPartition("trains", 1): OffsetEntry(6)}
    assert len(entry.tag) == 32 and not entry.tag.strip(" \t")

    data = checkpoints.encode_offsets(offsets)

    assert [line.split() for line in data.decode().splitlines()] == [
        ["0"], ["2"], ["flights", "0", "5"], ["trains", "1", "6"],
    ]  # fmt: skip
    assert checkpoints.decode_offsets(data) == offsets
    assert entry.may_be_of(topic_id) and entry.may_be_of(None)
    assert not entry.may_be_of(uuid.UUID(int=8))
    assert OffsetEntry(6).may_be_of(topic_id)


def test_a_checkpoint_that_is_encoded_again_formats_only_the_lines_that_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    formatted: list[TopicPartition] = []

    def counted(partition: TopicPartition, entry: OffsetEntry, encode: Any = checkpoints.offset_line) -> Any:
        formatted.append(partition)
        return encode(partition, entry)

    offsets = {TopicPartition("flights", number): OffsetEntry(0) for number in range(50)}
    added = TopicPartition("flights", 50)
    encoder = checkpoints.OffsetsEncoder()
    for step, (expected, change) in enumerate(
        [
            (list(offsets), {}),
            ([], {}),
            ([TopicPartition("flights", 7)], {TopicPartition("flights", 7): OffsetEntry(5)}),
            ([added], {added: OffsetEntry(0)}),
        ]
    ):
        offsets |= change
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "offset_line", counted)
            encoded = encoder.encode(offsets)
        assert formatted == expected, step
        assert encoded == checkpoints.encode_offsets(offsets)
        formatted.clear()
    del offsets[added]
    assert encoder.encode(offsets) == checkpoints.encode_offsets(offsets)


def test_a_checkpoint_truncated_at_any_byte_is_rejected() -> None:
    entry = OffsetEntry(10, checkpoints.topic_tag(uuid.uuid4()))
    text = checkpoints.encode_offsets({TopicPartition("flights", number): entry for number in range(3)})
    for size in range(len(text)):
        with pytest.raises(ValueError):
            checkpoints.decode_offsets(text[:size])


def test_identity_files_have_kafkas_format() -> None:
    meta = b"#\n#Sat Nov 21 15:00:00 UTC 2026\ncluster.id=L05pb3p9TXqfIKnLYgo0xA\nversion=0\nbroker.id=3\n"
    assert checkpoints.decode_meta_properties(meta) == checkpoints.MetaProperties(3, "L05pb3p9TXqfIKnLYgo0xA")
    topic_id = uuid.UUID(bytes=bytes(range(0xF0, 0x100)))
    text = checkpoints.encode_partition_metadata(topic_id)
    kafkas = b"version: 0\ntopic_id: 8PHy8_T19vf4-fr7_P3-_w"
    assert text == kafkas + f"\nchecksum: {crc32c(kafkas):08x}\n".encode()
    assert checkpoints.decode_partition_metadata(text) == topic_id
    assert checkpoints.decode_partition_metadata(kafkas) == topic_id


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("flights-0", TopicPartition("flights", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("__consumer_offsets-49", TopicPartition("__consumer_offsets", 49)),
        ("flights", None),
        ("flights-", None),
        ("-1", None),
        ("flights-1x", None),
        ("flights-0.0123456789abcdef0123456789abcdef-delete", None),
    ],
)
def test_directory_names_are_encoded_and_decoded(name: str, partition: TopicPartition | None) -> None:
    assert names.parse_directory(name) == partition
    if partition is not None:
        assert str(partition) == name


def test_names_of_deleted_directories_fit_the_file_systems_limit() -> None:
    name = names.deleted_directory(TopicPartition("t" * 249, 12345), uuid.UUID(int=5))
    assert len(name) <= 255 and names.is_deleted_directory(name)
    assert not names.is_deleted_directory("flights-0")


def test_file_names_hold_their_base_offset() -> None:
    assert names.offset_file(42, names.LOG) == "00000000000000000042.log"
    assert names.parse_offset_file("00000000000000000042.log") == OffsetFile(42, ".log", "")
    assert names.parse_offset_file("00000000000000000042.index.swap") == OffsetFile(42, ".index", ".swap")
    assert names.parse_offset_file("leader-epoch-checkpoint") is None
    assert names.parse_offset_file("42.log") is None
