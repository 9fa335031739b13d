"""Znodes that hold garbage: brokers report them, ignore them while the rest of the cluster works, and use
them again once they are repaired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.coordinator.controller.events import TopicCreation, TopicResult
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.coordinator.zookeeper.interface import Create, Delete, SetData
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.models.world import World
from tests.sim.cluster import Cluster, Machine
from tests.sim.test_start import is_served

GARBAGE = {
    "cut-short": b"{",
    "empty": b"",
    "wrong-shape": b'{"version":1,"partitions":{"0":[]},"config":7,"leader":"x","epochs":4}',
    "not-utf-8": b'\xff\xfe{"version":1}',
    "too-deep": b"[" * 100_000,
    "too-large-numbers": b'{"version":3,"partitions":{"0":[1e40]},"leader":99999999999,"leader_epoch":1,'
    b'"isr":[1],"controller_epoch":1,"brokerid":99999999999,"broker":1,"block_start":"0","block_end":"1e9"}',
}
PATHS = (
    "/brokers/ids/3",
    "/brokers/ids/7",
    "/brokers/ids/not-a-number",
    "/brokers/topics/t",
    "/brokers/topics/t/partitions/0/state",
    "/brokers/topics/t/partitions/not-a-number",
    "/brokers/topics/t/partitions/0",
    "/brokers/topics/not a legal name",
    "/brokers/seqid",
    "/cluster/id",
    "/controller",
    "/controller_epoch",
    "/controller_brokers",
    "/latest_producer_id_block",
    "/config/topics/t",
    "/config/brokers/1",
    "/config/brokers/<default>",
    "/config/changes/config_change_0000099999",
    "/config/changes/zzz",
    "/admin/delete_topics/not a legal name",
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/isr_change_notification/x",
    "/log_dir_event_notification/x",
    "/holdfast/ownership/topics/x",
    "/holdfast/ownership/names/x",
    "/consumers/x",
)
SETS_TOPIC_ASIDE = ("/brokers/topics/t", "/brokers/topics/t/partitions/0/state")


@dataclass
class Stage:
    """Three brokers with the topics `t` and `other`, and an operator who writes to ZooKeeper by hand."""

    world: World
    cluster: Cluster

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        assert self.world.run_until(condition, seconds), "\n".join(list(self.world.trace.lines)[-200:])

    def controller(self) -> ControllerService | None:
        for machine in self.cluster.machines:
            node = None if machine.broker is None else machine.broker.node
            if node is not None and node.cluster.controller.is_active:
                return node.cluster.controller
        return None

    def controlling(self) -> Machine:
        return next(machine for machine in self.cluster.machines if machine.is_controller)

    def _ask(self, ask: Callable[[ControllerService], Any]) -> Any:
        results: list[Any] = []
        self.until(lambda: self.controller() is not None)
        controller = self.controller()
        assert controller is not None
        ask(controller).addBoth(results.append)
        self.until(lambda: bool(results))
        return results[0]

    def create(self, name: str) -> TopicResult:
        topic = TopicCreation(name, partition_count=2, replication_factor=3)
        result: TopicResult = self._ask(lambda controller: controller.create_topics([topic], 30_000))[name]
        return result

    def delete(self, name: str) -> TopicResult:
        result: TopicResult = self._ask(lambda controller: controller.delete_topics([name], 30_000))[name]
        return result

    def write(self, path: str, data: bytes) -> None:
        zookeeper = self.cluster.zookeeper
        zookeeper.write([SetData(path, data) if zookeeper.exists(path) else Create(path, data)], 0)

    def restart_all(self) -> None:
        """Kill every broker and start it again, the controller last, so that another broker is elected."""
        last = self.controlling()
        for machine in [*(each for each in self.cluster.machines if each is not last), last]:
            machine.kill()
            self.world.run(8)  # This is longer than a session timeout.
            machine.start()
            self.until(lambda: any(is_served(each) for each in self.cluster.machines))
        self.until(lambda: self.controller() is not None)

    def leads(self, name: str) -> bool:
        """Whether a partition of the topic has a leader that knows that it is leader."""
        led = [machine.partition((name, 0)) for machine in self.cluster.machines]
        return any(partition is not None and isinstance(partition.role, Leadership) for partition in led)

    def logs_kept(self, name: str) -> bool:
        return all(
            machine.broker is not None
            and machine.broker.node is not None
            and machine.broker.node.replication.logs.find(TopicPartition(name, 0)) is not None
            for machine in self.cluster.machines
        )

    def logged(self, text: str) -> list[str]:
        return [line for line in self.world.trace.lines if text in line]


WORLD_SEED = 11


@pytest.fixture
def stage(world: World) -> Stage:
    return stage_in(world)


def stage_in(world: World) -> Stage:
    """Three brokers that are served, and both topics."""
    stage = Stage(world, Cluster(world, 3))
    stage.cluster.start()
    stage.until(lambda: all(is_served(machine) for machine in stage.cluster.machines))
    for name in ("t", "other"):
        assert stage.create(name).error == ErrorCode.NONE
    stage.until(stage.cluster.is_whole)
    return stage


@pytest.mark.parametrize("path", PATHS)
def test_the_cluster_works_around_a_znode_that_holds_garbage(stage: Stage, path: str) -> None:
    stage.write(path, b"{")
    works_around_garbage(stage)
    if path not in SETS_TOPIC_ASIDE:
        stage.until(lambda: stage.leads("t"))


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE.keys())
def test_the_cluster_works_around_garbage_everywhere(stage: Stage, data: bytes) -> None:
    for path in PATHS:
        stage.write(path, data)
    works_around_garbage(stage)


def works_around_garbage(stage: Stage) -> None:
    stage.restart_all()
    stage.until(lambda: all(is_served(machine) for machine in stage.cluster.machines))
    stage.until(lambda: stage.leads("other"))
    assert stage.create("new").error == ErrorCode.NONE
    stage.until(lambda: stage.leads("new"))
    stage.world.run(5)
    assert stage.logs_kept("t")
    assert stage.logged(" is a stray") == []


@pytest.mark.parametrize("path", SETS_TOPIC_ASIDE)
def test_a_topic_that_cannot_be_read_is_kept_and_served_again_when_it_is_repaired(
    stage: Stage, path: str
) -> None:
    good = stage.cluster.zookeeper.read(path).data
    stage.write(path, b"{")
    stage.write("/admin/delete_topics/t", b"")
    stage.cluster.zookeeper.write([Delete("/admin/delete_topics/t")], 0)
    stage.restart_all()
    stage.until(lambda: all(is_served(machine) for machine in stage.cluster.machines))
    refused = stage.create("t")
    assert refused.error == ErrorCode.TOPIC_ALREADY_EXISTS
    assert refused.message is not None and path in refused.message
    refused = stage.delete("t")
    assert refused.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused.message is not None and path in refused.message
    stage.world.run(30)
    assert stage.cluster.zookeeper.read(path).data == b"{"
    assert stage.logs_kept("t")
    assert not stage.leads("t")
    terms = len(stage.logged("this broker is the controller, epoch"))
    reports = len(stage.logged(f"Cannot read the znode {path}"))
    assert 1 <= reports <= terms
    stage.write(path, b"[]")
    stage.until(lambda: len(stage.logged(f"Cannot read the znode {path}")) == reports + 1)
    stage.write(path, good)
    stage.until(lambda: stage.leads("t"))
    stage.until(stage.cluster.is_whole)
    assert stage.delete("t").error == ErrorCode.NONE
    assert stage.create("t").error == ErrorCode.NONE


def test_an_unreadable_topic_that_is_marked_for_deletion_is_deleted_once_it_is_repaired(stage: Stage) -> None:
    good = stage.cluster.zookeeper.read("/brokers/topics/t").data
    stage.write("/brokers/topics/t", b"{")
    stage.controlling().kill()
    stage.until(lambda: bool(stage.logged("Cannot read the znode /brokers/topics/t")))
    stage.write("/admin/delete_topics/t", b"")
    stage.world.run(10)
    assert stage.cluster.zookeeper.exists("/brokers/topics/t")
    for machine in stage.cluster.machines:
        machine.start()
    stage.until(lambda: all(is_served(machine) for machine in stage.cluster.machines))
    stage.write("/brokers/topics/t", good)
    stage.until(lambda: not stage.cluster.zookeeper.exists("/brokers/topics/t"))
    stage.until(lambda: not stage.cluster.zookeeper.names_below("/admin/delete_topics"))


def test_an_unreadable_topic_that_is_removed_by_hand_can_be_created_again(stage: Stage) -> None:
    stage.write("/brokers/topics/t", b"{")
    stage.controlling().kill()
    stage.until(lambda: bool(stage.logged("Cannot read the znode /brokers/topics/t")))
    for number in ("0", "1"):
        stage.cluster.zookeeper.write([Delete(f"/brokers/topics/t/partitions/{number}/state")], 0)
        stage.cluster.zookeeper.write([Delete(f"/brokers/topics/t/partitions/{number}")], 0)
    stage.cluster.zookeeper.write([Delete("/brokers/topics/t/partitions")], 0)
    stage.cluster.zookeeper.write([Delete("/brokers/topics/t")], 0)
    stage.cluster.start()
    stage.until(lambda: all(is_served(machine) for machine in stage.cluster.machines))
    stage.restart_all()
    stage.until(lambda: all(is_served(machine) for machine in stage.cluster.machines))
    assert stage.create("t").error == ErrorCode.NONE
    stage.until(lambda: stage.leads("t"))


@pytest.mark.parametrize("data", [b"{", b"-1", b"99999999999", None])
def test_a_controller_epoch_that_is_overwritten_is_followed_by_a_higher_one(
    stage: Stage, data: bytes | None
) -> None:
    before = max(state.controller_epoch for state in stage.cluster.states().values())
    if data is None:
        stage.cluster.zookeeper.write([Delete("/controller_epoch")], 0)
    else:
        stage.write("/controller_epoch", data)
    stage.controlling().kill()  # Otherwise its next write would fail and end its term.
    stage.world.run(10)
    stage.cluster.start()
    stage.until(lambda: all(is_served(machine) for machine in stage.cluster.machines))
    assert stage.create("new").error == ErrorCode.NONE
    if data is not None:
        assert int(stage.cluster.zookeeper.read("/controller_epoch").data) > before


@pytest.mark.parametrize("data", [b"{", b"17", None])
def test_a_controller_whose_epoch_is_overwritten_is_elected_again(stage: Stage, data: bytes | None) -> None:
    before = stage.controller()
    assert before is not None
    if data is None:
        stage.cluster.zookeeper.write([Delete("/controller_epoch")], 0)
    else:
        stage.write("/controller_epoch", data)
    topic = TopicCreation("lost", partition_count=1, replication_factor=3)
    before.create_topics([topic], 30_000).addErrback(lambda failure: failure.trap(BrokerError))
    stage.world.run(5)
    assert stage.create("new").error == ErrorCode.NONE


def test_deleting_a_topic_also_deletes_znodes_that_no_broker_made(stage: Stage) -> None:
    stage.write("/brokers/topics/t/partitions/x", b"")
    stage.write("/brokers/topics/other/y", b"")
    for name in ("t", "other"):
        assert stage.delete(name).error == ErrorCode.NONE
    assert not stage.cluster.zookeeper.names_below("/brokers/topics")
