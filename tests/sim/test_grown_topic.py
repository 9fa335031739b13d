"""A partition is added to a topic that an exclusive producer owns as a whole, while other clients try to
write to it."""

from __future__ import annotations

from typing import Any

from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast_log.protocol.messages.ownership import PRODUCERS_GROUP, HeldResource, RenewRequest
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast_log.protocol.messages.producer_access import (
    ProducerAccessMode,
    ProducerAccessRequest,
    ProducerAccessResponse,
)
from tests.models.batches import batch
from tests.models.world import World
from tests.sim.client import Client
from tests.sim.cluster import Machine
from tests.sim.test_cluster import Stage

TOPIC = "t"
ADDED = (TOPIC, 1)
SESSION_MS = 3000
SECRET = b"the secret of anna"


WORLD_SEED = 5


class GrowingTopic:
    """Three brokers, a producer `anna` that owns the topic as a whole, and a stock client that writes to the
    added partition as early as it can."""

    def __init__(self, world: World, session_ms: int = SESSION_MS) -> None:
        self._session_ms = session_ms
        self.stage = Stage(world, 3, {"min.insync.replicas": "2"})
        self.anna, self.stock, self.admin = (
            Client(self.stage.around, name) for name in ("anna", "stock", "grower")
        )
        granted = self.claim(0)
        assert (granted.error_code, granted.partition_count) == (ErrorCode.NONE, 1)
        self.incarnation = granted.incarnation

    def leader(self, index: int) -> Machine | None:
        state = self.stage.cluster.states().get((TOPIC, index))
        return None if state is None or state.leader < 0 else self.stage.cluster.machine(state.leader)

    def ask(self, client: Client, machine: Machine, request: Request[Any], version: int = 0) -> Any:
        """The response; None if the request fails."""
        found: list[Any] = []
        client.send(machine.address, request, version).addCallbacks(
            found.append, lambda failure: found.append(None)
        )
        self.stage.until(lambda: bool(found))
        return found[0]

    def claim(self, index: int) -> ProducerAccessResponse:
        request = ProducerAccessRequest(
            topic=TOPIC,
            partition=index,
            producer_id="anna",
            mode=ProducerAccessMode.EXCLUSIVE,
            session_timeout_ms=self._session_ms,
            timeout_ms=5000,
            secret=SECRET,
            covers_topic=True,
        )
        machine = self.leader(index)
        assert machine is not None
        response = self.ask(self.anna, machine, request)
        assert isinstance(response, ProducerAccessResponse)
        return response

    def renew(self) -> None:
        held = HeldResource(name=TOPIC, partition=0, incarnation=self.incarnation)
        request = RenewRequest(
            group=PRODUCERS_GROUP, owner_id="anna", max_wait_ms=0, resources=[held], secret=SECRET
        )
        machine = self.leader(0)
        assert machine is not None
        response = self.ask(self.anna, machine, request)
        assert response.resources[0].error_code == ErrorCode.NONE

    def grow(self) -> None:
        wanted = CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5000, validate_only=False)
        for machine in self.stage.cluster.machines:
            if machine.is_controller:
                self.admin.send(machine.address, request).addErrback(lambda failure: None)

    def write(self) -> ErrorCode:
        """What the stock client's write to the added partition is answered."""
        machine = self.leader(1)
        if machine is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        data = PartitionProduceData(index=1, records=batch(b"x"))
        topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
        request = ProduceRequest(acks=-1, timeout_ms=3000, topic_data=topics)
        response = self.ask(self.stock, machine, request, 9)
        if response is None:
            return ErrorCode.NETWORK_EXCEPTION
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    def write_for(self, seconds: float, *, renews: bool = True) -> set[ErrorCode]:
        """Write again and again, while anna renews her session if she `renews`. Returns the answers."""
        world, answers = self.stage.world, set()
        until_s = world.seconds() + seconds
        while world.seconds() < until_s:
            answers.add(self.write())
            if renews:
                self.renew()
            world.run(0.02)
        return answers


def test_nobody_else_writes_to_an_added_partition_while_the_owner_has_the_topic(world: World) -> None:
    topic = GrowingTopic(world)
    topic.grow()
    answers = topic.write_for(2.5 * SESSION_MS / 1000)
    assert ErrorCode.POLICY_VIOLATION in answers
    assert ErrorCode.NONE not in answers
    assert topic.claim(1).error_code == ErrorCode.NONE


def test_the_next_leader_of_an_added_partition_keeps_it_for_the_owner_too(world: World) -> None:
    topic = GrowingTopic(world, session_ms=60_000)
    topic.grow()
    topic.stage.until(lambda: topic.leader(1) is not None)
    topic.write_for(1)
    leader = topic.leader(1)
    assert leader is not None
    leader.kill()
    topic.stage.until(lambda: topic.leader(1) not in (None, leader))
    answers = topic.write_for(3, renews=False)
    assert ErrorCode.POLICY_VIOLATION in answers
    assert ErrorCode.NONE not in answers


def test_others_write_to_an_added_partition_once_the_owner_has_gone(world: World) -> None:
    topic = GrowingTopic(world)
    topic.grow()
    topic.write_for(1)
    topic.anna.process.kill()
    topic.stage.until(lambda: topic.write() is ErrorCode.NONE, 2.5 * SESSION_MS / 1000)
