"""Partitions that are added to a topic which an exclusive producer owns as a whole (PIP-68)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.znodes.topics import TopicAssignment, encode_topic, topic_path
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import (
    IF_FREE,
    PRODUCERS_GROUP,
    Access,
    HeldResource,
    ReleaseRequest,
    RenewRequest,
)
from holdfast_log.protocol.messages.producer_access import (
    ProducerAccessMode,
    ProducerAccessRequest,
    ProducerAccessResponse,
)
from tests.broker.ownership.world import SESSION_MS, OwnershipWorld
from tests.broker.world import Client, only_produced, produce_request
from tests.models.batches import batch
from tests.models.ownership_requests import secret_of

T = "t"
EXCLUSIVE = ProducerAccessMode.EXCLUSIVE
WAIT = ProducerAccessMode.WAIT_FOR_EXCLUSIVE
FENCING = ProducerAccessMode.EXCLUSIVE_WITH_FENCING
SHARED = ProducerAccessMode.SHARED


@pytest.fixture
def world(tmp_path: Path) -> OwnershipWorld:
    """A broker that leads t-0, the only partition of t."""
    world = OwnershipWorld(tmp_path)
    create(world, 1)
    return world


def create(world: OwnershipWorld, count: int) -> None:
    """Write to ZooKeeper that t has `count` partitions, and have the broker lead the last of them."""
    assignment = TopicAssignment(
        world.topic_id(T), {number: ReplicaAssignment((1,)) for number in range(count)}
    )
    path = topic_path(T)
    version = world.zookeeper.znodes[path][1] + 1 if path in world.zookeeper.znodes else 0
    world.zookeeper.znodes[path] = (encode_topic(assignment), version)
    world.lead(T, count - 1)


class Producer:
    """An exclusive producer of the whole of t."""

    def __init__(self, world: OwnershipWorld, producer_id: str) -> None:
        self.client: Client = world.client()
        self.producer_id = producer_id
        self.secret = secret_of(producer_id)
        self.incarnations: dict[int, int] = {}

    def request(
        self,
        partition: int,
        mode: ProducerAccessMode = EXCLUSIVE,
        *,
        wait_ms: int = 0,
        covers_topic: bool = True,
        secret: bytes | None = None,
        epoch: int = -1,
    ) -> ProducerAccessRequest:
        return ProducerAccessRequest(
            topic=T,
            partition=partition,
            producer_id=self.producer_id,
            mode=mode,
            epoch=epoch,
            session_timeout_ms=SESSION_MS,
            timeout_ms=5000,
            wait_timeout_ms=wait_ms,
            secret=self.secret if secret is None else secret,
            covers_topic=covers_topic,
        )

    def claim(
        self,
        partition: int,
        mode: ProducerAccessMode = EXCLUSIVE,
        *,
        wait_ms: int = 0,
        covers_topic: bool = True,
        secret: bytes | None = None,
    ) -> ProducerAccessResponse:
        request = self.request(partition, mode, wait_ms=wait_ms, covers_topic=covers_topic, secret=secret)
        response = self.client.call(request)
        if response.error_code == ErrorCode.NONE:
            self.incarnations[partition] = response.incarnation
        return response

    def release(self, partition: int) -> None:
        held = HeldResource(name=T, partition=partition, incarnation=self.incarnations[partition])
        request = ReleaseRequest(
            group=PRODUCERS_GROUP, owner_id=self.producer_id, resources=[held], secret=self.secret
        )
        (standing,) = self.client.call(request).resources
        assert standing.error_code == ErrorCode.NONE

    def renew(self, partition: int) -> int:
        held = HeldResource(name=T, partition=partition, incarnation=self.incarnations.get(partition, -1))
        request = RenewRequest(
            group=PRODUCERS_GROUP,
            owner_id=self.producer_id,
            max_wait_ms=0,
            resources=[held],
            secret=self.secret,
        )
        (standing,) = self.client.call(request).resources
        return standing.error_code

    def write(self, partition: int) -> int:
        return write(self.client, partition)


def write(client: Client, partition: int) -> int:
    return only_produced(client.call(produce_request(T, batch(b"x"), partition))).error_code


@pytest.fixture
def anna(world: OwnershipWorld) -> Producer:
    """The owner of the whole topic, whose partition 1 was added after her claim."""
    anna = Producer(world, "anna")
    assert anna.claim(0).error_code == ErrorCode.NONE
    create(world, 2)
    return anna


def test_nobody_else_writes_to_a_partition_that_is_added_to_an_owned_topic(
    world: OwnershipWorld, anna: Producer
) -> None:
    stock, ben = world.client(), Producer(world, "ben")
    assert write(stock, 1) == ErrorCode.POLICY_VIOLATION
    for mode in (EXCLUSIVE, SHARED):
        assert ben.claim(1, mode, covers_topic=False).error_code == ErrorCode.RESOURCE_OWNED
    lease = world.owner("lease")
    assert lease.claim(T, IF_FREE, 1).error_code == ErrorCode.RESOURCE_OWNED
    assert lease.claim(T, 7, 1).error_code == ErrorCode.RESOURCE_OWNED

    assert anna.claim(1).epoch == 1

    assert (anna.write(1), write(stock, 1)) == (0, ErrorCode.POLICY_VIOLATION)


def test_the_refusal_names_the_owner_of_the_whole_topic(world: OwnershipWorld, anna: Producer) -> None:
    refused = only_produced(world.client().call(produce_request(T, batch(b"x"), 1)))
    assert refused.error_message is not None
    assert "anna at 127.0.0.1 owns the whole topic" in refused.error_message
    claim = Producer(world, "ben").claim(1, covers_topic=False)
    assert claim.error_message is not None
    assert "was added to a topic that anna" in claim.error_message


def test_an_added_partition_can_be_read_by_others(world: OwnershipWorld, anna: Producer) -> None:
    reader = world.owner("reader", access=Access.READ)
    assert reader.claim(T, IF_FREE, 1).error_code == ErrorCode.NONE
    assert write(world.client(), 1) == ErrorCode.POLICY_VIOLATION
    assert anna.claim(1).error_code == ErrorCode.NONE


def test_the_producer_id_of_the_owner_alone_gives_no_added_partition(
    world: OwnershipWorld, anna: Producer
) -> None:
    impostor = Producer(world, "anna")
    refused = impostor.claim(1, secret=b"another" * 3)
    assert refused.error_code == ErrorCode.RESOURCE_OWNED


def test_a_claim_of_a_whole_topic_needs_a_secret(world: OwnershipWorld) -> None:
    assert Producer(world, "anna").claim(0, secret=b"").error_code == ErrorCode.INVALID_REQUEST


def test_an_owner_of_single_partitions_gets_no_added_ones(world: OwnershipWorld) -> None:
    assert Producer(world, "anna").claim(0, covers_topic=False).error_code == ErrorCode.NONE
    create(world, 2)
    assert write(world.client(), 1) == ErrorCode.NONE


def test_an_added_partition_stays_reserved_while_its_owner_has_the_topic(
    world: OwnershipWorld, anna: Producer
) -> None:
    """The owner may learn of the partition later than its session timeout."""
    stock = world.client()
    for _ in range(6):
        world.clock.advance(SESSION_MS / 2000)
        anna.renew(0)
        assert write(stock, 1) == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("is_graceful", [False, True])
def test_others_may_write_to_an_added_partition_once_the_owner_has_left(
    world: OwnershipWorld, anna: Producer, *, is_graceful: bool
) -> None:
    stock = world.client()
    if is_graceful:
        anna.release(0)
    else:
        anna.client.connection.close("gone")
    for _ in range(4):
        world.clock.advance(SESSION_MS / 2000)
    assert write(stock, 1) == ErrorCode.NONE


def test_the_next_owner_of_the_topic_gets_the_added_partition_at_once(
    world: OwnershipWorld, anna: Producer
) -> None:
    anna.release(0)
    ben = Producer(world, "ben")
    assert [ben.claim(number).error_code for number in (0, 1)] == [0, 0]


def test_a_waiting_producer_gets_the_added_partition_from_an_owner_that_never_claimed_it(
    world: OwnershipWorld, anna: Producer
) -> None:
    ben, carl = Producer(world, "ben"), Producer(world, "carl")
    assert ben.claim(0, WAIT, wait_ms=-1).error_code == ErrorCode.CLAIM_QUEUED
    assert carl.claim(1, WAIT, wait_ms=-1, covers_topic=False).error_code == ErrorCode.CLAIM_QUEUED
    anna.release(0)
    assert ben.renew(0) == ErrorCode.NONE
    assert ben.claim(1).error_code == ErrorCode.NONE, "the owner of the topic comes before the queue"


def test_of_two_producers_of_a_topic_the_one_with_partition_0_gets_the_added_one(
    world: OwnershipWorld, anna: Producer
) -> None:
    ben = Producer(world, "ben")
    assert ben.claim(0, FENCING).epoch == 2
    anna = Producer(world, "anna")
    assert anna.claim(1).error_code == ErrorCode.RESOURCE_OWNED
    assert ben.claim(1).error_code == ErrorCode.NONE


def test_a_new_leader_of_an_added_partition_keeps_it_for_the_owner_too(
    world: OwnershipWorld, anna: Producer
) -> None:
    world.lead(T, 1, leader_epoch=1)
    assert write(world.client(), 1) == ErrorCode.POLICY_VIOLATION
    assert anna.claim(1).error_code == ErrorCode.NONE


def test_a_partition_that_had_a_writer_is_not_reserved_again(world: OwnershipWorld, anna: Producer) -> None:
    anna.claim(1)
    anna.release(1)
    world.lead(T, 1, leader_epoch=1)
    assert write(world.client(), 1) == ErrorCode.NONE


def test_the_owner_of_a_topic_is_told_how_many_partitions_it_has(
    world: OwnershipWorld, anna: Producer
) -> None:
    """The owner did not know partition 1 when it claimed; it may have been led before the claim."""
    assert anna.claim(0).partition_count == 2
    assert anna.claim(1).partition_count == -1
    create(world, 3)
    assert anna.client.call(anna.request(0, epoch=1)).partition_count == 3
