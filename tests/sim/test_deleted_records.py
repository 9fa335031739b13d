"""An operator deletes records while brokers fail: a follower whose log ends before the leader's new log start
offset continues from that offset."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.models.world import World
from tests.sim.client import Client
from tests.sim.cluster import Machine
from tests.sim.test_cluster import AT, Stage

SEEDS = range(1, 4)


class Deleter(Client):
    """Deletes the partition's records before an offset, and repeats the request until it succeeds."""

    offset = 0
    low_watermark = -1

    def delete(self, offset: int) -> None:
        self.offset, self.low_watermark = offset, -1
        self.process.run(self._ask)

    @property
    def is_done(self) -> bool:
        return self.low_watermark >= self.offset

    def _ask(self) -> None:
        leader = self.leader_of(AT)
        if leader is None:
            self._ask_again()
            return
        wanted = DeleteRecordsPartition(partition_index=AT[1], offset=self.offset)
        topic = DeleteRecordsTopic(name=AT[0], partitions=[wanted])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        self.send(leader[0], request).addCallbacks(self._answered, lambda failure: self._ask_again())

    def _answered(self, response: DeleteRecordsResponse) -> None:
        row = response.topics[0].partitions[0]
        if row.error_code == ErrorCode.NONE:
            self.low_watermark = row.low_watermark
        else:
            self._ask_again()

    def _ask_again(self) -> None:
        self.refresh()
        self.later(0.3, self._ask)


class Trio:
    """Three brokers with some records, and a client that deletes them."""

    def __init__(self, world: World, **configs: str) -> None:
        self.world = world
        usual = {"min.insync.replicas": "2", "segment.bytes": "1024", "file.delete.delay.ms": "100"}
        self.stage = Stage(world, 3, usual | configs)
        self.stage.produce(5)
        self.deleter = Deleter(self.stage.around, "deleter")
        self.deleter.start()
        world.run(1)

    def leader(self) -> Machine:
        return self.stage.cluster.machine(self.stage.leader())

    def follower(self) -> Machine:
        leader = self.stage.leader()
        return next(each for each in self.stage.cluster.machines if each.broker_id != leader)

    def has_left(self, machine: Machine) -> bool:
        return machine.broker_id not in self.stage.cluster.states()[AT].isr

    def high_watermark(self) -> int:
        partition = self.leader().partition(AT)
        assert partition is not None
        return partition.high_watermark

    def ends(self) -> dict[str, tuple[int, int]]:
        """The log start offset and the log end offset of each replica."""
        found = {}
        for machine in self.stage.cluster.machines:
            partition = machine.partition(AT)
            assert partition is not None
            found[machine.name] = (partition.log.log_start_offset, partition.log.log_end_offset)
        return found

    def heal(self) -> int:
        """Mend the cluster, and check that all replicas are in sync, have the same log start and log end and
        the same records. Returns their log start offset."""
        self.stage.cluster.mend()
        self.stage.until(self.stage.cluster.is_whole, 60)
        self.stage.until(lambda: self.deleter.is_done)
        self.stage.until(lambda: self.stage.producer.is_idle)
        self.stage.until(lambda: len(set(self.ends().values())) == 1)
        ((first, end),) = set(self.ends().values())
        stored = [machine.stored(AT) for machine in self.stage.cluster.machines]
        kept = [{offset: log.values[offset] for offset in range(first, end)} for log in stored]
        assert kept[0] == kept[1] == kept[2]
        assert self.stage.history.violations == []
        return first


@pytest.mark.parametrize("world", SEEDS, indirect=True)
@pytest.mark.parametrize("end", [Machine.kill, Machine.lose_power])
def test_a_returning_follower_starts_at_the_leaders_new_log_start(
    world: World, end: Callable[[Machine], None]
) -> None:
    """While the follower is away, the operator deletes every record that it has, and later ones."""
    trio = Trio(world)
    away = trio.follower()
    end(away)
    trio.stage.until(lambda: trio.has_left(away))
    trio.stage.produce(5)
    start = trio.high_watermark() - 1
    trio.deleter.delete(start)
    trio.stage.until(lambda: trio.deleter.is_done)
    away.start()
    assert trio.heal() == start


@pytest.mark.parametrize("world", SEEDS, indirect=True)
def test_all_replicas_agree_on_the_log_start_after_the_leader_fails_during_a_deletion(world: World) -> None:
    trio = Trio(world)
    slow = trio.follower()
    slow.pause()
    start = trio.high_watermark() // 2
    trio.deleter.delete(start)
    world.run(0.2)
    trio.leader().kill()
    world.run(1)
    assert trio.heal() == start


@pytest.mark.parametrize("world", SEEDS, indirect=True)
@pytest.mark.parametrize(
    ("end", "is_flushed"), [(Machine.kill, "false"), (Machine.kill, "true"), (Machine.lose_power, "true")]
)
def test_a_deletion_that_a_client_was_told_of_outlives_the_end_of_all_brokers(
    world: World, end: Callable[[Machine], None], is_flushed: str
) -> None:
    """If all lose power, only what was flushed before it was acknowledged is certain to remain."""
    trio = Trio(world, **{"flush.before.ack": is_flushed})
    start = trio.high_watermark() // 2
    trio.deleter.delete(start)
    trio.stage.until(lambda: trio.deleter.is_done)
    for machine in trio.stage.cluster.machines:
        end(machine)
    world.run(1)
    assert trio.heal() == start


@pytest.mark.parametrize("world", SEEDS, indirect=True)
def test_a_follower_that_returns_behind_the_log_start_can_lead_afterwards(world: World) -> None:
    trio = Trio(world)
    away = trio.follower()
    away.kill()
    trio.stage.until(lambda: trio.has_left(away))
    trio.stage.produce(5)
    start = trio.high_watermark()
    trio.deleter.delete(start)
    trio.stage.until(lambda: trio.deleter.is_done)
    away.start()
    trio.stage.until(trio.stage.cluster.is_whole, 60)
    for machine in trio.stage.cluster.machines:
        if machine is not away:
            machine.kill()
    trio.stage.until(lambda: trio.stage.leader() == away.broker_id)
    world.run(2)
    assert trio.heal() == start
