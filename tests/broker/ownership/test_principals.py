"""What an owner has belongs to the principal that has claimed it, also if another knows its secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import IF_FREE, NO_PARTITION, RESET_GENERATION, Access
from holdfast_log.protocol.messages.producer_access import (
    ProducerAccessMode,
    ProducerAccessRequest,
    ProducerAccessResponse,
)
from tests.broker.ownership.world import Owner, OwnershipWorld
from tests.broker.world import Client, only_produced, produce_request
from tests.models.batches import batch

T = "t"
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def owning_world(path: Path) -> OwnershipWorld:
    world = OwnershipWorld(path)
    world.lead(T)
    world.lead(OFFSETS_TOPIC)
    return world


@pytest.fixture
def world(tmp_path: Path) -> OwnershipWorld:
    return owning_world(tmp_path)


def client_of(world: OwnershipWorld, user: str) -> Client:
    client = world.client()
    client.connection.principal = f"User:{user}"
    return client


def owner(world: OwnershipWorld, user: str, owner_id: str = "app-1", access: Access = Access.WRITE) -> Owner:
    """An owner of this user. Owners of the same id have the same secret here, as if one had stolen it."""
    found = world.owner(owner_id, access=access)
    found.client = client_of(world, user)
    return found


def released(owner: Owner) -> int:
    """The error code of a release by this owner."""
    (standing,) = owner.client.call(owner.release_request(T)).resources
    return int(standing.error_code)


def thief_of(world: OwnershipWorld, victim: Owner) -> Owner:
    """Another user with the victim's owner id, secret, generation and incarnation."""
    thief = owner(world, "eve", victim.owner_id, victim.access)
    thief.generation, thief.incarnation = victim.generation, victim.incarnation
    return thief


@pytest.mark.parametrize("generation", [IF_FREE, RESET_GENERATION, 1, 5])
def test_an_owner_id_cannot_be_claimed_by_another_principal(world: OwnershipWorld, generation: int) -> None:
    anna = owner(world, "anna")
    assert anna.claim(T).error_code == ErrorCode.NONE
    standing = thief_of(world, anna).claim(T, generation)
    assert standing.error_code == REFUSED and "another principal" in (standing.error_message or "")
    assert not anna.client.connection.is_closed and anna.write(T) == ErrorCode.NONE


def test_a_name_is_refused_as_what_belongs_to_its_group(world: OwnershipWorld) -> None:
    anna = owner(world, "anna", access=Access.NONE)
    assert anna.claim("leader", partition=NO_PARTITION).error_code == ErrorCode.NONE
    standing = thief_of(world, anna).claim("leader", partition=NO_PARTITION)
    assert standing.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_another_principal_takes_over_under_an_id_of_its_own(world: OwnershipWorld) -> None:
    """Who may is for access control lists to say."""
    anna = owner(world, "anna")
    anna.claim(T)
    assert owner(world, "ben", "app-2").claim(T, anna.generation).error_code == ErrorCode.NONE
    assert anna.client.connection.is_closed


def test_an_owner_id_is_free_once_its_owner_has_left(world: OwnershipWorld) -> None:
    anna = owner(world, "anna")
    anna.claim(T)
    assert released(anna) == ErrorCode.NONE
    assert owner(world, "ben").claim(T, IF_FREE).error_code == ErrorCode.NONE


def test_a_grant_cannot_be_resumed_by_another_principal(world: OwnershipWorld) -> None:
    anna = owner(world, "anna")
    anna.claim(T)
    anna.client.connection.close("the network")
    assert thief_of(world, anna).resume(T).error_code == ErrorCode.OWNERSHIP_FENCED
    anna.client = client_of(world, "anna")
    assert anna.resume(T).error_code == ErrorCode.NONE


def test_a_grant_cannot_be_renewed_or_released_by_another_principal(world: OwnershipWorld) -> None:
    anna = owner(world, "anna")
    anna.claim(T)
    thief = thief_of(world, anna)
    assert thief.renew(T).error_code == ErrorCode.OWNERSHIP_FENCED
    assert released(thief) == ErrorCode.OWNERSHIP_FENCED
    assert anna.write(T) == ErrorCode.NONE


def test_a_place_in_the_queue_belongs_to_its_principal(world: OwnershipWorld) -> None:
    owner(world, "ben", "app-0").claim(T)
    anna = owner(world, "anna")
    assert anna.claim(T, IF_FREE, wait_timeout_ms=60_000).position == 1
    assert thief_of(world, anna).claim(T, IF_FREE, wait_timeout_ms=60_000).position == 2


def test_a_producers_epoch_belongs_to_its_principal(world: OwnershipWorld) -> None:
    def access(user: str, epoch: int) -> ProducerAccessResponse:
        request = ProducerAccessRequest(
            topic=T,
            partition=0,
            producer_id="p",
            secret=bytes(16),
            mode=ProducerAccessMode.EXCLUSIVE,
            epoch=epoch,
            session_timeout_ms=10_000,
            timeout_ms=5000,
        )
        return client_of(world, user).call(request)

    granted = access("anna", -1)
    assert granted.error_code == ErrorCode.NONE
    assert access("eve", granted.epoch).error_code == ErrorCode.PRODUCER_FENCED
    assert access("eve", -1).error_code == REFUSED
    assert access("anna", granted.epoch).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("bound", "user", "may_write"),
    [
        ({}, "eve", False),
        ({"writer_client_id": "loader"}, "anna", True),
        ({"writer_client_id": "loader"}, "eve", False),
        ({"writer_client_id": "loader", "writer_principal": "User:ben"}, "ben", True),
        ({"writer_client_id": "loader", "writer_principal": "User:ben"}, "eve", False),
        ({"writer_client_id": "loader", "writer_principal": "User:ben"}, "anna", False),
        ({"writer_principal": "User:ben"}, "ben", True),
    ],
)
def test_a_client_id_that_an_owner_has_bound_counts_for_its_principal_alone(
    world: OwnershipWorld, bound: dict[str, str], user: str, *, may_write: bool
) -> None:
    assert owner(world, "anna").claim(T, **bound).error_code == ErrorCode.NONE  # type: ignore[arg-type]
    writer = world.client("loader")
    writer.connection.principal = f"User:{user}"
    code = only_produced(writer.call(produce_request(T, batch(b"x")))).error_code
    assert code == (ErrorCode.NONE if may_write else ErrorCode.POLICY_VIOLATION)


LONG = "CN=" + "x" * 600
"""A user whose name begins like another's: certificates have such names."""


def test_principals_that_differ_behind_their_first_characters_are_two(world: OwnershipWorld) -> None:
    anna = owner(world, LONG + "anna")
    assert anna.claim(T).error_code == ErrorCode.NONE
    assert anna.write(T) == ErrorCode.NONE
    thief = owner(world, LONG + "eve", anna.owner_id)
    thief.generation, thief.incarnation = anna.generation, anna.incarnation
    standing = thief.claim(T, anna.generation)
    assert standing.error_code == REFUSED and "another principal" in (standing.error_message or "")
    assert released(thief) != ErrorCode.NONE
    assert released(anna) == ErrorCode.NONE


def test_a_long_principal_may_be_named_as_the_writer(world: OwnershipWorld) -> None:
    anna = owner(world, "anna")
    anna.claim(T, writer_principal=f"User:{LONG}ben")
    for user, expected in ((f"{LONG}ben", ErrorCode.NONE), (f"{LONG}eve", ErrorCode.POLICY_VIOLATION)):
        writer = client_of(world, user)
        produced = only_produced(writer.call(produce_request(T, batch(b"x"))))
        assert produced.error_code == expected


def test_a_principal_that_no_record_can_hold_is_refused(world: OwnershipWorld) -> None:
    endless = owner(world, "x" * 4000)
    answer = endless.client.call(endless.claim_request(T, 1))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "at most 3072 are allowed" in answer.error_message
