"""Requests that arrive as znodes: in the machine, and on a real server as older tools write them."""

from __future__ import annotations

import json

import pytest

from holdfast_log.coordinator.cluster.log_dir_events import LogDirEvents
from holdfast_log.coordinator.controller.effects import RemoveZnodeRequests, ZnodeRequest
from holdfast_log.coordinator.controller.events import TopicCreation, ZnodeRequested
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.znodes.admin import (
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    decode_reassignment,
    delete_topic_path,
    encode_preferred_election,
)
from holdfast_log.coordinator.znodes.log_dir_events import LOG_DIR_EVENTS
from holdfast_log.coordinator.znodes.topics import PartitionState, decode_topic, topic_path
from holdfast_log.coordinator.zookeeper.interface import NoNode
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.coordinator.controller.machine import led, sent_to, with_topic, writes
from tests.coordinator.controller.test_service import TIMEOUT_MS, create, state_of
from tests.coordinator.members import Member, Members, cluster
from tests.reactor import on_reactor, until


def test_a_preferred_election_requested_in_zookeeper_is_performed_and_removed() -> None:
    machine = with_topic(1, 2)
    machine.lose(1)
    machine.start(1)
    machine.propose("t", 2, 1)
    machine.store.znode_requests[ZnodeRequest.ELECTION] = [("t", 0), ("none", 0)]
    effects = machine.handle(ZnodeRequested(ZnodeRequest.ELECTION))
    assert machine.state("t").leader == 1
    # The znode is removed after the election, not before.
    assert [type(effect).__name__ for effect in effects] == [
        "ReadZnodeRequest",
        "WriteStates",
        "RemoveZnodeRequests",
        "SendToBrokers",
    ]
    assert machine.store.removed_requests == [PREFERRED_REPLICA_ELECTION]


def test_topics_marked_by_another_process_are_deleted() -> None:
    machine = with_topic(1, 2)
    machine.store.deleting += ["t", "none"]
    machine.store.znode_requests[ZnodeRequest.DELETION] = ["t", "none"]
    effects = machine.handle(ZnodeRequested(ZnodeRequest.DELETION))
    assert sent_to(effects, 2, StopReplicaRequest)
    assert machine.store.deleting == ["t"]
    assert not sent_to(
        machine.handle(ZnodeRequested(ZnodeRequest.DELETION)), 2, StopReplicaRequest
    )  # The controller's own mark.
    machine.answer_all(effects)
    assert (machine.store.deleting, machine.store.topics) == ([], {})


def test_a_broker_that_lost_a_directory_is_asked_for_its_replicas() -> None:
    machine = with_topic(1, 2)
    machine.create("u", (2,))
    machine.store.znode_requests[ZnodeRequest.LOG_DIRS] = {"/l/1": 2, "/l/2": None, "/l/3": 9}
    effects = machine.handle(ZnodeRequested(ZnodeRequest.LOG_DIRS))
    assert led(effects, 2) == {("t", 0): 1, ("u", 0): 2}
    assert not sent_to(effects, 1, LeaderAndIsrRequest)
    assert effects[-2] == RemoveZnodeRequests(["/l/1", "/l/2", "/l/3"])
    assert writes(effects) == []


async def two_members(members: Members) -> tuple[Member, Member]:
    one, two = members.members[1], members.members[2]
    await until(lambda: any(len(told.live_brokers) == 2 for told in one.requests_of(UpdateMetadataRequest)))
    return one, two


async def gone(member: Member, path: str) -> None:
    while await member.zookeeper.session.exists(path) is not None:
        pass


@on_reactor
async def test_a_reassignment_written_to_zookeeper_starts(zookeeper: str) -> None:
    async with cluster(zookeeper, 1, 2) as members:
        one, _ = await two_members(members)
        await create(
            members, TopicCreation("t", assignments={0: (1,)}), TopicCreation("u", assignments={0: (1, 2)})
        )
        order = {
            "version": 1,
            "partitions": [
                {"topic": "t", "partition": 0, "replicas": [2]},
                {"topic": "u", "partition": 0, "replicas": [2]},
            ],
        }
        await one.zookeeper.session.create(REASSIGN_PARTITIONS, json.dumps(order).encode())
        # Partitions with targets in sync complete at once; the others stay in the znode until they have.
        while (await one.zookeeper.session.get(REASSIGN_PARTITIONS))[1].version == 0:
            pass
        data, _ = await one.zookeeper.session.get(REASSIGN_PARTITIONS)
        assert decode_reassignment(data) == {("t", 0): (2,)}
        moved = ReplicaAssignment((2, 1), adding=(2,), removing=(1,))
        assert await one.controller.list_reassignments(TIMEOUT_MS) == {("t", 0): moved}
        for name, expected in (("t", moved), ("u", ReplicaAssignment((2,)))):
            data, _ = await one.zookeeper.session.get(topic_path(name))
            assert dict(decode_topic(name, data).partitions) == {0: expected}
        assert (await state_of(members, "u")).isr == (2,)
        # The next controller continues it, and accepts its cancellation.
        await members.stop(1)
        two = members.members[2]
        await until(lambda: two.controller.is_active)
        running = await two.controller.list_reassignments(TIMEOUT_MS)
        assert running == {("t", 0): moved}
        refused = await two.controller.alter_reassignments({("t", 0): None, ("u", 0): None}, TIMEOUT_MS)
        assert refused[("t", 0)] is None
        error = refused[("u", 0)]
        assert error is not None
        assert error.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        await gone(two, REASSIGN_PARTITIONS)
        assert await two.controller.list_reassignments(TIMEOUT_MS) == {}


@on_reactor
async def test_every_kind_of_znode_request_is_noticed(zookeeper: str) -> None:
    async with cluster(zookeeper, 1, 2) as members:
        one, two = await two_members(members)
        session = two.zookeeper.session
        await create(
            members, TopicCreation("t", assignments={0: (2, 1)}), TopicCreation("old", assignments={0: (1,)})
        )
        await one.controller.controlled_shutdown(2, two.membership.broker_epoch)
        assert await state_of(members, "t") == PartitionState(1, 1, (1,), 1)

        await session.create(delete_topic_path("old"))
        await gone(two, topic_path("old"))

        before = len(two.requests_of(LeaderAndIsrRequest))
        LogDirEvents(two.zookeeper, 2).announce()
        await until(lambda: len(two.requests_of(LeaderAndIsrRequest)) > before)
        while await session.children(LOG_DIR_EVENTS):
            pass

        for data in (encode_preferred_election([("t", 0)]), b"nonsense"):
            await session.create(PREFERRED_REPLICA_ELECTION, data)
            await gone(two, PREFERRED_REPLICA_ELECTION)
        await session.create(REASSIGN_PARTITIONS, b"{}")
        await gone(two, REASSIGN_PARTITIONS)
        assert one.controller.is_active


@on_reactor
async def test_a_broker_that_is_not_the_controller_ignores_znode_requests(zookeeper: str) -> None:
    async with cluster(zookeeper, 1, 2) as members:
        two = members.members[2]
        for refused in (
            two.controller.alter_reassignments({("t", 0): (2,)}, TIMEOUT_MS),
            two.controller.list_reassignments(TIMEOUT_MS),
            two.controller.elect_leaders(None, TIMEOUT_MS),
        ):
            with pytest.raises(BrokerError) as error:
                await refused
            assert error.value.code == ErrorCode.NOT_CONTROLLER
        with pytest.raises(NoNode):
            await two.zookeeper.session.get(REASSIGN_PARTITIONS)
