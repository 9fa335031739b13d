"""A broker that is cut off from ZooKeeper confirms no ownership after another may have replaced it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.defer import Deferred

from broker.network.interfaces import Address
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.ownership import (
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
from tests.models.world import World
from tests.sim.client import Client, Surroundings
from tests.sim.cluster import SESSION_TIMEOUT_MS, Machine, logs_in_trace
from tests.sim.test_cluster import AT, Stage

OWN_SESSION_MS = 60_000


class Reader(Client):
    """A client that claims the partition to read."""

    def __init__(self, around: Surroundings, name: str) -> None:
        super().__init__(around, name)
        self.held: ResourceStanding | None = None

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
        request = RenewRequest(group="readers", owner_id=self.name, max_wait_ms=0, resources=[held])
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


@pytest.fixture
def world() -> Iterator[World]:
    world = World(3)
    with logs_in_trace(world):
        yield world
    assert world.problems == []


class Story:
    """Three brokers, one of which, the leader, is cut off from ZooKeeper until another leads."""

    def __init__(self, world: World) -> None:
        self.stage = Stage(world, 3, {"min.insync.replicas": "2"})
        self.stage.produce(1)
        self.owner, self.other, self.waiter = (
            Reader(self.stage.around, name) for name in ("owner", "other", "waiter")
        )
        self.leader = self.machine()
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
    request = RenewRequest(group="readers", owner_id="owner", max_wait_ms=0, resources=[held])
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
