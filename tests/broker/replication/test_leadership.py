"""A leader's in-sync replicas and high watermark, computed from its followers' fetches."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.broker.replication.leadership import REFUSED_PAUSE_MS, IsrProposal, Leadership

LAG_MS = 1000


def leadership(*, replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] = (1, 2, 3)) -> Leadership:
    return Leadership(1, 5, 100, replicas, isr, 7, now_ms=0)


def everyone_lives(broker_id: int) -> bool:
    return True


def test_a_leader_without_followers_commits_its_whole_log() -> None:
    leader = leadership(replicas=(1,), isr=(1,))
    assert leader.committed_offset(150, 150, 0, LAG_MS) == 150


def test_a_record_is_committed_once_every_in_sync_replica_has_it() -> None:
    leader = leadership()
    leader.record_fetch(2, 120, 0, 150, 10)
    assert leader.committed_offset(150, 150, 10, LAG_MS) == -1  # broker 3 has not fetched yet
    leader.record_fetch(3, 110, 0, 150, 10)
    assert leader.committed_offset(150, 150, 10, LAG_MS) == 110
    leader.record_fetch(3, 150, 0, 150, 20)
    assert leader.committed_offset(150, 150, 20, LAG_MS) == 120


def test_a_lagging_replica_outside_the_set_does_not_hold_the_watermark_back() -> None:
    leader = leadership(isr=(1, 2))
    leader.record_fetch(2, 150, 0, 150, 5000)
    leader.record_fetch(3, 20, 0, 150, 5000)
    assert leader.committed_offset(150, 150, 5000, LAG_MS) == 150


def test_a_caught_up_replica_outside_the_in_sync_set_holds_the_watermark_back() -> None:
    leader = leadership(isr=(1, 2))
    leader.record_fetch(3, 150, 0, 150, 10)
    leader.record_fetch(2, 160, 0, 160, 20)
    assert leader.committed_offset(160, 160, 20, LAG_MS) == 150


def test_a_replica_joins_at_the_high_watermark_or_the_start_of_the_epoch_if_later() -> None:
    leader = leadership(isr=(1, 2))
    leader.record_fetch(3, 99, 0, 150, 10)
    assert leader.expanded_isr(3, 90, everyone_lives) is None  # the epoch began at 100
    leader.record_fetch(3, 100, 0, 150, 10)
    assert leader.expanded_isr(3, 120, everyone_lives) is None  # the high watermark is at 120
    leader.record_fetch(3, 120, 0, 150, 10)
    assert leader.expanded_isr(3, 120, lambda broker: False) is None
    assert leader.expanded_isr(3, 120, everyone_lives) == (1, 2, 3)
    assert leader.expanded_isr(2, 120, everyone_lives) is None  # broker 2 is already in sync
    assert leader.expanded_isr(9, 120, everyone_lives) is None  # broker 9 is not a replica


def test_during_a_proposal_the_old_and_the_proposed_in_sync_set_both_count() -> None:
    leader = leadership(isr=(1, 2))
    leader.record_fetch(2, 150, 0, 150, 10)
    leader.record_fetch(3, 130, 0, 150, 10)
    leader.propose((1, 2, 3))
    assert leader.maximal_isr == {1, 2, 3}
    assert leader.isr == (1, 2)
    assert leader.committed_offset(150, 150, 9000, LAG_MS) == 130
    assert leader.shrunken_isr(150, 9000, LAG_MS) is None
    leader.settle((1, 2, 3), 8)
    assert (leader.isr, leader.pending, leader.partition_epoch) == ((1, 2, 3), None, 8)


def test_a_caught_up_replica_refused_by_the_controller_does_not_hold_the_watermark_back() -> None:
    # Controlled shutdown: the controller has removed broker 3, which fetches until its process ends.
    leader = leadership(isr=(1, 2))
    leader.record_fetch(3, 150, 0, 150, 10)
    leader.propose((1, 2, 3))
    leader.record_fetch(2, 160, 0, 160, 20)
    assert leader.committed_offset(160, 160, 20, LAG_MS) == 150
    leader.withdraw()
    assert leader.committed_offset(160, 160, 20, LAG_MS) == 160


def test_a_replica_not_known_to_be_live_neither_joins_nor_holds_the_watermark_back() -> None:
    leader = leadership(isr=(1, 2))
    leader.record_fetch(3, 150, 0, 150, 10)
    assert leader.expanded_isr(3, 120, lambda broker: False) is None
    leader.record_fetch(2, 160, 0, 160, 20)
    assert leader.committed_offset(160, 160, 20, LAG_MS) == 160
    leader.record_fetch(3, 160, 0, 160, 30)
    assert leader.expanded_isr(3, 160, everyone_lives) == (1, 2, 3)


def test_a_replica_that_dies_before_it_joins_does_not_hold_the_watermark_back() -> None:
    living = {2, 3}
    leader = Leadership(1, 5, 100, (1, 2, 3), (1, 2), 7, now_ms=0, is_live=living.__contains__)
    leader.record_fetch(2, 150, 0, 150, 10)
    leader.record_fetch(3, 140, 0, 150, 10)
    assert leader.committed_offset(150, 150, 10, LAG_MS) == 150
    # Broker 3 has reached the log end of its previous fetch, but not the current high watermark.
    leader.record_fetch(2, 160, 0, 160, 20)
    leader.record_fetch(3, 150, 0, 160, 20)
    assert leader.expanded_isr(3, 155, everyone_lives) is None
    assert leader.committed_offset(160, 160, 20, LAG_MS) == 150
    living.remove(3)
    assert leader.committed_offset(160, 160, 30, LAG_MS) == 160


def test_a_refused_replica_is_proposed_again_after_a_pause_or_a_new_registration() -> None:
    leader = leadership(isr=(1, 2))
    leader.record_fetch(3, 150, 0, 150, 10, broker_epoch=8)
    leader.propose((1, 2, 3))
    leader.withdraw()
    leader.record_fetch(3, 150, 0, 150, 9 + REFUSED_PAUSE_MS, broker_epoch=8)
    assert leader.expanded_isr(3, 120, everyone_lives) is None
    leader.record_fetch(3, 150, 0, 150, 10 + REFUSED_PAUSE_MS, broker_epoch=8)
    assert leader.expanded_isr(3, 120, everyone_lives) == (1, 2, 3)
    leader.propose((1, 2, 3))
    leader.withdraw()
    leader.record_fetch(3, 150, 0, 150, 11 + REFUSED_PAUSE_MS, broker_epoch=9)
    assert leader.expanded_isr(3, 120, everyone_lives) == (1, 2, 3)


def test_a_replica_refused_before_it_joined_holds_the_watermark_back_after_it_leaves() -> None:
    leader = leadership(isr=(1, 2))
    leader.record_fetch(3, 150, 0, 150, 10)
    leader.propose((1, 2, 3))
    leader.withdraw()
    leader.propose((1, 2, 3))
    leader.settle((1, 2, 3), 8)
    leader.record_fetch(3, 160, 0, 160, 20)
    leader.settle((1, 2), 9)
    leader.record_fetch(2, 170, 0, 170, 30)
    assert leader.committed_offset(170, 170, 30, LAG_MS) == 160


def test_a_proposed_shrink_takes_effect_when_the_controller_has_written_it() -> None:
    leader = leadership()
    leader.record_fetch(2, 150, 0, 150, 4000)
    leader.record_fetch(3, 110, 0, 150, 10)
    assert leader.shrunken_isr(150, 500, LAG_MS) is None
    shrunken = leader.shrunken_isr(150, 4000, LAG_MS)
    assert shrunken == (1, 2)
    leader.propose(shrunken)
    assert leader.committed_offset(150, 150, 4000, LAG_MS) == 110
    leader.settle(shrunken, 8)
    assert leader.committed_offset(150, 150, 4000, LAG_MS) == 150


def test_a_follower_that_reaches_each_previous_log_end_stays_in_sync() -> None:
    leader = leadership()
    for step in range(1, 20):
        # Broker 2 always fetches from the leader's log end at its previous fetch.
        leader.record_fetch(2, 100 + 10 * (step - 1), 0, 100 + 10 * step, 600 * step)
        leader.record_fetch(3, 100, 0, 100 + 10 * step, 600 * step)
    assert leader.shrunken_isr(290, 600 * 19, LAG_MS) == (1, 2)


def test_an_answer_with_an_older_partition_epoch_is_ignored() -> None:
    leader = leadership()
    assert not leader.settle((1,), 6)
    assert leader.isr == (1, 2, 3)


def test_a_known_state_does_not_decide_a_pending_proposal() -> None:
    leader = leadership(isr=(1, 2))
    leader.propose((1, 2, 3))
    assert not leader.settle((1, 2), 7)
    assert leader.maximal_isr == {1, 2, 3}


def test_a_later_state_decides_a_pending_proposal_whatever_its_set() -> None:
    leader = leadership(isr=(1, 2))
    leader.propose((1, 2, 3))
    assert leader.settle((1,), 8)
    assert (leader.maximal_isr, leader.pending) == ({1}, None)


def test_only_the_proposal_that_is_pending_now_is_pending() -> None:
    leader = leadership(isr=(1, 2))
    proposal = IsrProposal("t", 0, 5, 7, (1, 2, 3), (-1, -1, -1))
    assert not leader.is_pending(proposal)
    leader.propose((1, 2, 3))
    assert leader.is_pending(proposal)
    assert not leader.is_pending(replace(proposal, leader_epoch=4))
    leader.settle((1, 2), 8)
    leader.propose((1, 2, 3))
    assert not leader.is_pending(proposal)
    assert leader.is_pending(replace(proposal, partition_epoch=8))


def test_a_new_assignment_keeps_the_state_of_remaining_replicas() -> None:
    leader = leadership()
    leader.record_fetch(2, 150, 0, 150, 10)
    leader.set_replicas((1, 2, 4), 20)
    assert leader.remotes[2].log_end_offset == 150
    assert leader.remotes[4].log_end_offset == -1
    assert 3 not in leader.remotes


def test_the_low_watermark_is_the_lowest_log_start_of_the_replicas_that_are_live_or_in_sync() -> None:
    leader = leadership(isr=(1, 2))
    leader.record_fetch(2, 150, 30, 150, 10)
    assert leader.low_watermark(40, everyone_lives) == -1  # broker 3 has not fetched yet
    assert leader.low_watermark(40, lambda broker: broker == 2) == 30
    assert leader.low_watermark(20, lambda broker: broker == 2) == 20
    assert leader.low_watermark(40, lambda broker: False) == 30  # broker 2 is dead, and might lead next
    leader.settle((1,), 8)
    assert leader.low_watermark(40, lambda broker: False) == 40


FETCHES = st.lists(
    st.tuples(st.sampled_from((2, 3)), st.integers(0, 60), st.integers(0, 5), st.integers(0, 400)),
    max_size=60,
)


@given(isr=st.sets(st.sampled_from((2, 3))), fetches=FETCHES)
def test_the_committed_offset_never_exceeds_the_log_end_of_an_in_sync_replica(
    isr: set[int], fetches: list[tuple[int, int, int, int]]
) -> None:
    leader = leadership(isr=(1, *sorted(isr)))
    end_offset, now_ms = 0, 0
    for replica, behind, appended, passed_ms in fetches:
        end_offset += appended
        now_ms += passed_ms
        leader.record_fetch(replica, max(0, end_offset - behind), 0, end_offset, now_ms)
        proposal = leader.expanded_isr(replica, 0, everyone_lives) or leader.shrunken_isr(
            end_offset, now_ms, LAG_MS
        )
        if proposal is not None:
            leader.propose(proposal)
        committed = leader.committed_offset(end_offset, end_offset, now_ms, LAG_MS)
        assert committed <= end_offset
        for member in leader.maximal_isr - {1}:
            assert committed <= leader.remotes[member].log_end_offset
        if proposal is not None and passed_ms % 2:
            leader.settle(proposal, leader.partition_epoch + 1)
