"""Leader election, as tables and as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.coordinator.controller.election import (
    ElectedLeader,
    ReplicaEnd,
    elect_after_failure,
    elect_for_controlled_shutdown,
    elect_for_new_partition,
    elect_for_reassignment,
    elect_longest,
    elect_preferred,
    isr_without,
)

NOBODY = None


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "elected"),
    [
        ((1, 2, 3), (1, 2, 3), (2, 3), ElectedLeader(2, (2, 3))),
        ((1, 2, 3), (3, 1), (2, 3), ElectedLeader(3, (3,))),
        ((1, 2, 3), (1,), (2, 3), NOBODY),
        ((1, 2), (1, 2), (), NOBODY),
    ],
)
def test_election_after_a_failure(
    replicas: tuple[int, ...], isr: tuple[int, ...], live: tuple[int, ...], elected: ElectedLeader | None
) -> None:
    assert elect_after_failure(replicas, isr, live) == elected


@pytest.mark.parametrize(
    ("ends", "last_known_leader", "leader"),
    [
        ({1: ReplicaEnd(5, 80), 2: ReplicaEnd(5, 90), 3: ReplicaEnd(5, 85)}, 1, 2),
        ({1: ReplicaEnd(5, 100), 2: ReplicaEnd(6, 90), 3: ReplicaEnd(-1, 0)}, 1, 2),
        ({1: ReplicaEnd(5, 90), 2: ReplicaEnd(5, 90), 3: ReplicaEnd(5, 90)}, 3, 3),
        ({1: ReplicaEnd(5, 80), 2: ReplicaEnd(5, 90), 3: ReplicaEnd(5, 90)}, -1, 3),
        ({1: ReplicaEnd(5, 80)}, 2, 1),
    ],
)
def test_the_longest_log_leads(ends: dict[int, ReplicaEnd], last_known_leader: int, leader: int) -> None:
    assert elect_longest((1, 3, 2), ends, last_known_leader) == ElectedLeader(leader, (leader,), unclean=True)


def test_no_log_leads_that_is_not_a_replicas() -> None:
    assert elect_longest((1, 2), {3: ReplicaEnd(5, 90)}, 3) is NOBODY


def test_a_new_partition_is_led_by_its_first_live_replica_and_all_live_are_in_sync() -> None:
    assert elect_for_new_partition((3, 1, 2), (1, 2)) == ElectedLeader(1, (1, 2))
    assert elect_for_new_partition((3, 1, 2), ()) is NOBODY


def test_the_preferred_leader_must_be_alive_and_in_sync() -> None:
    assert elect_preferred((1, 2), (2, 1), (1, 2)) == ElectedLeader(1, (2, 1))
    assert elect_preferred((1, 2), (2,), (1, 2)) is NOBODY
    assert elect_preferred((1, 2), (1, 2), (2,)) is NOBODY


def test_a_reassignment_elects_a_leader_from_its_target() -> None:
    assert elect_for_reassignment((4, 3), (1, 3), (1, 3, 4)) == ElectedLeader(3, (1, 3))
    assert elect_for_reassignment((4, 3), (1,), (1, 3, 4)) is NOBODY


def test_a_broker_in_controlled_shutdown_leaves_the_in_sync_set() -> None:
    assert elect_for_controlled_shutdown((1, 2, 3), (1, 2, 3), (2, 3), (1,)) == ElectedLeader(2, (2, 3))
    assert elect_for_controlled_shutdown((1, 2), (1,), (2,), (1,)) is NOBODY


def test_an_in_sync_set_whose_members_have_all_gone_stays_unchanged() -> None:
    assert isr_without((1, 2, 3), (2,)) == (1, 3)
    assert isr_without((1, 2), (3,)) == (1, 2)
    assert isr_without((1, 2), (1, 2)) == (1, 2)


MEMBERS = st.lists(st.integers(1, 6), unique=True, min_size=1)


@given(replicas=MEMBERS, in_sync=st.sets(st.integers(1, 6), min_size=1), live=st.sets(st.integers(1, 6)))
def test_a_clean_election_never_loses_a_committed_record(
    replicas: list[int], in_sync: set[int], live: set[int]
) -> None:
    isr = tuple(replica for replica in replicas if replica in in_sync)
    elected = elect_after_failure(replicas, isr, live)
    if elected is None:
        assert not live & set(isr)
    else:
        assert elected.leader in isr
        assert elected.leader in live
        assert elected.leader in elected.isr
        assert set(elected.isr) <= set(isr) & live
