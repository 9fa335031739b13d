"""A log loaded from disk after a clean stop, a kill or a power loss."""

from __future__ import annotations

import errno
import random
import struct
import uuid
from typing import Any

import pytest

from holdfast_log.broker.log import names
from holdfast_log.broker.log.damage import Damage, encode_damage
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.flush_job import close_log, flush_at_once
from holdfast_log.broker.log.interrupted_write import PAGE_BYTES
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.log_events import LogEvents
from holdfast_log.broker.log.recovery import create_log, load_log
from holdfast_log.broker.log.time_search import offset_for_timestamp
from holdfast_log.broker.log.truncation import advance_log_start, restore_log_producers, truncate_to
from holdfast_log.protocol.checksum import crc32c
from holdfast_log.protocol.errors import BrokerError
from tests.models.batches import batch
from tests.models.disk import SimDisk
from tests.models.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    append_as_leader,
    headers_of,
    look_up_at_once,
    new_log,
    read_all,
    reopen,
    request,
    sim_disk,
)

ACTIVE = f"{DIRECTORY}/{8:020d}"
LEADER_EPOCH = 12
"""Where a batch has its leader epoch, in bytes from its start."""


def filled(disk: Disk, **config: Any) -> Log:
    """Eleven batches of two records in three segments, of one producer, through four leader epochs."""
    log = new_log(disk, **({"segment_bytes": 500, "index_interval_bytes": 100} | config))
    for number in range(11):
        append(
            log, 1000 + number, 1000 + number,
            leader_epoch=number // 3, producer_id=7, epoch=0, sequence=2 * number,
        )  # fmt: skip
    assert [segment.base_offset for segment in log.segments] == [0, 8, 16]
    return log


@pytest.fixture
def disk() -> SimDisk:
    return sim_disk()


@pytest.fixture
def log(disk: SimDisk) -> Log:
    return filled(disk)


@pytest.fixture
def closed(log: Log) -> Log:
    """A filled log after a clean stop."""
    close_log(log)
    return log


def state_of(log: Log) -> dict[str, object]:
    """Everything observable of a log, including its indexes."""
    return {
        "data": read_all(log),
        "bounds": (log.log_start_offset, log.log_end_offset),
        "epochs": log.epochs.entries,
        "producers": log.producers.encode(),
        "timestamps": [
            look_up_at_once(offset_for_timestamp(log, timestamp)) for timestamp in range(999, 1013)
        ],
        "segments": [(segment.base_offset, segment.size, segment.next_offset) for segment in log.segments],
        "indexes": [
            (segment.indexes.offsets.pairs(), segment.indexes.times.pairs()) for segment in log.segments[:-1]
        ],
        "active_index": log.segments[-1].indexes.offsets.pairs(),
    }


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_closed_log_is_loaded_unchanged(is_clean: bool, disk: SimDisk, log: Log) -> None:
    before = state_of(log)
    close_log(log)
    found = reopen(disk, log, is_clean=is_clean)
    assert state_of(found) == before
    assert append(found, producer_id=7, epoch=0, sequence=22) == 22


@pytest.mark.parametrize("is_clean", [True, False])
def test_indexes_are_the_same_however_often_the_log_was_stopped(is_clean: bool) -> None:
    """The closing entry of a time index is removed when the segment gets more records."""
    disk = sim_disk()
    config = {"segment_bytes": 700, "index_interval_bytes": 150}
    log, undisturbed = new_log(disk, **config), new_log(disk, "/data/undisturbed-0", **config)
    for number in range(20):
        for each in (log, undisturbed):
            append(each, 1000 + number)
        if is_clean:
            close_log(log)
        log = reopen(disk, log, is_clean=is_clean)
    assert len(log.segments) > 2
    for segment, other in zip(log.segments, undisturbed.segments, strict=True):
        assert segment.indexes.offsets.pairs() == other.indexes.offsets.pairs()
        assert segment.indexes.times.pairs() == other.indexes.times.pairs()


def test_a_killed_process_loses_no_written_record(disk: SimDisk, log: Log) -> None:
    before = state_of(log)
    disk.kill_process()
    found = reopen(disk, log, is_clean=False)
    assert state_of(found) == before
    # The last five batches are still known: a retry of the fifth last is a duplicate.
    assert append(found, 1006, 1006, producer_id=7, epoch=0, sequence=12) == 12
    assert found.log_end_offset == 22


def test_a_log_cut_at_any_byte_ends_with_its_last_whole_batch(disk: SimDisk, closed: Log) -> None:
    whole = headers_of(closed)
    path = f"{DIRECTORY}/{16:020d}.log"
    data = disk.read(path)
    batch_size = len(data) // 3
    for size in range(batch_size, len(data)):
        disk.write_atomically(path, data[:size])
        found = reopen(disk, closed, is_clean=False, recovery_point=16)
        kept = 8 + size // batch_size
        assert headers_of(found) == whole[:kept]
        assert found.log_end_offset == 2 * kept
        assert disk.size(path) == size // batch_size * batch_size
        # An interrupted write ends where a page of the system ends.
        assert found.is_cut_short == (size % batch_size > 0)
        assert found.epochs.entries == [(0, 0), (1, 6), (2, 12), (3, 18)][: 3 + (kept > 9)]
        entry = found.producers.get(7)
        assert entry is not None and entry.last_sequence == 2 * kept - 1
        assert append(found, 2000, producer_id=7, epoch=0, sequence=2 * kept) == 2 * kept
        found.release()


def test_a_flipped_bit_anywhere_beyond_the_recovery_point_is_never_served(disk: SimDisk, closed: Log) -> None:
    whole = headers_of(closed)
    path = f"{DIRECTORY}/{16:020d}.log"
    data = disk.read(path)
    batch_size = len(data) // 3
    for byte in range(len(data)):
        inner = byte % batch_size
        if 12 <= inner < 16:
            continue  # The leader epoch is outside the checksum.
        damaged = bytearray(data)
        damaged[byte] ^= 0x40
        disk.write_atomically(path, damaged)
        found = reopen(disk, closed, is_clean=False, recovery_point=16)
        if 0 <= inner < 8:
            # So is the base offset. A higher one of the last batch looks like a gap left by compaction.
            if found.log_end_offset > 22:
                with pytest.raises(BrokerError):
                    headers_of(found)
            else:
                assert headers_of(found) == whole[: 8 + byte // batch_size]
        else:
            assert headers_of(found) == whole[: 8 + byte // batch_size]
        if inner >= 8 or byte // batch_size == 2:
            assert found.is_cut_short
        found.release()


def large(disk: Disk, size: int, *, ends_page: bool = False) -> Log:
    """Three batches of about `size` bytes each. With `ends_page` the file ends where a page ends."""
    log = new_log(disk)
    for _ in range(3):
        padding = -(log.size_bytes + size) % PAGE_BYTES if ends_page and log.log_end_offset == 2 else 0
        records = memoryview(bytearray(batch(bytes(size + padding))))
        append_as_leader(log, records, 0, now_ms=NOW_MS)
    while ends_page and log.size_bytes % PAGE_BYTES:
        truncate_to(log, 2)
        padding -= 1
        append_as_leader(log, memoryview(bytearray(batch(bytes(size + padding)))), 0, now_ms=NOW_MS)
    return log


@pytest.mark.parametrize("pages", range(1, 5))
def test_a_write_that_a_kill_has_interrupted_was_never_acknowledged(pages: int, disk: SimDisk) -> None:
    """A killed process loses nothing that it has written before. The system writes page by page."""
    log = large(disk, 5000)
    disk.kill_process()
    path = log.segments.active.path
    batch_size = disk.size(path) // 3
    disk.cut(path, pages * PAGE_BYTES)
    found = reopen(disk, log, is_clean=False)
    assert found.log_end_offset == pages * PAGE_BYTES // batch_size
    assert not found.is_cut_short


def test_a_write_behind_which_an_index_names_a_batch_was_not_interrupted(disk: SimDisk) -> None:
    log = large(disk, 5000)
    log.write_indexes()
    disk.kill_process()
    disk.cut(log.segments.active.path, PAGE_BYTES)
    assert reopen(disk, log, is_clean=False).is_cut_short


@pytest.mark.parametrize(("number", "is_cut_short"), [(0, True), (1, False)])
def test_only_the_log_that_was_written_last_can_have_an_interrupted_write(
    number: int, is_cut_short: bool
) -> None:
    """One thread writes all logs: who writes another one has finished the write before."""
    now_ms = NOW_MS
    disk = SimDisk(random.Random(1), lambda: now_ms)
    disk.make_directory("/data")
    LogDirectory(disk, "/data", "boot").mark_run(7)
    logs = []
    for name in ("flights-0", "flights-1"):
        log = create_log(disk, request(f"/data/{name}"))
        append_as_leader(log, memoryview(bytearray(batch(bytes(5000)))), 0, now_ms=now_ms)
        logs.append(log)
        now_ms += 10
    disk.kill_process()
    disk.cut(logs[number].segments.active.path, PAGE_BYTES)
    directory = LogDirectory(disk, "/data", "boot")
    directory.open()
    assert directory.last_write_ms == NOW_MS + 10
    found = reopen(disk, logs[number], is_clean=False, last_write_ms=directory.last_write_ms)
    assert (found.log_end_offset, found.is_cut_short) == (0, is_cut_short)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("bit", range(4, 31))
def test_a_batch_whose_length_has_changed_is_no_interrupted_write(
    bit: int, number: int, disk: SimDisk
) -> None:
    """With the wrong length the batch seems to reach beyond the end of the file, or to end before its own."""
    log = large(disk, 1500, ends_page=True)
    assert disk.size(log.segments.active.path) % PAGE_BYTES == 0
    header = headers_of(log)[number]
    disk.kill_process()
    disk.rot(log.segments.active.path, header.position + 11 - bit // 8, bit % 8)
    found = reopen(disk, log, is_clean=False)
    assert (found.log_end_offset, found.is_cut_short) == (number, True)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("number", range(3))
def test_a_batch_whose_offset_is_too_high_does_not_make_the_log_longer(
    number: int, is_clean: bool, disk: SimDisk
) -> None:
    """No checksum covers the offset. Only of the last batch nothing shows whether it is right: compaction
    leaves gaps. A log that may be wrong counts as one that may lack records."""
    log = large(disk, 100)
    header = headers_of(log)[number]
    close_log(log)
    disk.rot(log.segments.active.path, header.position + 5, 2)
    found = reopen(disk, log, is_clean=is_clean, recovery_point=3 if is_clean else 0)
    if number == 2 or not is_clean:
        assert found.is_cut_short
        assert found.log_end_offset == number or number == 2


def test_damage_in_an_older_segment_ends_the_log_there(disk: SimDisk, closed: Log) -> None:
    whole = headers_of(closed)
    data = bytearray(disk.read(ACTIVE + ".log"))
    data[-1] ^= 1
    disk.write_atomically(ACTIVE + ".log", data)
    found = reopen(disk, closed, is_clean=False, recovery_point=9)
    assert headers_of(found) == whole[:7]
    assert found.is_cut_short
    assert [segment.base_offset for segment in found.segments] == [0, 8]
    assert not disk.exists(f"{DIRECTORY}/{16:020d}.log")
    assert append(found) == 14


def batches_kept(disk: SimDisk, path: str, batches: int) -> None:
    """Cut a file off after some of its four batches."""
    disk.cut(path, disk.size(path) // 4 * batches)


@pytest.mark.parametrize("kept", range(4))
def test_a_log_ends_where_an_unflushed_segment_has_lost_whole_batches(
    kept: int, disk: SimDisk, closed: Log
) -> None:
    """A power failure may take the end of one file, and leave the next file."""
    whole = headers_of(closed)
    batches_kept(disk, ACTIVE + ".log", kept)
    found = reopen(disk, closed, is_clean=False, recovery_point=9)
    assert headers_of(found) == whole[: 4 + kept]
    assert found.is_cut_short
    assert not disk.exists(f"{DIRECTORY}/{16:020d}.log")
    assert append(found, leader_epoch=3) == 8 + 2 * kept
    close_log(found)
    assert len(headers_of(reopen(disk, found, is_clean=True))) == 5 + kept


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_flushed_segment_that_has_lost_all_batches_is_damaged(is_clean: bool, disk: SimDisk) -> None:
    """Its indexes have no entries, so they fit an empty file."""
    log = filled(disk, index_interval_bytes=4096)
    close_log(log)
    batches_kept(disk, ACTIVE + ".log", 0)
    # A clean stop writes a checkpoint of the log's end.
    found = reopen(disk, log, is_clean=is_clean, recovery_point=22 if is_clean else 16)
    assert [(damage.position, damage.offset) for damage in found.damages] == [(0, 8)]
    assert found.log_end_offset == 22 and not found.is_cut_short
    with pytest.raises(BrokerError):
        found.read(8, 1000, upper_offset=22)


def test_recovery_keeps_the_gaps_that_compaction_leaves_before_the_next_segment(
    disk: SimDisk, closed: Log
) -> None:
    """The topic's own settings are not known yet when a broker loads its logs. Compaction writes new indexes,
    unless a crash interrupts it."""
    batch_size = disk.size(ACTIVE + ".log") // 4
    disk.remove(ACTIVE + names.INDEX)
    disk.remove(ACTIVE + names.TIME_INDEX)
    data = disk.read(ACTIVE + ".log")
    disk.write_atomically(ACTIVE + ".log", data[:batch_size] + data[2 * batch_size : 3 * batch_size])
    found = reopen(disk, closed, is_clean=False, recovery_point=0)
    assert found.log_end_offset == 22 and not found.is_cut_short
    for segment in found.segments:
        segment.is_dense = False
    assert [header.base_offset for header in headers_of(found)] == [0, 2, 4, 6, 8, 12, 16, 18, 20]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("known", ["recovery_point", "high_watermark"])
@pytest.mark.parametrize(("offset", "is_cut_short"), [(22, True), (20, False)])
def test_a_log_that_ends_before_its_checkpointed_offsets_is_cut_short(
    offset: int, is_cut_short: bool, known: str, is_clean: bool, disk: SimDisk, closed: Log
) -> None:
    """The file lost its last whole batch: what is left of it is sound."""
    path = f"{DIRECTORY}/{16:020d}.log"
    disk.cut(path, disk.size(path) // 3 * 2)
    called: list[str] = []
    values = {"is_clean": is_clean, "cut_short": lambda: called.append("cut short"), known: offset}
    found = load_log(disk, request(config=closed.settings, **values))
    assert found.log_end_offset == 20
    assert found.is_cut_short is is_cut_short
    assert bool(called) is is_cut_short


def test_the_producers_of_a_log_that_was_truncated_over_damage_are_restored_after_its_repair() -> None:
    """Otherwise a leader would refuse a producer's next batch, or accept one that it has already."""
    disk = sim_disk()
    log = filled(disk)
    flush_at_once(log)
    sound = disk.read(f"{ACTIVE}.log")
    disk.remove(f"{DIRECTORY}/{16:020d}{names.SNAPSHOT}")
    suspected: list[int] = []
    log.events = LogEvents(suspected=lambda log, base_offset, why: suspected.append(base_offset))
    disk.rot(f"{ACTIVE}.log", 8, 0)
    truncate_to(log, 20)
    producer = log.producers.get(7)
    assert producer is not None
    assert [batch.last_sequence for batch in producer.batches] == [3, 5, 7, 17, 19]
    assert (log.producers.is_complete, suspected) == (False, [8])
    log.roll(NOW_MS)
    assert not disk.exists(f"{DIRECTORY}/{20:020d}{names.SNAPSHOT}")

    disk.write_atomically(f"{ACTIVE}.log", sound)
    log.segments[1].replaced(len(sound))
    restore_log_producers(log, NOW_MS)

    producer = log.producers.get(7)
    assert producer is not None
    assert [batch.last_sequence for batch in producer.batches] == [11, 13, 15, 17, 19]
    assert log.producers.is_complete


@pytest.mark.parametrize("base_offset", [8, 16])
def test_recovery_believes_no_mark_of_damage_in_a_segment_that_it_could_read(
    base_offset: int, disk: SimDisk, log: Log
) -> None:
    """The process ended while it marked a segment that had just been truncated and written again. A log that
    could not read its batches would not know their leader epochs."""
    mark = f"{DIRECTORY}/{base_offset:020d}{names.DAMAGED}"
    disk.write_atomically(mark, encode_damage(Damage(base_offset, 0, base_offset, "a bit has changed")))
    disk.remove(f"{DIRECTORY}/{names.LEADER_EPOCHS}")
    found = reopen(disk, log, is_clean=False, recovery_point=0)
    assert (found.damages, disk.exists(mark)) == ([], False)
    assert found.epochs.entries == [(0, 0), (1, 6), (2, 12), (3, 18)]
    assert len(headers_of(found)) == 11


def test_recovery_keeps_the_mark_of_a_compacted_segment_that_has_lost_its_last_batches() -> None:
    """The indexes named them until they were rebuilt, so that only the mark tells of the loss."""
    disk = sim_disk()
    log = filled(disk, cleanup_policy=("compact",))
    size = log.segments[1].size // 4
    disk.cut(f"{ACTIVE}.log", size)
    damage = Damage(8, size, 10, "its end is missing")
    disk.write_atomically(ACTIVE + names.DAMAGED, encode_damage(damage))
    for kind in (names.INDEX, names.TIME_INDEX):
        disk.remove(ACTIVE + kind)
    found = reopen(disk, log, is_clean=False, recovery_point=0)
    assert (found.damages, found.log_end_offset) == ([damage], 22)


@pytest.mark.parametrize("size", [0, 1])
def test_a_compacted_log_ends_where_a_segment_has_lost_batches_that_its_indexes_name(size: int) -> None:
    """Neither the offsets nor the checkpoints show the loss: a later reader would pass over the records."""
    disk = sim_disk()
    log = filled(disk, cleanup_policy=("compact",))
    batch_size = log.segments[1].size // 4
    disk.cut(f"{ACTIVE}.log", size * batch_size)
    found = reopen(disk, log, is_clean=False, recovery_point=8)
    assert (found.log_end_offset, found.is_cut_short) == (8 + 2 * size, True)


@pytest.mark.parametrize("kind", [names.INDEX, names.TIME_INDEX])
@pytest.mark.parametrize("base_offset", [0, 8, 16])
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: None,
        lambda data: b"",
        lambda data: data[:-3],
        lambda data: data + b"\xff" * 12,
        lambda data: data + struct.pack(">i", 1 << 30) * 6,
        lambda data: data + bytes(1200),
    ],
    ids=["missing", "empty", "torn", "negative", "beyond the log", "padded as Kafka does"],
)
def test_a_damaged_index_is_rebuilt(
    kind: str, base_offset: int, is_clean: bool, damage: object, disk: SimDisk, log: Log
) -> None:
    before = state_of(log)
    close_log(log)
    path = f"{DIRECTORY}/{base_offset:020d}{kind}"
    content = damage(disk.read(path))  # type: ignore[operator]
    disk.remove(path)
    if content is not None:
        disk.write_atomically(path, content)
    found = reopen(disk, log, is_clean=is_clean, recovery_point=0)
    after = state_of(found)
    if content is not None and is_clean:
        # After a clean stop the index is trusted: one that is too short only makes walks longer.
        before.pop("indexes"), before.pop("active_index")
        after.pop("indexes"), after.pop("active_index")
    assert after == before


def test_every_file_except_the_log_files_may_be_missing(disk: SimDisk, log: Log) -> None:
    before = state_of(log)
    close_log(log)
    for name in disk.list(DIRECTORY):
        if not name.endswith(names.LOG):
            disk.remove(f"{DIRECTORY}/{name}")
    for is_clean in (False, True):
        found = reopen(disk, log, is_clean=is_clean, recovery_point=22)
        assert state_of(found) == before
        found.release()


@pytest.mark.parametrize(
    "content", [b"", b"0\n3\n0 0\n1 6\n", b"0\n1\n0 0", b"7\n0\n", b"\xff\0", b"0\nx\n", b"0\n2\n5 0\n1 6\n"]
)
def test_a_half_written_epoch_checkpoint_is_rebuilt_from_the_batches(
    content: bytes, disk: SimDisk, closed: Log
) -> None:
    disk.write_atomically(f"{DIRECTORY}/{names.LEADER_EPOCHS}", content)
    found = reopen(disk, closed, is_clean=False, recovery_point=20)
    assert found.epochs.entries == [(0, 0), (1, 6), (2, 12), (3, 18)]


@pytest.mark.parametrize("number", [0, 1, 2, 3, 5, 9])
def test_recovery_believes_no_leader_epoch_that_a_single_batch_has_before_earlier_ones(number: int) -> None:
    """The leader epoch is the one field of a batch, beside its offset, that no checksum covers."""
    disk = sim_disk()
    log = filled(disk)
    flush_at_once(log)
    header = headers_of(log)[number]
    segment = next(log.segments.from_offset(header.base_offset))
    position = next(each.position for each in segment.headers(0) if each.base_offset == header.base_offset)
    disk.rot(segment.path, position + 12, 6)
    found = reopen(disk, log, is_clean=False, recovery_point=0)
    # Where the first batch of an epoch is the damaged one, the second one seems to begin it.
    lost = {3: 1, 9: 3}.get(number)
    begins = [(epoch, 6 * epoch + 2 * (epoch == lost)) for epoch in range(4)]
    assert found.epochs.entries == ([(0, 2), *begins[1:]] if number == 0 else begins)


@pytest.mark.parametrize(
    ("number", "byte", "bit"),
    [
        pytest.param(1, 12, 7, id="a negative epoch"),
        pytest.param(4, 15, 0, id="the epoch before"),
        pytest.param(7, 15, 1, id="an epoch that was long over"),
    ],
)
def test_recovery_keeps_an_epoch_whose_second_batch_seems_to_be_of_an_earlier_one(
    number: int, byte: int, bit: int, disk: SimDisk, log: Log
) -> None:
    header = headers_of(log)[number]
    segment = next(log.segments.from_offset(header.base_offset))
    position = next(each.position for each in segment.headers(0) if each.base_offset == header.base_offset)
    flush_at_once(log)
    disk.rot(segment.path, position + byte, bit)
    found = reopen(disk, log, is_clean=False, recovery_point=0)
    assert found.epochs.entries == [(0, 0), (1, 6), (2, 12), (3, 18)]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_truncated_leader_epoch_is_not_found_again_among_older_records(
    disk: SimDisk, is_clean: bool
) -> None:
    """A follower truncates the records of epoch 5, which its leader never had. Then it copies more records of
    epoch 4, and makes them durable. No epoch begins with these records."""
    log = new_log(disk)
    append(log, 1, leader_epoch=4)
    append(log, 2, leader_epoch=5)
    flush_at_once(log)
    truncate_to(log, 1)
    append(log, 3, leader_epoch=4)
    append(log, 4, leader_epoch=4)
    flush_at_once(log)
    again = reopen(disk, log, is_clean=is_clean, recovery_point=log.recovery_point)
    assert again.epochs.entries == [(4, 0)]


def test_leader_epochs_beyond_the_log_end_are_dropped(disk: SimDisk, closed: Log) -> None:
    disk.write_atomically(f"{DIRECTORY}/{names.LEADER_EPOCHS}", b"0\n3\n0 0\n3 18\n9 22\n")
    assert reopen(disk, closed, is_clean=True).epochs.entries == [(0, 0), (3, 18)]


@pytest.mark.parametrize("damage", [b"", b"\0\1", bytes(100), b"\0\1" + bytes(4) + b"\x7f\xff\xff\xff"])
def test_recovery_skips_a_damaged_snapshot_and_uses_an_older_one(
    damage: bytes, disk: SimDisk, log: Log
) -> None:
    before = log.producers.encode()
    close_log(log)
    disk.write_atomically(f"{DIRECTORY}/{22:020d}.snapshot", damage)
    found = reopen(disk, log, is_clean=True)
    assert found.producers.encode() == before
    assert not disk.exists(f"{DIRECTORY}/{22:020d}.snapshot")


def test_files_of_unfinished_deletes_and_writes_are_removed(disk: SimDisk, log: Log) -> None:
    before = state_of(log)
    close_log(log)
    for name in (
        f"{3:020d}.log.deleted",
        f"{0:020d}.log.cleaned",
        f"{0:020d}.index.cleaned",
        "leader-epoch-checkpoint.tmp",
        f"{0:020d}.index.swap",
        f"{5:020d}.timeindex",
        f"{99:020d}.snapshot",
    ):
        disk.write_atomically(f"{DIRECTORY}/{name}", b"rubbish")
    names_before = {f"{base:020d}{kind}" for base in (0, 8, 16) for kind in (".log", ".index", ".timeindex")}
    found = reopen(disk, log, is_clean=True)
    assert state_of(found) == before
    left = {name for name in disk.list(DIRECTORY) if not name.endswith(names.SNAPSHOT)}
    assert left == names_before | {names.LEADER_EPOCHS, names.BEGUN_EPOCHS}


def test_a_finished_replacement_of_segments_is_completed() -> None:
    disk = sim_disk()
    log = filled(disk, cleanup_policy=("compact",))
    close_log(log)
    # A cleaner kept the second and the last batch of the first two segments, in one file.
    headers, data = headers_of(log), read_all(log)
    kept = [data[header.position : header.end] for header in (headers[1], headers[7])]
    disk.write_atomically(f"{DIRECTORY}/{0:020d}.log.swap", b"".join(kept))
    found = reopen(disk, log, is_clean=True)
    assert [segment.base_offset for segment in found.segments] == [0, 16]
    assert [header.base_offset for header in headers_of(found)] == [2, 14, 16, 18, 20]
    read = found.read(4, 1, upper_offset=22)
    assert read.slice is not None and read.next_offset == 16
    assert found.log_end_offset == 22


def test_a_log_that_ends_before_its_start_leaves_no_files_behind() -> None:
    """The next process would find the old records in front of a gap, and remove the new ones behind it."""
    disk = sim_disk()
    log = new_log(disk, segment_bytes=250)
    for _ in range(4):
        append(log)
    assert len(log.segments) > 1
    log = reopen(disk, log, is_clean=False, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    append(log)
    end = log.log_end_offset
    log = reopen(disk, log, is_clean=False, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, end)
    assert [name for name in disk.list(log.directory) if name.endswith(".log")] == [f"{50:020}.log"]


def test_the_epoch_of_a_truncated_record_does_not_take_the_record_that_follows() -> None:
    """A crash leaves the epoch in the file. Of a log without records, recovery cannot tell it from the epoch
    of the last record that was removed from the log's start."""
    disk = sim_disk()
    log = new_log(disk)
    append(log, 0, leader_epoch=0)
    end = log.log_end_offset
    advance_log_start(log, end)
    append(log, 0, leader_epoch=1)
    flush_at_once(log)
    truncate_to(log, end)
    disk.kill_process()
    found = reopen(disk, log, is_clean=False, recovery_point=log.recovery_point, log_start_offset=end)
    append(found, 0, leader_epoch=0)
    assert found.epochs.entries == [(0, end)]


def test_a_log_that_ends_below_its_log_start_offset_restarts_there(disk: SimDisk, closed: Log) -> None:
    found = reopen(disk, closed, is_clean=True, log_start_offset=50)
    assert (found.log_start_offset, found.log_end_offset, found.epochs.entries) == (50, 50, [])
    assert append(found) == 50


def test_the_log_start_offset_comes_from_the_checkpoint_or_the_first_segment(
    disk: SimDisk, closed: Log
) -> None:
    assert reopen(disk, closed, is_clean=True, log_start_offset=5).log_start_offset == 5
    disk.remove(f"{DIRECTORY}/{0:020d}.log")
    found = reopen(disk, closed, is_clean=True, log_start_offset=5)
    assert found.log_start_offset == 8
    assert found.epochs.entries == [(1, 8), (2, 12), (3, 18)]


def test_recovery_does_not_treat_bytes_it_read_as_durable(disk: SimDisk, log: Log) -> None:
    disk.kill_process()
    found = reopen(disk, log, is_clean=False)
    assert found.recovery_point == 0
    flush_at_once(found)
    assert found.recovery_point == 22
    disk.lose_power()
    assert reopen(disk, log, is_clean=False).log_end_offset == 22


@pytest.mark.parametrize("seed", range(60))
def test_a_power_loss_loses_no_flushed_record_and_leaves_a_valid_log(seed: int) -> None:
    disk: SimDisk = sim_disk(seed)
    log = new_log(disk, segment_bytes=400, index_interval_bytes=100)
    flushed = 0
    for number in range(disk.rng.randint(1, 25)):
        append(log, 1000 + number, leader_epoch=number // 4, producer_id=7, epoch=0, sequence=number)
        if disk.rng.random() < 0.2:
            flush_at_once(log)
            flushed = log.log_end_offset
        if disk.rng.random() < 0.1:
            target = disk.rng.randint(0, log.log_end_offset)
            truncate_to(log, target)
            flushed = min(flushed, log.log_end_offset)
            break
    whole, epochs, recovery_point = headers_of(log), log.epochs.entries, log.recovery_point
    assert recovery_point == flushed
    disk.lose_power()
    if not disk.is_directory(DIRECTORY):
        assert flushed == 0
        return
    found = reopen(disk, log, is_clean=False, recovery_point=recovery_point)
    end = found.log_end_offset
    assert end >= flushed
    if end <= len(whole):
        assert headers_of(found) == whole[:end]
        assert found.epochs.entries == [entry for entry in epochs if entry[1] < end]


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_loss_truncated_records_are_not_before_newer_ones(seed: int, is_flushed: bool) -> None:
    """The disk may undo a truncation that no fsync has covered, and the segment after it may be durable."""
    disk: SimDisk = sim_disk(seed)
    log = new_log(disk)
    for _ in range(4):
        append(log)
    flush_at_once(log)
    truncate_to(log, 2)
    log.roll(NOW_MS)
    append(log, leader_epoch=1)
    whole = headers_of(log)
    if is_flushed:
        flush_at_once(log)
    disk.lose_power()

    found = reopen(disk, log, is_clean=False, recovery_point=log.recovery_point)

    if is_flushed or len(found.segments) == 2:
        assert headers_of(found) == whole[: 3 if is_flushed else found.log_end_offset]


def test_a_loaded_log_has_its_topic_id() -> None:
    disk = sim_disk()
    topic_id = uuid.UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")
    close_log(create_log(disk, request(topic_id=topic_id)))
    metadata = disk.read(f"{DIRECTORY}/partition.metadata")
    assert metadata.startswith(b"version: 0\ntopic_id: Dx4tPEtaaXiHlqW0w9Lh8A\nchecksum: ")
    assert load_log(disk, request(is_clean=True)).topic_id == topic_id
    disk.write_atomically(f"{DIRECTORY}/partition.metadata", b"versi")
    assert load_log(disk, request(is_clean=True)).topic_id is None


def test_a_snapshot_written_by_kafka_is_read(disk: SimDisk, closed: Log) -> None:
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 99, 4, 17, 21, 3, 123456, -1, -1)
    head = struct.pack(">hI", 1, crc32c(body))
    disk.write_atomically(f"{DIRECTORY}/{22:020d}.snapshot", head + body)
    found = reopen(disk, closed, is_clean=True)
    entry = found.producers.get(99)
    assert entry is not None and (entry.epoch, entry.last_sequence) == (4, 17)
    assert [batch.first_offset for batch in entry.batches] == [18]
    assert append(found, producer_id=99, epoch=4, sequence=18) == 22


@pytest.mark.parametrize("is_clean", [True, False])
def test_every_segment_of_an_open_log_has_index_files(is_clean: bool) -> None:
    """Kafka's tools read the directory of a running broker, and expect both files beside each log."""
    disk = sim_disk()
    log = new_log(disk, segment_bytes=200)

    def missing() -> set[str]:
        names_found = set(disk.list(DIRECTORY))
        bases = {name[:20] for name in names_found if name.endswith(".log")}
        return {f"{base}{kind}" for base in bases for kind in (".index", ".timeindex")} - names_found

    assert not missing()
    for _ in range(5):
        append(log, NOW_MS, NOW_MS)
    assert len(log.segments) > 2
    assert not missing()
    if is_clean:
        close_log(log)
    log = reopen(disk, log, is_clean=is_clean)
    append(log, NOW_MS)
    assert not missing()
    truncate_to(log, 1)
    assert not missing()


def test_after_a_power_failure_a_closed_segment_without_index_entries_is_indexed_again() -> None:
    disk = sim_disk()
    log = new_log(disk, segment_bytes=4000, index_interval_bytes=100)
    for _ in range(30):
        append(log, NOW_MS, size=200)
    flush_at_once(log)
    for path in (log.segments[0].indexes.offsets.path, log.segments[0].indexes.times.path):
        disk.cut(path, 0)
    disk.write_back()
    log = reopen(disk, log, is_clean=False, recovery_point=log.recovery_point)
    assert len(log.segments[0].indexes.offsets) > 1
    assert log.segments[0].indexes.times.last() is not None


BEGUN = f"{DIRECTORY}/{names.BEGUN_EPOCHS}"


def killed(disk: SimDisk, log: Log, **values: Any) -> tuple[Log, list[bool]]:
    """The log as it is found after a kill, and whether recovery said that records may be missing."""
    disk.kill_process()
    doubts: list[bool] = []
    found = reopen(
        disk, log,
        is_clean=False, has_all_writes=True, cut_short=lambda: doubts.append(True), **values,
    )  # fmt: skip
    return found, doubts


def change_epoch(disk: SimDisk, log: Log, offset: int, bit: int) -> None:
    segment = next(log.segments.from_offset(offset))
    header = next(each for each in segment.headers(0) if each.base_offset == offset)
    disk.rot(segment.path, header.position + LEADER_EPOCH + 3, bit)


@pytest.mark.parametrize("recovery_point", [0, 19])
def test_after_a_kill_the_epochs_are_those_that_had_begun(
    recovery_point: int, disk: SimDisk, log: Log
) -> None:
    flush_at_once(log)
    log.epochs.begin(8, log.log_end_offset)
    truncate_to(log, 20)
    append(log, leader_epoch=5)
    append(log, leader_epoch=7)
    before = log.epochs.entries
    found, doubts = killed(disk, log, recovery_point=recovery_point)
    assert (found.epochs.entries, doubts, found.doubt) == (before, [], None)


@pytest.mark.parametrize("bit", range(4))
@pytest.mark.parametrize("offset", [4, 18, 20])
def test_after_a_kill_a_changed_epoch_is_noticed_and_not_believed(
    offset: int, bit: int, disk: SimDisk, log: Log
) -> None:
    before = log.epochs.entries
    change_epoch(disk, log, offset, bit)
    found, doubts = killed(disk, log)
    assert found.epochs.entries == before
    assert doubts and found.is_cut_short and found.log_end_offset == log.log_end_offset
    assert found.doubt is not None and found.doubt[0] == offset


def test_a_record_that_several_batches_contradict_is_not_believed(disk: SimDisk, log: Log) -> None:
    """One bit of a disk changes one batch. Nobody knows why several differ."""
    record = disk.read(BEGUN)
    append(log, leader_epoch=6)
    append(log, leader_epoch=6)
    before = log.epochs.entries
    disk.write_atomically(BEGUN, record)
    found, doubts = killed(disk, log)
    assert (found.epochs.entries, found.doubt) == (before, None)
    assert doubts


def test_after_a_power_failure_the_record_of_epochs_is_not_believed(disk: SimDisk, log: Log) -> None:
    record = disk.read(BEGUN)
    append(log, leader_epoch=6)
    before = log.epochs.entries
    disk.write_atomically(BEGUN, record)
    assert reopen(disk, log, is_clean=False).epochs.entries == before


@pytest.mark.parametrize("damage", [b"", b"0\n1\n0 0\n", None])
def test_without_a_record_a_last_batch_of_another_epoch_is_doubtful(
    damage: bytes | None, disk: SimDisk
) -> None:
    log = new_log(disk)
    for leader_epoch in (1, 1):
        append(log, leader_epoch=leader_epoch)
    _spoil(disk, damage)
    log, doubts = killed(disk, log)
    assert not doubts
    append(log, leader_epoch=3)
    _spoil(disk, damage)
    log, doubts = killed(disk, log)
    assert log.epochs.entries == [(1, 0), (3, 2)]
    assert doubts


def _spoil(disk: SimDisk, damage: bytes | None) -> None:
    if damage is None:
        disk.remove(BEGUN)
    elif damage:
        disk.rot(BEGUN, 4, 0)
    else:
        disk.write_atomically(BEGUN, damage)


def test_a_record_of_epochs_that_cannot_be_written_does_not_contradict_the_log(
    disk: SimDisk, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = disk.rename

    def refuse(source: str, target: str) -> None:
        if target == BEGUN:
            raise OSError(errno.EMFILE, "too many open files", target)
        rename(source, target)

    monkeypatch.setattr(disk, "rename", refuse)
    append(log, leader_epoch=6)
    monkeypatch.undo()
    assert not disk.exists(BEGUN)
    append(log, leader_epoch=6)
    found, doubts = killed(disk, log)
    assert found.epochs.entries == log.epochs.entries
    assert not doubts


def test_epochs_are_recorded_once_before_the_first_batch_of_each(
    disk: SimDisk, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, int]] = []
    rename = disk.rename

    def count(source: str, target: str) -> None:
        if target == BEGUN:
            written.append((log.epochs.latest, log.log_end_offset))
        rename(source, target)

    monkeypatch.setattr(disk, "rename", count)
    log.epochs.begin(6, log.log_end_offset)
    assert written == []
    for leader_epoch in (6, 6, 7, 7):
        append(log, leader_epoch=leader_epoch)
    assert written == [(6, 22), (7, 24)]
