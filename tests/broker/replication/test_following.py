"""A follower's log and its leader's: copied byte for byte, truncated where leader epochs diverge."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from holdfast_log.broker.log.log_events import LogEvents
from holdfast_log.broker.replication.following import FetchOutcome, take, wanted
from holdfast_log.broker.replication.leadership import UNKNOWN_OFFSET, Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.record_deletions import delete_records
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchRequest, FetchTopic, PartitionData
from tests.broker.replication.replica_logs import (
    NOW_MS,
    TOPIC_ID,
    append,
    elect,
    raw,
    replica,
    serve,
    values,
)
from tests.models.disk import SimDisk


def fetch(leader: Partition, follower: Partition) -> tuple[PartitionData, FetchOutcome]:
    """Fetch once; the outcome at the follower."""
    topics = [FetchTopic(topic_id=TOPIC_ID, partitions=[wanted(follower, 1 << 20)])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)
    request.replica_state.replica_id = follower.local_id
    data = serve([leader], request).responses[0].partitions[0]
    return data, take(follower, data, NOW_MS)


def catch_up(leader: Partition, follower: Partition) -> int:
    """Fetch until the follower has the whole log. Returns the number of truncations."""
    cuts = 0
    for _ in range(50):
        data, outcome = fetch(leader, follower)
        assert outcome in (FetchOutcome.GO_ON, FetchOutcome.START_OVER)
        is_cut = data.diverging_epoch.end_offset >= 0
        cuts += is_cut
        if not is_cut and not data.records and data.error_code == ErrorCode.NONE:
            return cuts
    raise AssertionError("the follower does not catch up")


def known_end(leader: Partition, broker_id: int) -> int:
    """Log end offset of a follower, as the leader knows it."""
    assert isinstance(leader.role, Leadership)
    return leader.role.remotes[broker_id].log_end_offset


def test_the_followers_log_has_the_same_bytes_as_the_leaders() -> None:
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two])
    append(leader, b"a", b"b")
    append(leader, b"c")
    catch_up(leader, two)
    assert raw(two) == raw(one)
    assert two.log.log_end_offset == 3
    assert two.log.epochs.entries == [(0, 0)]


def test_a_followers_high_watermark_is_the_leaders_up_to_its_own_log_end() -> None:
    _, two, three = replicas = replica(1), replica(2), replica(3)
    leader = elect(1, 0, replicas)
    append(leader, b"a", b"b")
    catch_up(leader, two)
    assert two.high_watermark == 0  # broker 3 has not fetched the record yet
    catch_up(leader, three)
    assert leader.high_watermark == 2
    assert three.high_watermark == 2
    append(leader, b"c")
    fetch(leader, two)
    assert two.high_watermark == 2
    two.take_high_watermark(99)
    assert two.high_watermark == 3


def test_a_follower_elected_before_it_knows_the_high_watermark_keeps_committed_records() -> None:
    """The first scenario of KIP-101: a follower that cut at its high watermark would lose `b`."""
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two], isr=(1, 2))
    append(leader, b"a")
    append(leader, b"b")
    fetch(leader, two)
    fetch(leader, two)
    assert leader.high_watermark == 2
    two.high_watermark = 1  # the restart finds a checkpoint older than the high watermark last received
    elect(1, 1, [one, two], isr=(1, 2))
    leader = elect(2, 2, [one, two], isr=(1, 2))
    catch_up(leader, one)
    assert values(one) == values(two) == {0: b"a", 1: b"b"}


def test_records_that_the_new_leader_never_had_are_replaced() -> None:
    """The second scenario of KIP-101: the same offset, written by two leaders."""
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two])
    append(leader, b"both")
    catch_up(leader, two)
    append(leader, b"only one")
    leader = elect(2, 1, [one, two])
    append(leader, b"only two")
    data, outcome = fetch(leader, one)
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1)
    assert outcome is FetchOutcome.GO_ON
    assert values(one) == {0: b"both"}
    catch_up(leader, one)
    assert raw(one) == raw(two)
    assert one.log.epochs.entries == two.log.epochs.entries == [(0, 0), (1, 1)]


BASE_OFFSET, LENGTH, LEADER_EPOCH, RECORDS = 0, 8, 12, 61
"""Bytes of a batch, from its start."""


def of_three_epochs() -> tuple[Partition, Partition]:
    """A leader that has a batch of each of the epochs 2, 4 and 6, and a follower that has none."""
    one, two = replica(1), replica(2)
    for epoch in (2, 4, 6):
        append(elect(1, epoch, [one, two]), b"a", b"b")
    return one, two


@pytest.mark.parametrize(
    ("byte", "bit"),
    [
        pytest.param(BASE_OFFSET + 5, 2, id="a higher offset"),
        pytest.param(BASE_OFFSET + 7, 1, id="a lower offset"),
        pytest.param(LENGTH, 5, id="a longer batch"),
        pytest.param(LEADER_EPOCH, 6, id="a leader epoch that has not begun"),
        pytest.param(LEADER_EPOCH + 3, 2, id="an earlier leader epoch"),
        pytest.param(RECORDS + 1, 0, id="another record"),
    ],
)
def test_a_follower_appends_the_sound_batches_before_a_damaged_one_and_tells_the_leader(
    byte: int, bit: int
) -> None:
    leader, follower = of_three_epochs()
    suspected: list[tuple[int, str]] = []
    leader.log.events = LogEvents(suspected=lambda log, base, why: suspected.append((base, why)))
    sound = raw(leader)
    position = len(sound) // 3
    bad = bytearray(sound)
    bad[position + byte] ^= 1 << bit
    answer = PartitionData(partition_index=0, error_code=0, high_watermark=6, records=memoryview(bad))
    for _ in range(2):
        outcome = take(follower, answer, NOW_MS)
        assert values(follower) == {0: b"a", 1: b"b"}
        assert follower.log.epochs.entries == [(2, 0)]
        answer = replace(answer, records=memoryview(bad)[position:])
    assert outcome is FetchOutcome.BACK_OFF
    assert suspected == []
    assert wanted(follower, 1 << 20).has_refused
    fetch(leader, follower)
    assert suspected == [(0, "broker 2 has refused the batch with offset 2 as damaged")]
    assert not wanted(follower, 1 << 20).has_refused
    assert raw(follower) == sound


def test_a_leader_does_not_examine_a_batch_again_and_again_because_a_follower_refuses_it() -> None:
    leader, follower = of_three_epochs()
    suspected: list[int] = []
    leader.log.events = LogEvents(suspected=lambda log, base, why: suspected.append(base))
    follower.refused_offset = 0
    position = wanted(follower, 1 << 20)
    for second in range(180):
        leader.record_fetch(2, position, NOW_MS + 1000 * second)
    assert len(suspected) == 3


@pytest.mark.parametrize("leads", [True, False])
def test_a_leader_epoch_that_has_not_begun_is_not_believed(leads: bool) -> None:
    """A leader with such an epoch would have others truncate sound records. A follower would find nothing in
    common with its leader, and delete all its records again and again."""
    one, two = replicas = replica(1), replica(2)
    leader = elect(1, 0, replicas)
    append(leader, b"a")
    append(leader, b"b")
    catch_up(leader, two)
    damaged, sound = (one, two) if leads else (two, one)
    suspected: list[int] = []
    damaged.log.events = LogEvents(suspected=lambda log, base, why: suspected.append(base))
    damaged.log.epochs.assign(1 << 20, 1)  # What recovery reads from a damaged batch.
    leader = elect(damaged.local_id if leads else sound.local_id, 1, replicas)
    assert suspected == [0]
    follower = sound if leads else damaged
    assert catch_up(leader, follower) == 0
    assert values(follower) == {0: b"a", 1: b"b"}


def test_a_diverging_follower_does_not_count_as_caught_up() -> None:
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two])
    append(leader, b"both")
    catch_up(leader, two)
    append(leader, b"only one")
    leader = elect(2, 1, [one, two], isr=(1, 2))
    append(leader, b"only two")
    fetch(leader, one)
    assert known_end(leader, 1) == UNKNOWN_OFFSET
    assert leader.high_watermark < 2
    catch_up(leader, one)
    assert known_end(leader, 1) == 2
    assert leader.high_watermark == 2


def test_a_follower_whose_last_record_the_leader_has_deleted_counts_once_it_has_deleted_its_own() -> None:
    """The leader no longer knows in which epoch its record was written, so the two cannot be compared."""
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two])
    append(leader, b"both")
    catch_up(leader, two)
    elect(1, 1, [one, two])
    append(one, b"one in 1")
    leader = elect(2, 2, [one, two], isr=(2,))
    append(leader, b"two in 2")
    delete_records(leader, 2)
    assert leader.log.epochs.entries == [(2, 2)]
    fetch(leader, one)
    assert known_end(leader, 1) == UNKNOWN_OFFSET
    assert one.log.log_start_offset == 2
    fetch(leader, one)
    assert known_end(leader, 1) == 2


def test_logs_that_diverged_twice_converge_in_several_rounds() -> None:
    """KIP-279: each of the two logs has leader epochs that the other log lacks."""
    one, two, three = replicas = replica(1), replica(2), replica(3)
    leader = elect(1, 0, replicas)
    append(leader, b"all")
    catch_up(leader, two)
    catch_up(leader, three)
    for epoch in (1, 3, 5):
        leader = elect(1, epoch, [one])
        append(leader, b"one in %d" % epoch)
    for epoch in (2, 4, 6):
        leader = elect(2, epoch, [two])
        append(leader, b"two in %d" % epoch)
    elect(2, 7, replicas)
    assert catch_up(two, one) >= 1
    catch_up(two, three)
    assert raw(one) == raw(two) == raw(three)
    assert values(one) == {0: b"all", 1: b"two in 2", 2: b"two in 4", 3: b"two in 6"}


def test_a_follower_whose_part_of_an_epoch_ends_earlier_truncates_to_its_own_end() -> None:
    """The leader's log continues in epoch 0 where the follower's has records of epoch 1."""
    one, two = replica(1), replica(2)
    leader = elect(2, 0, [one, two])
    append(leader, b"both")
    catch_up(leader, one)
    append(leader, b"two in 0")
    leader = elect(1, 1, [one])
    append(leader, b"one in 1")
    append(leader, b"one in 1 again")
    leader = elect(2, 2, [one, two])

    data, outcome = fetch(leader, one)

    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    assert outcome is FetchOutcome.GO_ON
    assert values(one) == {0: b"both"}
    catch_up(leader, one)
    assert raw(one) == raw(two)


def test_a_follower_drops_a_leader_epoch_without_records() -> None:
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two])
    append(leader, b"a")
    catch_up(leader, two)
    elect(1, 1, [one])  # the leader appends no record
    assert one.log.epochs.entries == [(0, 0), (1, 1)]
    leader = elect(2, 2, [one, two])
    catch_up(leader, one)
    append(leader, b"b")
    catch_up(leader, one)
    assert values(one) == {0: b"a", 1: b"b"}
    assert one.log.epochs.entries == two.log.epochs.entries == [(0, 0), (2, 1)]


def test_a_follower_restarts_at_the_leaders_log_start_if_its_next_records_are_deleted() -> None:
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two], isr=(1,))
    append(leader, b"a")
    catch_up(leader, two)
    elect(1, 1, [one, two], isr=(1,))
    for value in (b"b", b"c", b"d"):
        append(leader, value)
    delete_records(leader, 3)
    data, outcome = fetch(leader, two)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert outcome is FetchOutcome.START_OVER
    assert (two.log.log_start_offset, two.log.log_end_offset, two.high_watermark) == (3, 3, 3)
    catch_up(leader, two)
    assert values(two) == {3: b"d"}


def test_an_empty_replica_beyond_its_leaders_log_end_restarts_its_log() -> None:
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two])
    append(leader, b"a")
    two.start_at(10, NOW_MS)
    catch_up(leader, two)
    assert values(two) == {0: b"a"}


def test_a_follower_deletes_records_that_its_leader_has_deleted() -> None:
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two], isr=(1, 2))
    for value in (b"a", b"b", b"c"):
        append(leader, value)
    catch_up(leader, two)
    delete_records(leader, 2)
    fetch(leader, two)
    assert two.log.log_start_offset == 2
    fetch(leader, two)
    assert isinstance(leader.role, Leadership)
    assert leader.role.remotes[2].log_start_offset == 2


def test_committed_records_lost_in_an_unclean_election_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two], isr=(1,))
    append(leader, b"committed")
    assert leader.high_watermark == 1
    leader = elect(2, 1, [one, two], isr=(2,))
    with caplog.at_level(logging.WARNING):
        catch_up(leader, one)
    assert values(one) == {}
    assert one.high_watermark == 0
    assert "committed records were lost" in caplog.text


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, FetchOutcome.WAIT),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, FetchOutcome.BACK_OFF),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, FetchOutcome.BACK_OFF),
        (ErrorCode.KAFKA_STORAGE_ERROR, FetchOutcome.BACK_OFF),
        # From a leader that does not send its log start offset.
        (ErrorCode.OFFSET_OUT_OF_RANGE, FetchOutcome.BACK_OFF),
        (9999, FetchOutcome.BACK_OFF),
    ],
)
def test_a_leaders_error_leaves_the_followers_log_unchanged(code: int, outcome: FetchOutcome) -> None:
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two])
    append(leader, b"a")
    catch_up(leader, two)
    before = raw(two)
    data = PartitionData(partition_index=0, error_code=code, high_watermark=-1, records=b"")
    assert take(two, data, NOW_MS) is outcome
    assert raw(two) == before


def test_a_follower_writes_no_damaged_bytes() -> None:
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two])
    append(leader, b"value")
    records = memoryview(bytearray(raw(one)))
    records[-2] ^= 1
    data = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=records)
    assert take(two, data, NOW_MS) is FetchOutcome.BACK_OFF
    assert two.log.log_end_offset == 0


def test_a_replica_whose_disk_has_failed_stops_fetching() -> None:
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two])
    append(leader, b"value")
    two.log.fail(OSError("the disk is gone"))
    data = PartitionData(
        partition_index=0, error_code=0, high_watermark=0, records=memoryview(bytearray(raw(one)))
    )
    assert take(two, data, NOW_MS) is FetchOutcome.WAIT


def test_a_response_without_progress_is_reported_as_a_failure() -> None:
    one, two = replica(1), replica(2)
    leader = elect(1, 0, [one, two])
    append(leader, b"a")
    catch_up(leader, two)
    data = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=b"")
    data.diverging_epoch.epoch, data.diverging_epoch.end_offset = 0, 5
    assert take(two, data, NOW_MS) is FetchOutcome.BACK_OFF
    assert values(two) == {0: b"a"}


def test_an_in_sync_replica_does_not_end_its_log_at_damage_before_the_point_of_divergence() -> None:
    """It would lack records that it has reported, and might be elected without them."""
    _, two, three = replicas = replica(1), replica(2), replica(3)
    leader = elect(1, 0, replicas)
    for value in (b"a", b"b", b"c"):
        append(leader, value)
    catch_up(leader, three)
    for value in (b"d", b"e"):
        append(leader, value)
    catch_up(leader, two)
    two.log.roll(NOW_MS)
    append(leader, b"f")
    catch_up(leader, two)
    damaged = two.log.segments[0]
    disk = two.log.disk
    assert isinstance(disk, SimDisk)
    disk.cut(damaged.path, damaged.size // 5)
    leader = elect(3, 1, replicas)
    for _ in range(2):
        data, outcome = fetch(leader, two)
        assert data.diverging_epoch.end_offset == 3
        assert outcome is FetchOutcome.BACK_OFF
        assert two.log.log_end_offset == 6 and two.is_withdrawing
    elect(3, 2, replicas, isr=(1, 3))
    catch_up(leader, two)
    assert values(two) == values(three) == {0: b"a", 1: b"b", 2: b"c"}
    assert not two.is_withdrawing


def test_an_in_sync_replica_without_damage_truncates_at_once() -> None:
    _, two, three = replicas = replica(1), replica(2), replica(3)
    leader = elect(1, 0, replicas)
    append(leader, b"a")
    catch_up(leader, three)
    append(leader, b"b")
    catch_up(leader, two)
    two.log.roll(NOW_MS)
    leader = elect(3, 1, replicas)
    assert fetch(leader, two)[1] is FetchOutcome.GO_ON
    assert two.log.log_end_offset == 1 and not two.is_withdrawing


def compacted_and_behind(isr: tuple[int, ...] = (2,)) -> tuple[Partition, Partition]:
    """A follower whose log ends at 4, has been compacted up to 3, and differs from its new leader's from 2
    on; and that leader."""
    one, two = replicas = replica(1), replica(2)
    leader = elect(1, 0, replicas)
    append(leader, b"a")
    append(leader, b"b")
    catch_up(leader, two)
    append(leader, b"c")
    append(leader, b"d")
    one.log.mapped_offset = 3
    return one, elect(2, 1, replicas, isr=isr)


def test_a_log_that_compaction_has_changed_because_of_records_that_go_is_copied_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    follower, leader = compacted_and_behind()
    assert fetch(leader, follower)[1] is FetchOutcome.START_OVER
    assert (follower.log.log_end_offset, follower.high_watermark, follower.log.mapped_offset) == (0, 0, 0)
    assert "Deleting all records of t-0, offsets 0 to 4, and copying them from broker 2 again" in caplog.text
    catch_up(leader, follower)
    assert raw(follower) == raw(leader)


def test_a_log_that_keeps_all_that_compaction_has_looked_at_is_truncated() -> None:
    follower, leader = compacted_and_behind()
    follower.log.mapped_offset = 2
    assert fetch(leader, follower)[1] is FetchOutcome.GO_ON
    assert follower.log.log_end_offset == 2


def test_a_log_that_recovery_has_cut_within_what_compaction_has_looked_at_is_copied_anew() -> None:
    one, two = replicas = replica(1), replica(2)
    leader = elect(1, 0, replicas)
    append(leader, b"a")
    catch_up(leader, two)
    two.log.mapped_offset = 3
    append(leader, b"b")
    elect(1, 1, replicas, isr=(1,))
    assert fetch(leader, two)[1] is FetchOutcome.START_OVER
    assert two.log.log_end_offset == 0
    catch_up(leader, two)
    assert raw(two) == raw(one)


def test_a_replica_that_counts_as_complete_never_empties_its_log() -> None:
    """It might be elected before it has copied the records again."""
    follower, leader = compacted_and_behind(isr=(1, 2))
    assert fetch(leader, follower)[1] is FetchOutcome.GO_ON
    assert follower.log.log_end_offset == 2
    elect(2, 2, [follower, leader], isr=(2,))
    catch_up(leader, follower)
    assert values(follower) == {0: b"a", 1: b"b"}


def test_a_leader_keeps_its_log_whatever_compaction_has_looked_at() -> None:
    one, two = replicas = replica(1), replica(2)
    append(elect(1, 0, replicas), b"a")
    one.log.mapped_offset = 5
    leader = elect(1, 1, replicas, isr=(1,))
    catch_up(leader, two)
    assert values(one) == values(two) == {0: b"a"}
