"""The append ids that a log remembers: by the leader, by followers, after truncation and after recovery."""

from __future__ import annotations

import random
from unittest import mock

import pytest

from holdfast_log.broker.log.append_ids import NO_DIGEST, ROW_SIZE, AppendIdLimits, AppendIds, NamedAppend
from holdfast_log.broker.log.copying import append_as_follower
from holdfast_log.broker.log.damage import Damage
from holdfast_log.broker.log.flush_job import close_log
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.preparation import prepare_append
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.recovery import create_log
from holdfast_log.broker.log.snapshots import remove_snapshots, snapshot_offsets
from holdfast_log.broker.log.truncation import (
    advance_log_start,
    restore_log_producers,
    truncate_fully_and_start_at,
    truncate_to,
)
from holdfast_log.protocol.batches import Compression, split
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.records import APPEND_ID_HEADER, BatchBuilder
from tests.models.batches import START_MS
from tests.models.logs import DIRECTORY, new_log, reopen, request, sim_disk


def named(number: int) -> bytes:
    return number.to_bytes(16, "big")


def log_with(append_ids_max: int) -> Log:
    return create_log(sim_disk(), request(append_id_limits=AppendIdLimits(append_ids_max, append_ids_max)))


def batch(
    append_id: bytes,
    *values: bytes,
    compression: Compression = Compression.NONE,
    key: bytes | None = None,
    producer_id: int = -1,
    sequence: int = 0,
    timestamp: int = START_MS,
) -> memoryview:
    builder = BatchBuilder(compression)
    for index, value in enumerate(values or (b"value",)):
        builder.append(timestamp, key, value, () if index else ((APPEND_ID_HEADER, append_id),))
    if producer_id < 0:
        return memoryview(builder.build(has_append_id=True))
    built = builder.build(
        has_append_id=True, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    return memoryview(built)


def append(
    log: Log,
    number: int,
    records: memoryview | None = None,
    leader_epoch: int = 0,
    *,
    producer_id: int = -1,
    now_ms: int = START_MS,
) -> tuple[int, bool]:
    """(first offset, whether the log already had this id)."""
    if records is None:
        sequence = 0
        if producer_id >= 0 and (producer := log.producers.get(producer_id)) is not None:
            sequence = producer.last_sequence + 1
        records = batch(named(number), producer_id=producer_id, sequence=sequence)
    prepared = prepare_append(log, records, now_ms=now_ms, append_id=named(number))
    result = log.append_prepared(prepared, leader_epoch, now_ms=now_ms)
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
    assert log.producers.append_ids.known_from == 2
    assert append(log, 0) == (5, False)


def test_with_a_limit_of_0_no_ids_are_remembered() -> None:
    log = log_with(0)
    append(log, 1)
    assert append(log, 1) == (1, False)
    assert log.producers.append_ids.known_from == 2


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
        AppendIds().restore(memoryview(ids.encode())[:64], 6)


def test_a_lower_limit_applies_to_the_ids_of_a_snapshot() -> None:
    disk = sim_disk()
    log = new_log(disk)
    for number in range(4):
        append(log, number)
    close_log(log)
    assert known(reopen(disk, log, is_clean=True, append_id_limits=AppendIdLimits(2))) == {2: 2, 3: 3}


# Which ids are forgotten, and from where on all are known.


def filled(log: Log, producer_id: int, numbers: range, now_ms: int = START_MS) -> None:
    for number in numbers:
        append(log, number, producer_id=producer_id, now_ms=now_ms)


def test_a_producer_that_appends_without_end_forgets_its_own_ids_only() -> None:
    log = limited(ids_max=10, ids_max_per_producer=3)
    filled(log, 1, range(2))
    filled(log, 2, range(2, 50))
    assert set(known(log)) == {0, 1, 47, 48, 49}
    assert log.producers.append_ids.known_from == 47


def test_beyond_the_limit_for_all_the_producer_with_the_most_ids_forgets_one() -> None:
    log = limited(ids_max=6, ids_max_per_producer=5)
    filled(log, 1, range(2))
    filled(log, 2, range(20, 24))
    filled(log, 3, range(30, 50))
    filled(log, 2, range(50, 60))
    assert set(known(log)) == {0, 1, 48, 49, 58, 59}
    assert append(log, 0) == (0, True)


def test_of_producers_with_as_many_ids_the_one_that_wrote_longest_ago_forgets_one() -> None:
    log = limited(ids_max=3)
    for number in range(5):
        append(log, number, producer_id=number)
    assert set(known(log)) == {2, 3, 4}
    assert log.producers.append_ids.known_from == 2


def test_many_producers_of_one_source_take_no_ids_from_another() -> None:
    """A producer id costs a client nothing."""
    log = limited(ids_max=10)
    log.producers.introduce(1, "honest", START_MS)
    filled(log, 1, range(5))
    for number in range(20, 60):
        log.producers.introduce(number, "stranger", START_MS)
        append(log, number, producer_id=number)
    assert set(known(log)) == {*range(5), *range(55, 60)}
    assert append(log, 0) == (0, True)
    log.producers.forget_ids(4)
    assert set(known(log)) == {2, 3, 4, 57, 58, 59}


def test_old_ids_are_forgotten_first_and_only_where_there_are_too_many() -> None:
    log = limited(ids_max=4, retention_ms=1000)
    filled(log, 1, range(1))
    filled(log, 2, range(1, 4), START_MS + 1000)
    assert set(known(log)) == {0, 1, 2, 3}
    filled(log, 2, range(4, 5), START_MS + 1000)
    assert set(known(log)) == {1, 2, 3, 4}
    assert log.producers.append_ids.known_from == 1


@pytest.mark.parametrize("seed", range(20))
def test_every_id_from_the_bound_on_is_known_whoever_appends(seed: int) -> None:
    rng = random.Random(seed)
    limits = AppendIdLimits(rng.randint(0, 12), rng.randint(1, 6), rng.choice([0, 5, 10**9]))
    ids = AppendIds(limits)
    appended: dict[bytes, int] = {}
    for offset in range(200):
        append_id = named(rng.randrange(150))
        appended[append_id] = offset
        producer_id = rng.randrange(5)
        append = NamedAppend(offset, 0, START_MS, producer_id, START_MS + offset)
        ids.add(append_id, append, rng.choice(["", "a", "b"]))
        if rng.random() < 0.05:
            ids.forget_some(rng.randrange(4))
        if rng.random() < 0.05:
            restored = AppendIds(limits)
            restored.restore(memoryview(ids.encode()), offset + 1)
            ids = restored
        assert len(ids) <= limits.ids_max
        for each, last in appended.items():
            found = ids.find(each)
            assert found.first_offset == last if found is not None else last < ids.known_from


def limited(**limits: int) -> Log:
    return create_log(sim_disk(), request(append_id_limits=AppendIdLimits(**limits)))


# Replicas that cannot know.


def test_a_replica_that_begins_behind_deleted_records_does_not_know_their_ids() -> None:
    leader, replica = new_log(sim_disk()), new_log(sim_disk())
    for number in range(3):
        append(leader, number)
    advance_log_start(leader, 2)
    truncate_fully_and_start_at(replica, 2)
    copy(leader, replica, 2)
    assert known(leader) == {0: 0, 1: 1, 2: 2}
    assert leader.producers.append_ids.known_from == 0
    assert known(replica) == {2: 2}
    assert replica.producers.append_ids.known_from == 2


def test_a_replica_created_with_a_log_start_does_not_know_what_was_before() -> None:
    log = create_log(sim_disk(), request(log_start_offset=7))
    assert log.producers.append_ids.known_from == 7


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_a_log_has_forgotten_it_cannot_say_after_a_restart_either(is_clean: bool) -> None:
    disk = sim_disk()
    log = create_log(disk, request(append_id_limits=AppendIdLimits(2)))
    for number in range(4):
        append(log, number)
        log.roll(START_MS)
    if is_clean:
        close_log(log)
    again = reopen(disk, log, is_clean=is_clean, append_id_limits=AppendIdLimits(100))
    assert known(again) == {2: 2, 3: 3}
    assert again.producers.append_ids.known_from == 2


def test_a_log_whose_snapshots_are_lost_knows_the_ids_from_its_start_on() -> None:
    disk = sim_disk()
    log = new_log(disk)
    for number in range(3):
        append(log, number)
    advance_log_start(log, 2)
    again = reopen(disk, log, is_clean=False, log_start_offset=2)
    assert known(again) == {2: 2}
    assert again.producers.append_ids.known_from == 2


def test_a_snapshot_that_does_not_say_from_where_on_it_knows_all_ids_is_not_believed() -> None:
    """One of Kafka, or of a version that forgot ids by their number alone."""
    disk = sim_disk()
    log = new_log(disk)
    append(log, 1)
    append(log, 2)
    ids = log.producers.append_ids
    whole = AppendIds.encode

    def without_bound(self: AppendIds) -> bytes:
        return whole(self)[ROW_SIZE:]

    with mock.patch.object(AppendIds, "encode", without_bound):
        close_log(log)
    again = reopen(disk, log, is_clean=True)
    assert known(again) == known(log)
    assert (ids.known_from, again.producers.append_ids.known_from) == (0, 2)


def test_truncation_keeps_the_bound_of_the_snapshot_that_it_goes_back_to() -> None:
    log = log_with(2)
    for number in range(4):
        append(log, number)
    log.roll(START_MS)
    append(log, 4)
    truncate_to(log, 4)
    assert known(log) == {2: 2, 3: 3}
    assert log.producers.append_ids.known_from == 2


def test_a_follower_does_not_know_the_ids_in_a_gap_that_compaction_has_left() -> None:
    leader = new_log(sim_disk(), cleanup_policy=frozenset({"compact"}))
    follower = new_log(sim_disk(), cleanup_policy=frozenset({"compact"}))
    for number in range(3):
        append(leader, number, batch(named(number), key=b"k"))
    copy(leader, follower, 0, 2)
    assert known(follower) == {0: 0, 2: 2}
    assert follower.producers.append_ids.known_from == 2
    assert reread(follower).append_ids.known_from == 2


def test_a_batch_whose_first_record_is_gone_has_an_id_that_nobody_knows() -> None:
    log = new_log(sim_disk())
    append(log, 1)
    builder = BatchBuilder()
    builder.append(START_MS, None, b"what remains")
    records = memoryview(builder.build(has_append_id=True, base_offset=1))
    append_as_follower(log, records, now_ms=START_MS)
    assert known(log) == {1: 0}
    assert log.producers.append_ids.known_from == 2


def test_a_log_with_a_damaged_segment_does_not_know_the_ids_in_it() -> None:
    log = new_log(sim_disk())
    append(log, 1)
    log.roll(START_MS)
    append(log, 2)
    log.segments[0].damage = Damage(0, 0, 0, "flipped")
    assert reread(log).append_ids.known_from == 2


def copy(leader: Log, follower: Log, *offsets: int) -> None:
    """Have the follower copy the batches at these offsets."""
    for offset in offsets:
        found = leader.read(offset, 1, upper_offset=leader.log_end_offset).slice
        assert found is not None
        records = memoryview(found.file.pread(found.length, found.offset))
        append_as_follower(follower, records, now_ms=START_MS)


def reread(log: Log) -> ProducerStates:
    """The state that is restored from the batches of a log."""
    remove_snapshots(log.disk, log.directory, beyond=-1)
    restore_log_producers(log, START_MS)
    return log.producers


# The content of a repeated append.


def test_an_append_repeated_at_another_time_with_another_codec_is_the_same() -> None:
    log = new_log(sim_disk())
    append(log, 1, batch(named(1), b"a", b"b", key=b"k"))
    later = batch(
        named(1), b"a", b"b", key=b"k", compression=Compression.GZIP, timestamp=START_MS + 5, producer_id=7
    )
    assert append(log, 1, later) == (0, True)


@pytest.mark.parametrize(
    "other", [batch(named(1), b"a", b"c", key=b"k"), batch(named(1), b"a", b"b"), batch(named(1), b"ab", b"")]
)
def test_other_content_under_a_known_id_is_refused(other: memoryview) -> None:
    log = new_log(sim_disk())
    append(log, 1, batch(named(1), b"a", b"b", key=b"k"))
    for known_by in (log, reopen_unclean(log)):
        with pytest.raises(BrokerError, match="other keys, values or headers") as raised:
            append(known_by, 1, other)
        assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert log.log_end_offset == 2


def test_content_of_which_compaction_has_removed_a_part_is_not_compared() -> None:
    log = new_log(sim_disk())
    whole = batch(named(1), b"a", b"b")
    header = split(bytearray(whole))[0]._replace(last_offset_delta=2)
    log.producers.remember_id(whole, header, 0, START_MS)
    found = log.producers.append_ids.find(named(1))
    assert found is not None and found.digest == NO_DIGEST


def reopen_unclean(log: Log) -> Log:
    return reopen(log.disk, log, is_clean=False)
