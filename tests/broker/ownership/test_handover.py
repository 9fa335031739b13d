"""Partitions and groups that move to another broker while their resources have owners and waiters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_log.coordinator.ownership.records import (
    NameKey,
    PartitionKey,
    decode_ownership,
    encode_ownership,
)
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import LossReason, OwnResponse, RenewResponse
from tests.broker.ownership.world import Owner, OwnershipWorld
from tests.broker.world import follow

T = "t"
OFFSETS = "__consumer_offsets"
NAME = "leader"
NO_PARTITION = -1


def coordinating_world(path: Path) -> OwnershipWorld:
    """A broker that leads a partition and coordinates the owners of names."""
    world = OwnershipWorld(path)
    world.lead(T)
    world.lead(OFFSETS)
    return world


@pytest.fixture
def world(tmp_path: Path) -> OwnershipWorld:
    return coordinating_world(tmp_path)


def wait_for_news(owner: Owner, name: str, partition: int) -> None:
    owner.renew(name, partition)
    owner.ask(owner.renew_request(name, partition, max_wait_ms=30_000))


def answered(owner: Owner) -> ErrorCode:
    (answer,) = owner.client.answers()
    assert isinstance(answer, RenewResponse)
    return ErrorCode(answer.resources[0].error_code)


@pytest.mark.parametrize("left", ["follows", "left the in-sync set"])
def test_a_new_leader_confirms_an_owner_once_every_replica_has_followed_it(
    world: OwnershipWorld, left: str
) -> None:
    """A replica that has not followed yet may have records of an earlier owner that this leader lacks. If it
    led next, they would be committed behind the fence that the owner was told."""
    world.lead(T, leader_epoch=1, replicas=(1, 2), isr=(1, 2))
    anna = world.owner("anna")
    anna.ask(anna.claim_request(T, 1))
    assert anna.client.answers() == []
    if left == "follows":
        follow(world, 0)
    else:
        world.lead(T, leader_epoch=1, replicas=(1, 2), isr=(1,))
    (answer,) = anna.client.answers()
    assert isinstance(answer, OwnResponse)
    assert (answer.resources[0].error_code, answer.resources[0].fence_offset) == (0, 0)


def test_a_replica_that_is_eligible_to_lead_must_have_followed_before_an_owner_is_confirmed(
    world: OwnershipWorld,
) -> None:
    world.lead(T, leader_epoch=1, replicas=(1, 2), isr=(1,), eligible=(2,))
    anna = world.owner("anna")
    anna.ask(anna.claim_request(T, 1))
    assert anna.client.answers() == []
    follow(world, 0)
    (answer,) = anna.client.answers()
    assert isinstance(answer, OwnResponse) and answer.resources[0].error_code == 0


@pytest.mark.parametrize(
    ("name", "partition", "topic", "error"),
    [
        (T, 0, T, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (NAME, NO_PARTITION, OFFSETS, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_waiting_renews_are_answered_when_their_resource_moves(
    world: OwnershipWorld, name: str, partition: int, topic: str, error: ErrorCode
) -> None:
    """The former leader leaves the connections open: the owner is not fenced, and the waiter keeps its
    place."""
    anna, ben = world.owner("anna"), world.owner("ben")
    anna.claim(name, partition=partition)
    ben.claim(name, generation=-1, partition=partition, wait_timeout_ms=-1)
    wait_for_news(anna, name, partition)
    wait_for_news(ben, name, partition)

    world.assign(topic, leader=2, leader_epoch=1, replicas=(1, 2))

    assert (answered(anna), answered(ben)) == (error, error)


BOTH = pytest.mark.parametrize(
    ("name", "partition", "topic"), [(T, 0, T), (NAME, NO_PARTITION, OFFSETS)], ids=["partition", "name"]
)


@BOTH
def test_owners_and_waiters_keep_their_places_in_a_new_epoch_of_their_broker(
    world: OwnershipWorld, name: str, partition: int, topic: str
) -> None:
    anna, ben, cleo = world.owner("anna"), world.owner("ben"), world.owner("cleo")
    anna.claim(name, partition=partition)
    for waiter in (ben, cleo):
        waiter.claim(name, generation=-1, partition=partition, wait_timeout_ms=-1)

    world.lead(topic, leader_epoch=1)

    assert anna.renew(name, partition).error_code == ErrorCode.NONE
    assert [each.renew(name, partition).position for each in (ben, cleo)] == [1, 2]
    anna.client.connection.close("gone")
    assert ben.renew(name, partition).error_code == ErrorCode.NONE
    assert cleo.renew(name, partition).position == 1


@BOTH
def test_an_owner_that_was_replaced_at_another_broker_is_severed_and_waiters_stay(
    world: OwnershipWorld, name: str, partition: int, topic: str
) -> None:
    """Another broker has led between two epochs of this one, and has granted the resource."""
    anna, ben = world.owner("anna"), world.owner("ben")
    anna.claim(name, partition=partition)
    ben.claim(name, generation=-1, partition=partition, wait_timeout_ms=-1)
    key = PartitionKey(world.topic_id(T), 0, T) if partition == 0 else NameKey("app", NAME)
    data, version = world.zookeeper.znodes[key.path]
    record = decode_ownership(key.path, data)
    (granted,) = record.histories["app"]
    taken = (granted.ended(LossReason.STOLEN, 1), replace(granted, generation=2, incarnation=10**6))
    elsewhere = replace(record, incarnation=10**6, histories={"app": taken})
    world.zookeeper.znodes[key.path] = (encode_ownership(elsewhere), version + 1)

    world.lead(topic, leader_epoch=2)

    assert anna.client.connection.is_closed
    assert ben.renew(name, partition).position == 1
