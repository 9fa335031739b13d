"""The append ids that a log remembers: by the leader, by followers, after truncation and after recovery."""

from __future__ import annotations

import pytest

from holdfast_log.broker.log.append_ids import AppendIds, NamedAppend
from holdfast_log.broker.log.copying import append_as_follower
from holdfast_log.broker.log.flush_job import close_log
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.preparation import prepare_append
from holdfast_log.broker.log.recovery import create_log
from holdfast_log.broker.log.snapshots import snapshot_offsets
from holdfast_log.broker.log.truncation import advance_log_start, truncate_fully_and_start_at, truncate_to
from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.records import APPEND_ID_HEADER, BatchBuilder
from tests.models.batches import START_MS
from tests.models.logs import DIRECTORY, new_log, reopen, request, sim_disk


def named(number: int) -> bytes:
    return number.to_bytes(16, "big")


def log_with(append_ids_max: int) -> Log:
    return create_log(sim_disk(), request(append_ids_max=append_ids_max))


def batch(append_id: bytes, *values: bytes, compression: Compression = Compression.NONE) -> memoryview:
    builder = BatchBuilder(compression)
    for index, value in enumerate(values or (b"value",)):
        builder.append(START_MS, None, value, () if index else ((APPEND_ID_HEADER, append_id),))
    return memoryview(builder.build(has_append_id=True))


def append(
    log: Log, number: int, records: memoryview | None = None, leader_epoch: int = 0
) -> tuple[int, bool]:
    """(first offset, whether the log already had this id)."""
    records = batch(named(number)) if records is None else records
    prepared = prepare_append(log, records, now_ms=START_MS, append_id=named(number))
    result = log.append_prepared(prepared, leader_epoch, now_ms=START_MS)
    return result.first_offset, prepared.is_repeat


def known(log: Log) -> dict[int, int]:
    """The numbers of the ids that the log knows, and their offsets."""
    found = {number: log.producers.append_ids.find(named(number)) for number in range(100)}
    return {number: each.first_offset for number, each in found.items() if each is not None}


def test_an_append_with_a_known_id_is_answered_with_its_offset_and_not_written() -> None:
    log = new_log(sim_disk())
    assert append(log, 1) == (0, False)
    assert append(log, 2) == (1, False)
    assert append(log, 1) == (0, True)
    assert log.log_end_offset == 2


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("setting", ["producer", "uncompressed", "lz4"])
def test_an_id_is_found_in_any_codec(codec: Compression, setting: str) -> None:
    log = new_log(sim_disk(), compression_type=setting)
    assert append(log, 1, batch(named(1), b"a", b"b", compression=codec)) == (0, False)
    assert append(log, 1, batch(named(1), b"a", b"b", compression=codec)) == (0, True)


def test_a_log_remembers_its_last_ids_up_to_the_limit() -> None:
    log = log_with(3)
    for number in range(5):
        append(log, number)
    assert known(log) == {2: 2, 3: 3, 4: 4}
    assert log.producers.append_ids.known_from(log.log_end_offset) == 2
    assert append(log, 0) == (5, False)


def test_with_a_limit_of_0_no_ids_are_remembered() -> None:
    log = log_with(0)
    append(log, 1)
    assert append(log, 1) == (1, False)
    assert log.producers.append_ids.known_from(log.log_end_offset) == 2


def test_an_id_names_an_append_of_a_certain_number_of_records() -> None:
    log = new_log(sim_disk())
    append(log, 1)
    with pytest.raises(BrokerError, match="an id of its own") as raised:
        append(log, 1, batch(named(1), b"a", b"b"))
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_the_request_and_the_first_record_must_have_the_same_id() -> None:
    log = new_log(sim_disk())
    with pytest.raises(BrokerError) as raised:
        append(log, 1, batch(named(2)))
    assert raised.value.code is ErrorCode.INVALID_RECORD
    with pytest.raises(BrokerError) as raised:
        prepare_append(log, batch(named(1)), now_ms=START_MS)
    assert raised.value.code is ErrorCode.INVALID_RECORD


def test_a_follower_remembers_the_ids_in_the_batches_that_it_copies() -> None:
    leader, follower = new_log(sim_disk()), new_log(sim_disk())
    for number in range(3):
        append(leader, number)
    for offset in range(3):
        found = leader.read(offset, 1, upper_offset=3).slice
        assert found is not None
        records = memoryview(found.file.pread(found.length, found.offset))
        append_as_follower(follower, records, now_ms=START_MS)
    assert known(follower) == known(leader) == {0: 0, 1: 1, 2: 2}


def test_truncation_forgets_the_ids_of_removed_batches_and_remembers_older_ones_again() -> None:
    log = log_with(3)
    for number in range(6):
        append(log, number)
    truncate_to(log, 4)
    assert known(log) == {1: 1, 2: 2, 3: 3}
    assert append(log, 4, leader_epoch=1) == (4, False)


def test_a_log_that_begins_anew_knows_no_ids() -> None:
    log = new_log(sim_disk())
    append(log, 1)
    truncate_fully_and_start_at(log, 10)
    assert known(log) == {}


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_reopened_log_knows_its_ids(is_clean: bool) -> None:
    disk = sim_disk()
    log = new_log(disk)
    for number in range(4):
        append(log, number)
    if is_clean:
        close_log(log)
    assert known(reopen(disk, log, is_clean=is_clean)) == {0: 0, 1: 1, 2: 2, 3: 3}


def test_recovery_takes_older_ids_from_a_snapshot() -> None:
    disk = sim_disk()
    log = new_log(disk)
    append(log, 1)
    append(log, 2)
    log.roll(START_MS)
    append(log, 3)
    advance_log_start(log, 2)
    assert snapshot_offsets(disk, DIRECTORY) == [2]

    recovered = reopen(disk, log, is_clean=False, log_start_offset=2)

    assert known(recovered) == {1: 0, 2: 1, 3: 2}
    assert append(recovered, 1) == (0, True)


def test_a_snapshot_whose_ids_are_cut_off_is_refused() -> None:
    ids = AppendIds()
    ids.add(named(1), NamedAppend(5, 0, START_MS))
    with pytest.raises(ValueError, match="cut off"):
        AppendIds().restore(memoryview(ids.encode())[:32])


def test_a_lower_limit_applies_to_the_ids_of_a_snapshot() -> None:
    disk = sim_disk()
    log = new_log(disk)
    for number in range(4):
        append(log, number)
    close_log(log)
    assert known(reopen(disk, log, is_clean=True, append_ids_max=2)) == {2: 2, 3: 3}
