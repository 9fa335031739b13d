"""A process or machine that ends at any file operation of a compaction: nothing is lost or doubled."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast_log.broker.log import names
from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.truncation import advance_log_start, truncate_to
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.records import BatchBuilder
from tests.models.compaction import StoredRecord, compact, records_of
from tests.models.disk import SimDisk
from tests.models.logs import NOW_MS, append_as_leader, headers_of, new_log, reopen, sim_disk

OPERATIONS_MAX = 500


def grown_log(disk: SimDisk) -> Log:
    """A durable log of nine segments, some of which merge, and some lose all records."""
    log = new_log(disk, segment_bytes=700, cleanup_policy=("compact",), delete_retention_ms=0)
    for number in range(60):
        builder = BatchBuilder()
        builder.append(NOW_MS, b"key%d" % (number * number % 7 if number < 40 else 0), b"v%d" % number)
        builder.append(NOW_MS, b"once%d" % number if number % 4 == 0 and number < 20 else b"again", b"v")
        batch = builder.build(producer_id=number % 3, producer_epoch=0, base_sequence=number // 3 * 2)
        append_as_leader(log, memoryview(batch), number // 25, now_ms=NOW_MS)
    log.roll(NOW_MS)
    flush_at_once(log)
    disk.write_back()
    assert len(log.segments) > 6
    # Groups of several segments become one.
    log.settings = replace(log.settings, segment_bytes=2500)
    return log


def last_of_keys(records: list[StoredRecord]) -> set[StoredRecord]:
    return set({record.key: record for record in records}.values())


def superseded(records: list[StoredRecord], end_offset: int) -> set[StoredRecord]:
    """The records that have a later one of their keys before `end_offset`."""
    seen = [record for record in records if record.offset < end_offset]
    return set(seen) - last_of_keys(seen)


def sequences(log: Log) -> dict[int, int]:
    return {entry.producer_id: entry.last_sequence for entry in log.producers.entries()}


def interrupted(disk: SimDisk, log: Log, changes: int, work: Callable[[], object]) -> bool:
    """Do `work` on a machine that ends at the change of a file after `changes` more. Returns whether it ended
    before the work was done."""
    disk.strike(changes, lambda: None)
    try:
        work()
    except OSError:
        disk.switch_on()
        return True
    disk.spare()
    return False


def recovered(disk: SimDisk, log: Log) -> Log:
    return reopen(
        disk, log,
        is_clean=False, recovery_point=log.recovery_point, log_start_offset=log.log_start_offset,
        cleaned_offset=log.cleaned_offset,
    )  # fmt: skip


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_crash_at_any_file_operation_loses_nothing_and_doubles_nothing(seed: int | None) -> None:
    """A seed stands for a power failure that keeps a random part of what no fsync had covered; None for the
    end of the process alone."""
    disk = sim_disk(seed or 0)
    log = grown_log(disk)
    before, expected_sequences = records_of(log), sequences(log)
    end, image = log.log_end_offset, disk.snapshot()
    swaps = 0
    for changes in range(OPERATIONS_MAX):
        disk.restore(image)
        disk.rng = random.Random(f"{seed} {changes}")
        log.cleaned_offset = 0
        log = recovered(disk, log)
        is_struck = interrupted(disk, log, changes, lambda log=log: compact(log, disk, NOW_MS))
        if is_struck:
            disk.kill_process() if seed is None else disk.lose_power()
        swaps += any(name.endswith(names.SWAP) for name in disk.list(log.directory))
        log.cleaned_offset = 0
        log = recovered(disk, log)

        try:
            after = records_of(log)
        except BrokerError as error:
            raise AssertionError("the log cannot be read") from error
        offsets = [record.offset for record in after]
        assert offsets == sorted(set(offsets))
        assert last_of_keys(before) <= set(after) <= set(before)
        assert set(before) - set(after) <= superseded(before, log.mapped_offset)
        assert log.log_end_offset == end and headers_of(log)[-1].next_offset == end
        assert sequences(log) == expected_sequences
        assert not [name for name in disk.list(log.directory) if name.endswith((names.SWAP, names.CLEANED))]
        assert compact(log, disk, NOW_MS) is not None
        assert set(records_of(log)) == last_of_keys(before)
        if not is_struck:
            break
    else:
        pytest.fail(f"the compaction takes more than {OPERATIONS_MAX} changes of files")
    assert swaps >= 2, "the machine ended between two steps of a swap"


@pytest.mark.parametrize("how", ["truncated", "start moved"])
@pytest.mark.parametrize("loses_power", [False, True])
def test_a_log_that_changes_while_a_swap_is_pending_keeps_the_change(how: str, loses_power: bool) -> None:
    disk = sim_disk(7)
    log = grown_log(disk)
    target = log.segments[2]
    records = records_of(log)
    log.disk.open(log.segments[1].path + names.CLEANED, create=True).close()
    log.segments.begin_replacement(log.segments[1:4])

    if how == "truncated":
        truncate_to(log, target.base_offset + 1, now_ms=NOW_MS)
    else:
        advance_log_start(log, target.next_offset, now_ms=NOW_MS)
    end, start = log.log_end_offset, log.log_start_offset
    batch = BatchBuilder()
    batch.append(NOW_MS, b"new", b"1")
    append_as_leader(log, memoryview(batch.build()), 9, now_ms=NOW_MS)
    flush_at_once(log)
    disk.lose_power() if loses_power else disk.kill_process()
    log = recovered(disk, log)

    kept = [record for record in records if start <= record.offset < end]
    assert records_of(log) == [*kept, StoredRecord(end, b"new", b"1", NOW_MS)]


def test_a_damaged_swap_file_is_discarded_while_the_old_segments_are_there() -> None:
    disk = sim_disk()
    log = grown_log(disk)
    before = records_of(log)
    first, second = log.segments[0], log.segments[1]
    swap = disk.open(first.path + names.SWAP, create=True)
    swap.append([disk.read(first.path), disk.read(second.path)])
    disk.rewrite(first.path + names.SWAP, first.size + 70, 1)
    disk.kill_process()

    log = recovered(disk, log)

    assert records_of(log) == before
