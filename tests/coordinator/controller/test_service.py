"""The controller on a real ZooKeeper: its writes, its requests to brokers, and its replacement."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast_log.coordinator.cluster.term import Term
from holdfast_log.coordinator.controller import writes as controller_writes
from holdfast_log.coordinator.controller.effects import CreateTopic, StateWrite
from holdfast_log.coordinator.controller.events import MorePartitions, TopicCreation, TopicResult
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.znodes.controller import CONTROLLER_EPOCH
from holdfast_log.coordinator.znodes.json_values import encode_uuid
from holdfast_log.coordinator.znodes.topics import (
    PartitionState,
    TopicAssignment,
    decode_partition_state,
    partition_state_path,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.alter_partition import AlteredPartition
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tests.coordinator.members import Members, cluster, healthy_answer, isr_proposal
from tests.coordinator.zookeeper.test_zookeeper import end_session
from tests.reactor import in_thread, on_reactor, until

TIMEOUT_MS = 60_000


async def create(members: Members, *topics: TopicCreation) -> dict[str, TopicResult]:
    return await members.controller().controller.create_topics(topics, TIMEOUT_MS)


async def state_of(members: Members, topic: str, partition: int = 0) -> PartitionState:
    session = next(iter(members.members.values())).zookeeper.session
    data, _ = await session.get(partition_state_path(topic, partition))
    return decode_partition_state(topic, partition, data)


@on_reactor
async def test_a_single_broker_creates_extends_and_deletes_a_topic(zookeeper: str) -> None:
    async with cluster(zookeeper, 1) as members:
        one = members.members[1]
        made = (await create(members, TopicCreation("flights", 2, 1, configs={"retention.ms": "1000"})))[
            "flights"
        ]
        assert (made.error, made.partition_count, made.replication_factor) == (ErrorCode.NONE, 2, 1)
        session = one.zookeeper.session
        written = json.loads((await session.get("/brokers/topics/flights"))[0])
        assert written["partitions"] == {"0": [1], "1": [1]}
        assert written["topic_id"] == encode_uuid(made.topic_id)
        assert json.loads((await session.get("/config/topics/flights"))[0])["config"] == {
            "retention.ms": "1000"
        }
        assert await state_of(members, "flights") == PartitionState(1, 0, (1,), 1)
        told = one.requests_of(LeaderAndIsrRequest)[-1].topic_states[0]
        assert (told.topic_name, told.topic_id) == ("flights", made.topic_id)
        assert [(row.partition_index, row.leader, row.is_new) for row in told.partition_states] == [
            (0, 1, True),
            (1, 1, True),
        ]
        grown = await one.controller.create_partitions([MorePartitions("flights", 3)], TIMEOUT_MS)
        assert grown["flights"].error == ErrorCode.NONE
        assert (await state_of(members, "flights", 2)).leader == 1
        deleted = await one.controller.delete_topics(["flights", "none"], TIMEOUT_MS)
        assert deleted["flights"].error == ErrorCode.NONE
        assert deleted["none"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for path in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
            assert await session.children(path) == []
        again = (await create(members, TopicCreation("flights")))["flights"]
        assert again.error == ErrorCode.NONE
        assert again.topic_id != made.topic_id


@on_reactor
async def test_a_topic_of_many_partitions_is_written_in_several_multis(zookeeper: str) -> None:
    async with cluster(zookeeper, 1) as members:
        made = await create(members, TopicCreation("wide", 450, 1))
        assert made["wide"].error == ErrorCode.NONE
        session = members.members[1].zookeeper.session
        assert len(await session.children("/brokers/topics/wide/partitions")) == 450
        deleted = await members.members[1].controller.delete_topics(["wide"], TIMEOUT_MS)
        assert deleted["wide"].error == ErrorCode.NONE
        assert await session.children("/brokers/topics") == []


@on_reactor
async def test_a_lost_broker_is_replaced_and_a_new_controller_continues(zookeeper: str) -> None:
    async with cluster(zookeeper, 1, 2, 3) as members:
        await until(lambda: members.members[1].was_told_of(3))
        made = await create(members, TopicCreation("t", assignments={0: (1, 2, 3), 1: (2, 3, 1)}))
        assert made["t"].error == ErrorCode.NONE
        await members.stop(1)
        await until(lambda: any(member.controller.is_active for member in members.members.values()))
        controller = members.controller()
        await until(lambda: bool(controller.requests_of(LeaderAndIsrRequest)))
        while (await state_of(members, "t")).leader == 1:
            pass
        state = await state_of(members, "t")
        assert (state.leader, state.leader_epoch, state.isr, state.controller_epoch) == (2, 1, (2, 3), 2)
        assert (await state_of(members, "t", 1)).isr == (2, 3)


@on_reactor
async def test_a_proposal_for_the_in_sync_set_is_written(zookeeper: str) -> None:
    async with cluster(zookeeper, 1, 2) as members:
        one, two = members.members[1], members.members[2]
        await until(lambda: one.was_told_of(2))
        made = (await create(members, TopicCreation("t", assignments={0: (1, 2)})))["t"]

        epochs = {1: one.membership.broker_epoch, 2: two.membership.broker_epoch}

        async def propose(isr: tuple[int, ...], partition_epoch: int) -> AlteredPartition:
            request = isr_proposal(made.topic_id, isr, epochs, partition_epoch=partition_epoch)
            return (await one.controller.alter_partition(request)).topics[0].partitions[0]

        row = await propose((1,), 0)
        assert (row.error_code, row.isr, row.partition_epoch) == (ErrorCode.NONE, [1], 1)
        row = await propose((1, 2), 1)
        assert (row.error_code, row.isr, row.partition_epoch) == (ErrorCode.NONE, [1, 2], 2)
        assert (await state_of(members, "t")).isr == (1, 2)
        stale = await propose((1,), 0)
        assert stale.error_code == ErrorCode.INVALID_UPDATE_VERSION


@on_reactor
async def test_a_controlled_shutdown_moves_leadership_first(zookeeper: str) -> None:
    async with cluster(zookeeper, 1, 2) as members:
        one, two = members.members[1], members.members[2]
        await until(lambda: one.was_told_of(2))
        await create(
            members, TopicCreation("t", assignments={0: (2, 1)}), TopicCreation("only", assignments={0: (2,)})
        )
        result = await one.controller.controlled_shutdown(2, two.membership.broker_epoch)
        assert (result.error, result.remaining) == (ErrorCode.NONE, ())
        state = await state_of(members, "t")
        assert (state.leader, state.isr, state.leader_epoch) == (1, (1,), 1)
        stale = await one.controller.controlled_shutdown(2, two.membership.broker_epoch - 1)
        assert stale.error == ErrorCode.STALE_BROKER_EPOCH


@on_reactor
async def test_a_request_waits_for_brokers_until_its_timeout(zookeeper: str) -> None:
    async with cluster(zookeeper, 1) as members:
        refusing = True

        def answer(broker_id: int, request: Any) -> Any:
            return ConnectionError("not now") if refusing else healthy_answer(request)

        members.answer = answer
        controller = members.members[1].controller
        late = await controller.create_topics([TopicCreation("t")], 300)
        assert late["t"].error == ErrorCode.REQUEST_TIMED_OUT
        refusing = False
        sent = members.members[1].requests
        await until(lambda: any(isinstance(each, LeaderAndIsrRequest) and each.topic_states for each in sent))
        assert (await create(members, TopicCreation("t")))["t"].error == ErrorCode.TOPIC_ALREADY_EXISTS


@on_reactor
async def test_a_broker_that_is_not_the_controller_refuses_requests(zookeeper: str) -> None:
    async with cluster(zookeeper, 1, 2) as members:
        two = members.members[2]
        assert two.candidacy.controller_id == 1
        with pytest.raises(BrokerError) as refused:
            await two.controller.create_topics([TopicCreation("t")], TIMEOUT_MS)
        assert refused.value.code == ErrorCode.NOT_CONTROLLER


@on_reactor
async def test_a_controller_that_has_been_replaced_changes_nothing(zookeeper: str) -> None:
    async with cluster(zookeeper, 1) as members:
        one = members.members[1]
        await create(members, TopicCreation("t"))
        term = one.candidacy.term
        assert term is not None
        epoch_data, _ = await one.zookeeper.session.get(CONTROLLER_EPOCH)
        await one.zookeeper.session.set(CONTROLLER_EPOCH, epoch_data)  # As an election does.
        state = PartitionState(1, 7, (1,), term.epoch)
        with pytest.raises(controller_writes.ControllerMoved):
            await controller_writes.write_states(term, [StateWrite(("t", 0), state, 0)], Clock())
        with pytest.raises(controller_writes.ControllerMoved):
            await controller_writes.create_topic(
                term, CreateTopic("u", TopicAssignment(None, {0: ReplicaAssignment((1,))}), {})
            )
        with pytest.raises(controller_writes.ControllerMoved):
            await controller_writes.mark_deleted(term, ["t"])
        with pytest.raises(controller_writes.ControllerMoved):
            await controller_writes.remove_topic(term, "t", Clock())
        assert (await state_of(members, "t")).leader_epoch == 0
        assert await one.zookeeper.session.children("/brokers/topics") == ["t"]


@on_reactor
async def test_a_write_with_a_lost_answer_is_recognised(zookeeper: str) -> None:
    async with cluster(zookeeper, 1) as members:
        one = members.members[1]
        await create(members, TopicCreation("t", 2))
        term = one.candidacy.term
        assert isinstance(term, Term)
        state = PartitionState(1, 1, (1,), term.epoch)
        write, other = StateWrite(("t", 0), state, 0), StateWrite(("t", 1), state, 0)
        assert (await controller_writes.write_states(term, [write], Clock()))[0].done
        # Sent again, as after a lost connection, together with a write that is still missing.
        again, new = await controller_writes.write_states(term, [write, other], Clock())
        assert (again.done, again.version, new.done, new.version) == (True, 1, True, 1)
        # A write that expects an outdated version changes nothing and returns the current state.
        (late,) = await controller_writes.write_states(
            term, [StateWrite(("t", 0), PartitionState(-1, 9, (1,), term.epoch), 0)], Clock()
        )
        assert (late.done, late.state, late.version) == (False, state, 1)


@on_reactor
async def test_a_controller_whose_session_expires_is_elected_again(zookeeper: str) -> None:
    async with cluster(zookeeper, 1) as members:
        one = members.members[1]
        await create(members, TopicCreation("t"))
        first = one.candidacy.term
        epoch = one.membership.broker_epoch
        waiting = one.controller.create_topics([TopicCreation("u")], TIMEOUT_MS)
        await in_thread(end_session, one.zookeeper.session, zookeeper)
        await until(lambda: one.candidacy.term not in (first, None))
        assert one.events[-2:] == ["expired", "registered"]
        assert one.membership.broker_epoch > epoch
        try:
            await waiting
        except BrokerError as refused:
            assert refused.code == ErrorCode.NOT_CONTROLLER
        assert (await create(members, TopicCreation("v")))["v"].error == ErrorCode.NONE


@on_reactor
async def test_a_controller_that_fails_gives_up_its_term_and_a_new_term_begins(zookeeper: str) -> None:
    """The controller must replace a partition state that is garbage. In the next term the controller ignores
    the topic of this state."""
    async with cluster(zookeeper, 1, 2) as members:
        one = members.members[1]
        assert (await create(members, TopicCreation("t", assignments={0: (1, 2)})))["t"].error == 0
        first = one.candidacy.term
        assert first is not None
        path = partition_state_path("t", 0)
        good, _ = await one.zookeeper.session.get(path)
        await one.zookeeper.session.set(path, b"nonsense")
        await members.stop(2)
        await until(
            lambda: (
                one.candidacy.term is not None
                and one.candidacy.term.epoch > first.epoch
                and one.controller.is_active
            )
        )
        made = (await create(members, TopicCreation("v", 1, 1)))["v"]
        assert made.error == ErrorCode.NONE
        refused = (await create(members, TopicCreation("t", 1, 1)))["t"]
        assert refused.error == ErrorCode.TOPIC_ALREADY_EXISTS
        assert refused.message is not None and path in refused.message
        await one.zookeeper.session.set(path, good)
        while (await state_of(members, "t")).isr != (1,):
            pass
