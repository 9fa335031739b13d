"""Rounds that look for lagging followers: a bounded number of partitions in each turn of the reactor."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from holdfast_log.broker.replication import in_sync_changes
from holdfast_log.broker.replication.in_sync_changes import LOOKED_AT_TOGETHER
from holdfast_log.broker.replication.leadership import IsrProposal
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from tests.broker.replication.replica_logs import replica
from tests.broker.world import LAG_MS, World

COUNT = 3 * LOOKED_AT_TOGETHER + 7


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A broker that leads many partitions, whose followers lag."""
    world = World(tmp_path)
    log = replica(1).log
    for number in range(COUNT):
        partition = Partition("t", number, uuid.UUID(int=7), 1, log)
        partition.lead(LeaderAndIsr(1, 0, (1, 2, 3), 0, (1, 2, 3)), world.replicas.monotonic_ms())
        world.replicas.add(partition)
    world.clock.advance(2 * LAG_MS / 1000)
    return world


@pytest.fixture
def turns(world: World) -> Iterator[list[int]]:
    """How many partitions each turn of the reactor has looked at."""
    shrink, counts = in_sync_changes.shrink, [0]

    def counted(partition: Partition, now_ms: int, lag_ms_max: int) -> IsrProposal | None:
        counts[-1] += 1
        return shrink(partition, now_ms, lag_ms_max)

    with mock.patch.object(in_sync_changes, "shrink", counted):
        yield counts


def turn(world: World, turns: list[int]) -> None:
    """One turn of the reactor: what is put off in it until later, runs in none of its own calls."""
    turns.append(0)
    due = [call for call in world.clock.calls if call.getTime() <= world.clock.seconds()]
    for call in due:
        world.clock.calls.remove(call)
        call.called = 1
        call.func(*call.args, **call.kw)


def test_many_partitions_are_looked_at_in_turns(world: World, turns: list[int]) -> None:
    world.replicas.shrink_in_sync_sets()
    for _ in range(5):
        turn(world, turns)
    assert turns == [*[LOOKED_AT_TOGETHER] * 3, 7, 0, 0]
    assert sorted(each.partition for each in world.proposals) == list(range(COUNT))
    assert {each.isr for each in world.proposals} == {(1,)}


def test_a_round_goes_on_where_the_next_one_is_due(world: World, turns: list[int]) -> None:
    world.replicas.shrink_in_sync_sets()
    world.replicas.shrink_in_sync_sets()
    for _ in range(4):
        turn(world, turns)
    assert sum(turns) == len(world.proposals) == COUNT


def test_a_partition_that_was_deleted_meanwhile_is_not_looked_at(world: World, turns: list[int]) -> None:
    world.replicas.shrink_in_sync_sets()
    world.replicas.partition("t", COUNT - 1).is_deleted = True
    for _ in range(4):
        turn(world, turns)
    assert sum(turns) == len(world.proposals) == COUNT - 1


def test_a_broker_that_stops_proposes_nothing_more(world: World, turns: list[int]) -> None:
    world.replicas.shrink_in_sync_sets()
    world.replicas.stop()
    turn(world, turns)
    assert turns == [LOOKED_AT_TOGETHER, 0]
