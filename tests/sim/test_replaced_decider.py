"""A broker confirms no ownership after another may have replaced it: it was cut off from ZooKeeper, or the
controller has moved its leadership without reaching it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast_log.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from holdfast_log.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast_log.protocol.messages.ownership import (
    IF_FREE,
    Access,
    HeldResource,
    OwnRequest,
    RenewRequest,
    ResourceClaim,
    ResourceStanding,
    ResumedResource,
    ResumeRequest,
)
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.models.batches import batch
from tests.models.world import World
from tests.sim.client import Client, Surroundings
from tests.sim.cluster import SESSION_TIMEOUT_MS, Machine
from tests.sim.test_cluster import AT, Stage

OWN_SESSION_MS = 60_000


class Reader(Client):
    """A client that claims the partition to read."""

    def __init__(self, around: Surroundings, name: str) -> None:
        super().__init__(around, name)
        self.held: ResourceStanding | None = None
        self.secret = f"the secret of {name}".encode()

    def _one(self, answer: Deferred[object]) -> ErrorCode | ResourceStanding:
        """The standing in the answer, or the error of the whole request."""
        found: list[object] = []
        answer.addBoth(found.append)
        for _ in range(200):
            if found:
                break
            self.world.run(0.05)
        response = found[0]
        if response.error_code != ErrorCode.NONE:  # type: ignore[attr-defined]
            return ErrorCode(response.error_code)  # type: ignore[attr-defined]
        (standing,) = response.resources  # type: ignore[attr-defined]
        return standing  # type: ignore[no-any-return]

    def claim(self, broker: Address, generation: int = IF_FREE, wait_ms: int = 0) -> ErrorCode:
        request = OwnRequest(
            group="readers",
            owner_id=self.name,
            session_timeout_ms=OWN_SESSION_MS,
            timeout_ms=5000,
            wait_timeout_ms=wait_ms,
            access=Access.READ,
            resources=[ResourceClaim(name=AT[0], partition=AT[1], generation=generation)],
            secret=self.secret,
        )
        found = self._one(self.send(broker, request))
        if isinstance(found, ErrorCode):
            return found
        self.held = found if found.error_code == ErrorCode.NONE else self.held
        return ErrorCode(found.error_code)

    def renew(self, broker: Address, incarnation: int | None = None) -> ErrorCode:
        if incarnation is None:
            assert self.held is not None
            incarnation = self.held.incarnation
        held = HeldResource(name=AT[0], partition=AT[1], incarnation=incarnation)
        request = RenewRequest(
            group="readers", owner_id=self.name, max_wait_ms=0, resources=[held], secret=self.secret
        )
        found = self._one(self.send(broker, request))
        return found if isinstance(found, ErrorCode) else ErrorCode(found.error_code)

    def resume(self, broker: Address) -> ErrorCode:
        assert self.held is not None
        resumed = ResumedResource(
            name=AT[0], partition=AT[1], generation=self.held.generation, incarnation=self.held.incarnation
        )
        request = ResumeRequest(
            group="readers",
            owner_id=self.name,
            session_timeout_ms=OWN_SESSION_MS,
            timeout_ms=5000,
            resources=[resumed],
            secret=self.secret,
        )
        found = self._one(self.send(broker, request))
        return found if isinstance(found, ErrorCode) else ErrorCode(found.error_code)

    def fetch(self, broker: Address) -> ErrorCode:
        partition = FetchPartition(partition=AT[1], fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic=AT[0], partitions=[partition])
        found: list[object] = []
        answer = self.send(broker, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]), 11)
        answer.addBoth(found.append)
        self.world.run(1)
        (response,) = found
        return ErrorCode(response.responses[0].partitions[0].error_code)  # type: ignore[attr-defined]

    def fetch_by_fence(self, broker: Address, topic_id: UUID, owner: Reader) -> ErrorCode:
        """Fetch with the fence of another client's grant."""
        assert owner.held is not None
        partition = FetchPartition(
            partition=AT[1],
            fetch_offset=0,
            partition_max_bytes=1 << 20,
            owner_token=owner.held.incarnation,
            owner_secret=owner.secret,
        )
        topic = FetchTopic(topic_id=topic_id, partitions=[partition])
        found: list[Any] = []
        self.send(broker, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])).addBoth(found.append)
        self.world.run(1)
        return ErrorCode(found[0].responses[0].partitions[0].error_code)


WORLD_SEED = 3


class Story:
    """Three brokers, of which the leader is cut off. `follows`: the controller does not lead."""

    def __init__(self, world: World, *, follows: bool = False) -> None:
        self.stage = Stage(world, 3, {"min.insync.replicas": "2"})
        self.stage.produce(1)
        self.owner, self.other, self.waiter = (
            Reader(self.stage.around, name) for name in ("owner", "other", "waiter")
        )
        self.leader = self.machine()
        if follows:
            self._let_another_lead_than_the_controller()
        assert self.owner.claim(self.leader.address) is ErrorCode.NONE
        assert self.owner.fetch(self.leader.address) is ErrorCode.NONE

    def machine(self) -> Machine:
        """The leader's machine, by ZooKeeper."""
        return self.stage.cluster.machine(self.stage.leader())

    def replace(self, *, silently: bool) -> Machine:
        """Cut the leader off from ZooKeeper. Returns the next leader's machine once it leads."""
        self.leader.cut_off_zookeeper(silently=silently)
        self.stage.until(lambda: self.machine() is not self.leader)
        self.stage.world.run(0.5)
        return self.machine()

    # Moving the leadership of a live broker

    def controller(self) -> Machine:
        return next(each for each in self.stage.cluster.machines if each.is_controller)

    def _let_another_lead_than_the_controller(self) -> None:
        self.order(next(each for each in self.stage.cluster.machines if not each.is_controller))
        self.elect()
        self.stage.until(lambda: self.machine() is not self.controller())
        self.leader = self.machine()
        self.order(next(each for each in self.stage.cluster.machines if each is not self.leader))

    def order(self, preferred: Machine) -> None:
        """Make another broker the preferred leader. The present leader stays."""
        others = [each for each in self.stage.cluster.machines if each is not preferred]
        found = self.move([preferred, *others])
        self.stage.until(lambda: bool(found))
        self.stage.world.run(0.5)

    def cut_off_peers(self) -> None:
        """Cut the leader off from the controller and the other brokers, not from ZooKeeper and clients."""
        network = self.stage.cluster.network
        for other in self.stage.cluster.machines:
            if other is not self.leader:
                network.cut(self.leader.name, other.name)
                network.cut(other.name, self.leader.name)

    def move(self, replicas: list[Machine], timeout_ms: int = 3000) -> list[Any]:
        """Ask the controller to reassign the partition; the list gets the answer."""
        moved = ReassignablePartition(
            partition_index=AT[1], replicas=[machine.broker_id for machine in replicas]
        )
        topics = [ReassignableTopic(name=AT[0], partitions=[moved])]
        return self.ask(AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics))

    def elect(self, timeout_ms: int = 3000) -> list[Any]:
        """Ask the controller to elect the preferred leader; the list gets the answer."""
        topics = [TopicPartitions(topic=AT[0], partitions=[AT[1]])]
        request = ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=timeout_ms)
        return self.ask(request)

    def leave(self, timeout_ms: int = 3000) -> list[Any]:
        """Ask the controller to reassign the partition to the other brokers."""
        return self.move(
            [each for each in self.stage.cluster.machines if each is not self.leader], timeout_ms
        )

    def ask(self, request: Request[Any]) -> list[Any]:
        """Send the controller a request; the list gets the answer."""
        found: list[Any] = []
        self.other.send(self.controller().address, request).addBoth(found.append)
        return found

    def confirms_after_replacement(self) -> bool:
        """Whether the leader confirms the owner although another client was granted the partition at a new
        leader; False if there is no new leader."""
        here, machine = self.leader.address, self.machine()
        if machine is self.leader:
            return False
        assert self.owner.held is not None
        assert self.other.claim(machine.address, self.owner.held.generation + 1) is ErrorCode.NONE
        answers = [self.owner.renew(here), self.owner.resume(here), self.owner.fetch(here)]
        return ErrorCode.NONE in answers


MOVES = [Story.elect, Story.leave]
"""The ways to have the leadership of a live broker moved."""


@pytest.mark.parametrize("move", MOVES)
def test_a_leader_that_the_controller_cannot_reach_is_not_replaced_while_it_is_registered(
    world: World, move: Callable[[Story], list[Any]]
) -> None:
    story = Story(world, follows=True)
    story.cut_off_peers()
    move(story)
    world.run(5)
    assert not story.confirms_after_replacement()
    assert story.machine() is story.leader
    assert story.owner.renew(story.leader.address) is ErrorCode.NONE
    story.leader.kill()
    story.stage.until(lambda: story.machine() is not story.leader)


@pytest.mark.parametrize("move", MOVES)
def test_the_leadership_moves_once_the_controller_reaches_the_leader_again(
    world: World, move: Callable[[Story], list[Any]]
) -> None:
    story = Story(world, follows=True)
    story.cut_off_peers()
    move(story)
    world.run(2)
    story.stage.cluster.network.heal()
    story.stage.until(lambda: story.machine() is not story.leader)
    assert not story.confirms_after_replacement()


def test_the_leadership_of_a_broker_that_answers_moves_at_once(world: World) -> None:
    story = Story(world, follows=True)
    found = story.elect()
    story.stage.until(lambda: bool(found))
    (result,) = found[0].replica_election_results[0].partition_result
    assert result.error_code == ErrorCode.NONE
    assert story.machine() is not story.leader
    assert not story.confirms_after_replacement()


def test_an_election_that_waits_for_the_present_leader_says_so_at_its_timeout(world: World) -> None:
    story = Story(world, follows=True)
    story.cut_off_peers()
    found = story.elect(timeout_ms=1000)
    story.stage.until(lambda: bool(found))
    (result,) = found[0].replica_election_results[0].partition_result
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "the present leader has not answered" in result.error_message


@pytest.mark.parametrize("silently", [False, True])
def test_a_replaced_broker_confirms_nothing_to_the_former_owner(world: World, silently: bool) -> None:
    story = Story(world)
    here = story.leader.address
    there = story.replace(silently=silently).address
    assert story.owner.held is not None
    assert story.other.claim(there, story.owner.held.generation + 1) is ErrorCode.NONE
    assert story.other.fetch(there) is ErrorCode.NONE
    assert story.owner.renew(here) is ErrorCode.OWNERSHIP_DETACHED
    assert story.owner.resume(here) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert story.owner.claim(here) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert story.owner.fetch(here) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert story.owner.resume(there) is ErrorCode.OWNERSHIP_FENCED


def test_a_replaced_broker_judges_no_fence(world: World) -> None:
    """It does not know the newest grant: it serves nobody, and refuses nobody for good."""
    story = Story(world)
    here = story.leader.address
    led = story.leader.partition(AT)
    assert led is not None and story.owner.held is not None
    assert story.waiter.fetch_by_fence(here, led.topic_id, story.owner) is ErrorCode.NONE
    there = story.replace(silently=True).address
    assert story.waiter.fetch_by_fence(there, led.topic_id, story.owner) is ErrorCode.NONE
    assert story.other.claim(there, story.owner.held.generation + 1) is ErrorCode.NONE
    for owner in (story.owner, story.other):
        found = story.waiter.fetch_by_fence(here, led.topic_id, owner)
        assert found is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert story.waiter.fetch_by_fence(there, led.topic_id, story.owner) is ErrorCode.OWNERSHIP_FENCED
    assert story.waiter.fetch_by_fence(there, led.topic_id, story.other) is ErrorCode.NONE


def test_a_replaced_broker_that_has_registered_again_waits_for_the_controllers_word(world: World) -> None:
    """It holds a lease again, but does not know yet that another broker leads."""
    story = Story(world)
    here = story.leader.address
    there = story.replace(silently=False).address
    assert story.owner.held is not None
    assert story.other.claim(there, story.owner.held.generation + 1) is ErrorCode.NONE
    story.cut_off_peers()
    story.leader.mend_zookeeper()
    story.stage.until(lambda: story.leader.broker.node.cluster.lease.is_held())
    assert story.owner.renew(here) is ErrorCode.OWNERSHIP_DETACHED
    assert story.owner.fetch(here) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("reconnects", [False, True])
def test_a_replaced_broker_that_has_registered_again_does_not_say_where_the_log_ends(
    world: World, reconnects: bool
) -> None:
    """Its refusal of a conditional append would name an end that its successor's log has passed.

    `reconnects`: its new connection to ZooKeeper breaks once more, and it keeps its new session."""
    story = Story(world)
    story.replace(silently=False)
    story.stage.produce(1)
    story.cut_off_peers()
    story.leader.mend_zookeeper()
    node = story.leader.broker.node
    story.stage.until(node.cluster.lease.is_held)
    if reconnects:
        story.leader.cut_off_zookeeper()
        story.stage.until(lambda: not node.cluster.membership.is_connected)
        story.leader.mend_zookeeper()
        story.stage.until(lambda: node.cluster.membership.is_connected and node.cluster.lease.is_held())
    assert node.replication.right.awaits_orders
    data = PartitionProduceData(index=AT[1], records=batch(b"x"), expected_offset=7)
    topics = [TopicProduceData(name=AT[0], partition_data=[data])]
    answers: list[Any] = []
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)
    story.owner.send(story.leader.address, request).addBoth(answers.append)
    story.stage.until(lambda: bool(answers))
    row = answers[0].responses[0].partition_responses[0]
    assert (row.error_code, row.next_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_claim_that_waits_at_a_replaced_broker_is_sent_away(world: World) -> None:
    story = Story(world)
    here = story.leader.address
    assert story.waiter.claim(here, wait_ms=-1) is ErrorCode.CLAIM_QUEUED
    story.replace(silently=True)
    assert story.waiter.renew(here, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_broker_that_stood_still_confirms_nothing_when_it_goes_on(world: World) -> None:
    story = Story(world)
    here = story.leader.address
    held = HeldResource(name=AT[0], partition=AT[1], incarnation=story.owner.held.incarnation)
    found: list[object] = []
    request = RenewRequest(
        group="readers", owner_id="owner", max_wait_ms=0, resources=[held], secret=story.owner.secret
    )
    story.leader.pause()
    story.stage.until(lambda: story.machine() is not story.leader)
    world.run(0.5)
    assert story.other.claim(story.machine().address, story.owner.held.generation + 1) is ErrorCode.NONE
    story.owner.send(here, request).addBoth(found.append)
    world.run(0.1)
    story.leader.resume()
    story.stage.until(lambda: bool(found))
    (standing,) = found[0].resources
    assert standing.error_code == ErrorCode.OWNERSHIP_DETACHED


def test_a_broker_that_stood_still_judges_no_condition_on_what_another_leads(world: World) -> None:
    """It appends to a partition of which it has the only replica, so nobody else can refuse that."""
    story = Story(world)
    alone = CreatableTopic(
        name="alone",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=0, broker_ids=[story.leader.broker_id]),
        ],
        configs=[],
    )
    found = story.ask(CreateTopicsRequest(topics=[alone], timeout_ms=5000, validate_only=False))
    story.stage.until(lambda: bool(found) and story.leader.partition(("alone", 0)) is not None)
    led = story.leader.partition(AT)
    assert led is not None
    data = PartitionProduceData(index=0, records=batch(b"x"))
    guard = PartitionProduceData(index=AT[1], records=None, expected_offset=led.log.log_end_offset)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(name="alone", partition_data=[data]),
            TopicProduceData(name=AT[0], partition_data=[guard]),
        ],
    )
    story.leader.pause()
    story.stage.until(lambda: story.machine() is not story.leader)
    story.stage.produce(1)
    answers: list[Any] = []
    story.owner.send(story.leader.address, request).addBoth(answers.append)
    world.run(0.1)
    story.leader.resume()
    story.stage.until(lambda: bool(answers))
    assert all(topic.partition_responses[0].error_code for topic in answers[0].responses)


def test_an_owner_is_confirmed_as_long_as_its_broker_may(world: World) -> None:
    """ZooKeeper may be away for a moment: the owner does not notice it."""
    story = Story(world)
    zookeeper = story.stage.cluster.zookeeper
    zookeeper.stop()
    world.run(SESSION_TIMEOUT_MS / 1000 / 4)
    assert story.owner.renew(story.leader.address) is ErrorCode.NONE
    zookeeper.wake()
    world.run(SESSION_TIMEOUT_MS / 1000)
    assert story.owner.renew(story.leader.address) is ErrorCode.NONE
    zookeeper.stop()
    world.run(SESSION_TIMEOUT_MS / 1000)
    assert story.owner.renew(story.leader.address) is ErrorCode.OWNERSHIP_DETACHED
    zookeeper.wake()
    world.run(2)
    assert story.owner.renew(story.leader.address) is ErrorCode.NONE
