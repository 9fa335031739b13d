"""Tokens: the incarnation of a grant only rises, whatever happens to topics, names, records and leaders."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from holdfast_log.coordinator.ownership.records import NameKey, PartitionKey, ResourceKey
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership_tokens import (
    CheckTokenRequest,
    CheckTokenResponse,
    TokenStanding,
)
from holdfast_log.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tests.broker.ownership.world import OwnershipWorld

T = "t"
NAME = "leader"
OFFSETS = "__consumer_offsets"
NO_PARTITION = -1


@pytest.fixture
def world(tmp_path: Path) -> OwnershipWorld:
    world = OwnershipWorld(tmp_path)
    world.lead(T)
    world.lead(OFFSETS)
    return world


def token(world: OwnershipWorld, name: str = T, partition: int = 0, generation: int = 0) -> int:
    """The token of a new owner. If the record has changed in ZooKeeper, the first claim fails as a whole."""
    owner = world.owner(f"owner-{uuid.uuid4()}")
    answers = [owner.client.call(owner.claim_request(name, generation, partition)) for _ in range(2)]
    (standing,) = answers[-1].resources
    assert standing.error_code == ErrorCode.NONE
    return standing.incarnation


def delete_record(world: OwnershipWorld, key: ResourceKey) -> None:
    world.zookeeper.session.delete(key.path)


def test_a_reset_of_the_generation_leaves_the_token(world: OwnershipWorld) -> None:
    tokens = [token(world, generation=generation) for generation in (1, 50, 0, 0, 1)]
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize(("name", "partition", "topic"), [(T, 0, T), (NAME, NO_PARTITION, OFFSETS)])
def test_another_leader_leaves_the_token(
    world: OwnershipWorld, name: str, partition: int, topic: str
) -> None:
    first = token(world, name, partition)
    world.assign(topic, leader=2, leader_epoch=1, replicas=(1, 2))
    world.lead(topic, leader_epoch=2)
    assert token(world, name, partition) > first


def test_a_topic_that_is_created_again_has_higher_tokens(world: OwnershipWorld) -> None:
    before = [token(world) for _ in range(40)]
    state = StopReplicaPartitionState(partition_index=0, delete_partition=True)
    topic = StopReplicaTopicState(topic_name=T, partition_states=[state])
    world.roles.apply_stop_replica(
        StopReplicaRequest(controller_id=1, controller_epoch=1, topic_states=[topic])
    )
    before_id = world.topic_id(T)
    delete_record(world, PartitionKey(before_id, 0))
    world.forget_topic_id(T)
    world.lead(T)
    assert world.topic_id(T) != before_id
    assert token(world) > before[-1]


@pytest.mark.parametrize(("name", "partition", "topic"), [(T, 0, T), (NAME, NO_PARTITION, OFFSETS)])
@pytest.mark.parametrize("is_led_again", [False, True])
def test_a_resource_whose_record_was_deleted_has_higher_tokens(
    world: OwnershipWorld, name: str, partition: int, topic: str, is_led_again: bool
) -> None:
    before = [token(world, name, partition) for _ in range(20)]
    key = PartitionKey(world.topic_id(T), 0) if partition == 0 else NameKey("app", NAME)
    delete_record(world, key)
    if is_led_again:
        world.assign(topic, leader=2, leader_epoch=1, replicas=(1, 2))
        world.lead(topic, leader_epoch=2)
    assert token(world, name, partition) > before[-1]


def check(world: OwnershipWorld, token: int, group: str = "app") -> CheckTokenResponse:
    return world.client().call(CheckTokenRequest(group=group, name=T, partition=0, token=token))


def test_the_deciding_broker_says_whether_a_token_is_that_of_the_newest_grant(world: OwnershipWorld) -> None:
    first, second = token(world), token(world)
    assert first < second
    superseded, current = check(world, first), check(world, second)
    assert (superseded.error_code, superseded.standing) == (0, TokenStanding.SUPERSEDED)
    assert (superseded.newest, superseded.is_held) == (second, False)
    assert (current.standing, current.newest, current.is_held) == (TokenStanding.CURRENT, second, True)


def test_a_token_stays_current_after_its_owner_has_released(world: OwnershipWorld) -> None:
    anna = world.owner("anna")
    newest = anna.claim(T).incarnation
    anna.client.call(anna.release_request(T))
    checked = check(world, newest)
    assert (checked.standing, checked.newest, checked.is_held) == (TokenStanding.CURRENT, newest, False)


def test_a_writer_is_superseded_by_the_writer_of_another_group(world: OwnershipWorld) -> None:
    first = token(world)
    second = world.owner("ben", "other").claim(T, 0).incarnation
    checked = check(world, first)
    assert (checked.standing, checked.newest) == (TokenStanding.SUPERSEDED, second)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_token_that_was_never_granted_is_an_error(world: OwnershipWorld, beyond: int) -> None:
    assert check(world, 1).error_code == ErrorCode.RESOURCE_NOT_FOUND
    newest = token(world)
    never = newest + 1 if beyond else 0
    assert check(world, never).error_code == ErrorCode.RESOURCE_NOT_FOUND


def test_a_broker_that_may_have_been_replaced_says_nothing_about_tokens(world: OwnershipWorld) -> None:
    newest = token(world)
    world.holds_lease = False
    assert check(world, newest).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
