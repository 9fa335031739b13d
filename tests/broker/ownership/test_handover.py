"""Partitions and groups that move to another broker while their resources have owners and waiters."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.ownership import RenewResponse
from tests.broker.ownership.world import Owner, OwnershipWorld

T = "t"
OFFSETS = "__consumer_offsets"
NAME = "leader"
NO_PARTITION = -1


@pytest.fixture
def world(tmp_path: Path) -> OwnershipWorld:
    world = OwnershipWorld(tmp_path)
    world.lead(T)
    world.lead(OFFSETS)
    return world


def wait_for_news(owner: Owner, name: str, partition: int) -> None:
    owner.renew(name, partition)
    owner.ask(owner.renew_request(name, partition, max_wait_ms=30_000))


def answered(owner: Owner) -> ErrorCode:
    (answer,) = owner.client.answers()
    assert isinstance(answer, RenewResponse)
    return ErrorCode(answer.resources[0].error_code)


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


def test_owners_keep_their_names_while_a_new_epoch_loads_them(world: OwnershipWorld) -> None:
    """The same broker coordinates the group in a new leader epoch, and has to load the names first."""
    anna = world.owner("anna")
    anna.claim(NAME, partition=NO_PARTITION)
    wait_for_news(anna, NAME, NO_PARTITION)

    world.lead(OFFSETS, leader_epoch=1)

    assert answered(anna) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert anna.renew(NAME, NO_PARTITION).error_code == ErrorCode.OWNERSHIP_DETACHED
    assert anna.resume(NAME, NO_PARTITION).generation == 1
