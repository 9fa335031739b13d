"""A leader whose followers are all away serves what it knew to be committed before it was stopped."""

from __future__ import annotations

import pytest

from holdfast_log.broker.log.names import HIGH_WATERMARKS
from holdfast_log.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.models.world import World
from tests.sim.cluster import LOG_DIRECTORIES, Machine
from tests.sim.history import Incarnation
from tests.sim.lone_leader import Asker
from tests.sim.test_cluster import AT, Stage
from tests.sim.test_stop import stop

WORLD_SEED = 3
LONE = range(1, 4)


def stage_with_records(world: World) -> Stage:
    """Three brokers with acknowledged records, all of which every broker knows to be committed."""
    stage = Stage(world, 3, {"min.insync.replicas": "2"})
    acknowledged = stage.produce(2)
    assert acknowledged > 20
    stage.until(lambda: {known(machine) for machine in stage.cluster.machines} == {acknowledged})
    return stage


def known(machine: Machine) -> int:
    """The high watermark that a broker knows; -1 if it has no replica."""
    partition = machine.partition(AT)
    return -1 if partition is None else partition.high_watermark


def checkpointed(machine: Machine) -> int:
    """The high watermark in a machine's checkpoints; -1 if there is none."""
    lines = [
        line.split()
        for directory in LOG_DIRECTORIES
        for line in (machine.disk.peek(f"{directory}/{HIGH_WATERMARKS}") or b"").decode().splitlines()
    ]
    return next((int(line[2]) for line in lines if line[:2] == [AT[0], str(AT[1])]), -1)


@pytest.mark.parametrize("world", LONE, indirect=True)
@pytest.mark.parametrize("lone", [2, 3])
def test_the_only_broker_that_is_back_after_an_orderly_stop_of_all_serves_every_record(
    world: World, lone: int
) -> None:
    """Too few replicas are in sync to commit anything: the leader can serve only what it remembers. The
    broker that was stopped last is in sync; it has left the one before it eligible."""
    stage = stage_with_records(world)
    for broker_id in (1, 2, 3):
        stop(stage, broker_id)
    stage.cluster.machine(lone).start()
    stage.until(lambda: stage.leader() == lone)
    consumer = stage.consumer()
    stage.until(lambda: stage.has_read(consumer) == stage.acknowledged())
    assert stage.cluster.states()[AT].isr == (lone,)
    assert stage.history.violations == []


@pytest.mark.parametrize("world", LONE, indirect=True)
def test_a_broker_that_is_killed_before_it_has_a_role_forgets_nothing(world: World) -> None:
    """Its periodic checkpoint must keep the entries of partitions that the controller has not assigned."""
    stage = stage_with_records(world)
    machine = next(each for each in stage.cluster.machines if each.broker_id != stage.leader())
    stop(stage, machine.broker_id)
    for other in stage.cluster.machines:
        if other is not machine:
            stage.cluster.network.cut(other.name, machine.name)
    machine.start()
    world.run(8)  # The checkpoint of high watermarks is written every two seconds.
    assert machine.partitions() == []
    machine.kill()
    assert checkpointed(machine) == stage.acknowledged()


def test_killed_brokers_know_what_was_committed_when_they_wrote_their_last_checkpoints(world: World) -> None:
    stage = stage_with_records(world)
    world.run(3)  # The checkpoint is written every two seconds.
    for machine in stage.cluster.machines:
        machine.kill()
    assert {checkpointed(machine) for machine in stage.cluster.machines} == {stage.acknowledged()}
    lone = stage.cluster.machine(stage.leader())
    lone.start()
    stage.until(lambda: known(lone) == stage.acknowledged())
    consumer = stage.consumer()
    stage.until(lambda: stage.has_read(consumer) == stage.acknowledged())
    assert stage.history.violations == []


@pytest.fixture
def asker(world: World) -> Asker:
    """A client that asks a broker for the last record of two partitions, of which it knows 5 and 7."""
    stage = Stage(world, 1, {})
    asker = Asker(stage.around, "asker", stage.cluster.machines[0])
    asker.missing.update({Incarnation(("t", 0)): 5, Incarnation(("t", 1)): 7})
    return asker


def answer(asker: Asker, *records: bytes, throttle_time_ms: int = 0) -> None:
    """Give the client the records of the partitions that it has asked for."""
    rows = [
        PartitionData(
            partition_index=place.at[1], error_code=0, high_watermark=known, records=memoryview(each)
        )
        for (place, known), each in zip(asker.missing.items(), records, strict=True)
    ]
    topic = FetchableTopicResponse(topic="t", topic_id=next(iter(asker.missing)).topic_id, partitions=rows)
    response = FetchResponse(throttle_time_ms=throttle_time_ms, responses=[topic])
    asker.process.run(asker._answered, response, dict.fromkeys(asker.missing, 4))


def test_a_response_that_a_quota_has_kept_short_is_asked_for_again(asker: Asker) -> None:
    answer(asker, b"", b"", throttle_time_ms=3)
    answer(asker, b"record", b"")
    assert list(asker.missing) == [Incarnation(("t", 1))]
    answer(asker, b"record")
    assert not asker.missing and not asker.history.violations


def test_a_partition_without_records_in_a_response_that_has_none_at_all_is_found(asker: Asker) -> None:
    answer(asker, b"record", b"")
    answer(asker, b"")
    assert not asker.missing
    (found,) = asker.history.violations
    assert "t-1: broker 1 leads alone, in epoch 4, and serves nothing at 6, its high watermark is 7" in found
