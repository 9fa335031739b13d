"""Writes and groups while brokers cannot reach ZooKeeper: what all replicas in sync have is acknowledged, if
there are several; what the leader alone has is not."""

from __future__ import annotations

from typing import Any

from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC, partition_of_group
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.models.batches import batch
from tests.models.world import World
from tests.sim.client import Client
from tests.sim.cluster import SESSION_TIMEOUT_MS, Machine
from tests.sim.test_cluster import AT
from tests.sim.test_last_replica import Trio

WORLD_SEED = 5
_UNCLEAN = 1
_GROUP = "g"


class Writer(Client):
    """A client that asks one broker, whatever the metadata say, and may stop waiting for the answer."""

    def produce(self, machine: Machine, value: bytes, timeout_ms: int = 60_000) -> list[Any]:
        """Produce one record with acks=all; the list gets its error code."""
        data = PartitionProduceData(index=AT[1], records=batch(value))
        topics = [TopicProduceData(name=AT[0], partition_data=[data])]
        codes: list[Any] = []
        self.send(
            machine.address, ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=topics)
        ).addCallback(
            lambda answer: codes.append(ErrorCode(answer.responses[0].partition_responses[0].error_code))
        )
        return codes

    def commit(self, machine: Machine, offset: int) -> list[Any]:
        wanted = OffsetCommitRequestPartition(
            partition_index=AT[1], committed_offset=offset, committed_metadata=""
        )
        topics = [OffsetCommitRequestTopic(name=AT[0], partitions=[wanted])]
        codes: list[Any] = []
        self.send(
            machine.address, OffsetCommitRequest(group_id=_GROUP, member_id="", topics=topics)
        ).addCallback(lambda answer: codes.append(ErrorCode(answer.topics[0].partitions[0].error_code)))
        return codes

    def committed(self, machine: Machine) -> list[Any]:
        """The list gets the group's error, or its committed offset."""
        topics = [OffsetFetchRequestTopics(name=AT[0], partition_indexes=[AT[1]])]
        groups = [OffsetFetchRequestGroup(group_id=_GROUP, topics=topics)]
        found: list[Any] = []

        def note(answer: Any) -> None:
            (group,) = answer.groups
            error = ErrorCode(group.error_code)
            found.append(error or group.topics[0].partitions[0].committed_offset)

        self.send(machine.address, OffsetFetchRequest(groups=groups)).addCallback(note)
        return found


class Away:
    """Three brokers and a client, with a leader that will be cut off."""

    def __init__(self, world: World, min_in_sync: int = 2) -> None:
        self.world = world
        self.trio = Trio(world, min_in_sync)
        self.stage = self.trio.stage
        self.zookeeper = self.stage.cluster.zookeeper
        self.leader = self.trio.leader
        self.writer = Writer(self.stage.around, "w0")
        self.writer.start()

    def coordinator(self) -> Machine:
        """The group's coordinator, once its partition is replicated."""
        found: list[Any] = []

        def ask() -> bool:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[_GROUP])
            self.writer.send(self.leader.address, request).addCallback(found.append)
            return bool(found) and found[-1].coordinators[0].error_code == ErrorCode.NONE

        self.stage.until(ask, 60)
        return self.stage.cluster.machine(found[-1].coordinators[0].node_id)

    def has_no_lease(self, machine: Machine) -> bool:
        return not machine.broker.node.cluster.lease.is_held()

    def elect_uncleanly(self) -> Machine:
        """Have the controller elect a replica out of sync. Returns its machine."""
        self.stage.until(lambda: any(each.is_controller for each in self.trio.others))
        controller = next(each for each in self.trio.others if each.is_controller)
        topics = [TopicPartitions(topic=AT[0], partitions=[AT[1]])]
        request = ElectLeadersRequest(election_type=_UNCLEAN, topic_partitions=topics, timeout_ms=5000)
        self.writer.send(controller.address, request)
        self.stage.until(lambda: self.stage.leader() not in (-1, self.leader.broker_id))
        return self.stage.cluster.machine(self.stage.leader())

    def cut_off_brokers(self) -> None:
        network = self.stage.cluster.network
        for other in self.trio.others:
            network.cut(self.leader.name, other.name)
            network.cut(other.name, self.leader.name)


def test_acks_all_is_served_while_zookeeper_is_away(world: World) -> None:
    away = Away(world)
    away.zookeeper.stop()
    world.run(2 * SESSION_TIMEOUT_MS / 1000)
    assert away.has_no_lease(away.leader)
    before = away.stage.acknowledged()
    after = away.stage.produce(5)
    assert after - before > 20
    away.zookeeper.wake()
    away.trio.keeps_everything()


def test_a_leader_alone_in_sync_acknowledges_only_with_its_lease(world: World) -> None:
    away = Away(world, min_in_sync=1)
    away.trio.pause_followers()
    away.zookeeper.stop()
    world.run(0.5)
    served = away.writer.produce(away.leader, b"with the lease")
    world.run(1)
    assert served == [ErrorCode.NONE]
    away.stage.until(lambda: away.has_no_lease(away.leader))
    refused = away.writer.produce(away.leader, b"without")
    world.run(1)
    assert refused == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    away.zookeeper.wake()
    away.stage.until(lambda: not away.has_no_lease(away.leader))
    world.run(2)
    served = away.writer.produce(away.leader, b"with the lease again")
    world.run(1)
    assert served == [ErrorCode.NONE]


def test_a_leader_alone_in_sync_that_was_replaced_uncleanly_acknowledges_nothing(world: World) -> None:
    """An operator had another replica elected, and each write that the former leader acknowledges is lost."""
    away = Away(world, min_in_sync=1)
    away.trio.pause_followers()
    away.cut_off_brokers()
    away.leader.cut_off_zookeeper()
    for other in away.trio.others:
        other.resume()
    away.stage.until(lambda: away.stage.leader() == -1)
    away.elect_uncleanly()
    codes = away.writer.produce(away.leader, b"lost")
    world.run(5)
    assert ErrorCode.NONE not in codes


def test_writers_leave_a_leader_whose_followers_have_left(world: World) -> None:
    """It is cut off from ZooKeeper alone, and does not learn that another broker leads."""
    away = Away(world)
    away.leader.cut_off_zookeeper()
    waiting: list[list[Any]] = []

    def replaced() -> bool:
        waiting.append(away.writer.produce(away.leader, b"x"))
        return away.stage.leader() not in (-1, away.leader.broker_id)

    away.stage.until(replaced)
    world.run(4)
    assert all(waiting), "each was answered"
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER in waiting[-1]
    late = away.writer.produce(away.leader, b"y")
    world.run(0.5)
    assert late == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    away.stage.produce(2)
    away.trio.keeps_everything()


def test_a_group_is_served_while_zookeeper_is_away(world: World) -> None:
    away = Away(world)
    coordinator = away.coordinator()
    away.stage.until(lambda: away.writer.commit(coordinator, 5) is not None and away.stage.cluster.is_whole())
    world.run(3)
    away.zookeeper.stop()
    away.stage.until(lambda: away.has_no_lease(coordinator))
    world.run(SESSION_TIMEOUT_MS / 1000)
    done = away.writer.commit(coordinator, 6)
    world.run(2)
    assert done == [ErrorCode.NONE]
    read = away.writer.committed(coordinator)
    world.run(2)
    assert read == [6]
    away.zookeeper.wake()
    world.run(5)
    read = away.writer.committed(away.coordinator())
    world.run(2)
    assert read == [6]


def test_a_coordinator_that_was_replaced_returns_no_offset(world: World) -> None:
    """Its successor has accepted a later commit, which it does not know of. It was asked before its followers
    had left it for long."""
    away = Away(world)
    former = away.coordinator()
    done = away.writer.commit(former, 5)
    world.run(3)
    assert done == [ErrorCode.NONE]
    former.cut_off_zookeeper()
    states = away.stage.cluster.states
    partitions = sum(topic == OFFSETS_TOPIC for topic, _ in states())
    at = (OFFSETS_TOPIC, partition_of_group(_GROUP, partitions))
    away.stage.until(lambda: states()[at].leader not in (-1, former.broker_id))
    present = away.stage.cluster.machine(states()[at].leader)
    world.run(0.5)
    done = away.writer.commit(present, 6)
    world.run(0.5)
    assert done == [ErrorCode.NONE]
    read = away.writer.committed(former)
    world.run(10)
    assert read and read[0] != 5
