"""The own API, sentence by sentence: what a claim does to the ownership table."""

from __future__ import annotations

import pytest

from holdfast_log.broker.ownership.rules import check_generation
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import IF_FREE, Access, LossReason
from tests.broker.ownership.machine import NAME, P0, P1, SESSION_MS, Client, Machine


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def anna(machine: Machine) -> Client:
    """The owner of P0."""
    anna = machine.client("anna")
    anna.claim(P0)
    return anna


@pytest.fixture
def release(machine: Machine, anna: Client) -> int:
    """The ticket of anna's release of P0, whose write to ZooKeeper is not answered yet."""
    machine.flush()
    machine.holds_writes = True
    return anna.ask_release(P0)


def test_without_an_owner_the_claimant_gets_generation_1(machine: Machine) -> None:
    """ "If there is no such owner then the connection of the requesting process is made the owner and we
    return generation 1"."""
    anna = machine.client("anna")

    standing = anna.claim(P0, 5)

    assert (standing.error_code, standing.generation) == (0, 1)
    assert machine.owner_of(P0) == "anna"


def test_a_claim_below_the_generation_in_force_fails(machine: Machine, anna: Client) -> None:
    """ "If the existing owner has a higher generation the request fails, returning an error_code"."""
    ben = machine.client("ben")
    anna.claim(P0, 7)

    standing = ben.claim(P0, 6)

    assert standing.error_code == ErrorCode.STALE_GENERATION
    assert (standing.generation, standing.owner_id) == (7, "anna")
    assert machine.owner_of(P0) == "anna"
    assert machine.severed == []


@pytest.mark.parametrize("named", [3, 4, 9])
def test_an_equal_or_higher_generation_severs_the_owner(machine: Machine, named: int) -> None:
    """ "If the existing owner has a an equal or lower generation the existing owner's connection is
    severed"."""
    anna, ben = machine.client("anna"), machine.client("ben")
    for generation in (1, 2, 3):
        anna.claim(P0, generation)
    assert machine.entry(P0).generation == 3

    standing = ben.claim(P0, named)

    assert standing.error_code == 0
    assert machine.severed == [anna.connection]
    assert not anna.is_open
    assert machine.owner_of(P0) == "ben"


def test_generation_0_always_succeeds_and_resets_the_generation(machine: Machine, anna: Client) -> None:
    """ "Generation 0 will have special meaning. It will always succeed in claiming the resource, and will
    reset the generation"."""
    ben = machine.client("ben")
    anna.claim(P0, 40)

    standing = ben.claim(P0, 0)

    assert (standing.error_code, standing.generation) == (0, 1)
    assert machine.severed == [anna.connection]
    assert machine.owner_of(P0) == "ben"


def test_a_resource_may_be_any_string(machine: Machine) -> None:
    """ "For our use case resources will always be topic-partition pairs, but they could be any arbitrary
    string"."""
    anna, ben = machine.client("anna"), machine.client("ben")

    assert anna.claim(NAME).generation == 1
    standing = ben.claim(NAME, 1)

    assert (standing.error_code, standing.generation, standing.fence_offset) == (0, 2, -1)
    assert machine.severed == [anna.connection]


def test_owners_are_kept_by_group_and_resource(machine: Machine) -> None:
    """ "a hash table of (group, resource) => (owner, generation)": readers of two groups own the same
    partition."""
    anna = machine.client("anna", "left", Access.READ)
    ben = machine.client("ben", "right", Access.READ)

    assert anna.claim(P0).generation == 1
    assert ben.claim(P0).generation == 1

    assert machine.owner_of(P0, "left") == "anna"
    assert machine.owner_of(P0, "right") == "ben"
    assert machine.severed == []


def test_each_connection_has_its_groups_and_owned_resources(machine: Machine) -> None:
    """ "The server will keep an optional group, and set of owned resources associated with each
    connection"."""
    anna = machine.client("anna")
    anna.claim_all((P0, 1), (P1, 1))

    holdings = machine.table.holdings(anna.connection)

    assert holdings is not None
    assert list(holdings.groups) == ["app"]
    assert list(holdings.keys) == [P0, P1]


def test_severing_an_owner_frees_all_resources_of_its_connection(machine: Machine) -> None:
    anna, ben = machine.client("anna"), machine.client("ben")
    anna.claim_all((P0, 1), (P1, 1))

    ben.claim(P0, 1)

    assert machine.owner_of(P1) is None
    assert [grant.reason for grant in machine.entry(P1).history] == [LossReason.DISCONNECTED]


# Cases that the own API does not specify.


def test_a_free_resource_keeps_its_generation(machine: Machine, anna: Client) -> None:
    ben = machine.client("ben")
    anna.close()

    assert ben.claim(P0, 1).generation == 2
    ben.close()
    machine.connect(anna)
    assert anna.claim(P0, 1).error_code == ErrorCode.STALE_GENERATION
    assert anna.claim(P0, 2).generation == 3


def test_a_generation_chosen_by_the_client_is_kept(machine: Machine) -> None:
    """A job uses its attempt number as the generation, so an earlier attempt cannot steal back."""
    second, third = machine.client("attempt 2"), machine.client("attempt 3")
    second.claim(P0, 2)
    assert second.claim(P0, 2).generation == 2

    assert third.claim(P0, 3).generation == 3

    machine.connect(second)
    assert second.claim(P0, 2).error_code == ErrorCode.STALE_GENERATION


def test_a_claim_of_generation_minus_1_takes_only_a_free_resource(machine: Machine) -> None:
    anna, ben = machine.client("anna"), machine.client("ben")
    assert anna.claim(P0, -1).generation == 1

    refused = ben.claim(P0, -1)
    assert (refused.error_code, refused.owner_id) == (ErrorCode.RESOURCE_OWNED, "anna")

    anna.close()
    assert ben.claim(P0, -1).generation == 2


def test_only_one_group_writes_a_partition(machine: Machine) -> None:
    anna, ben = machine.client("anna", "left"), machine.client("ben", "right")
    anna.claim(P0)

    refused = ben.claim(P0, 9)
    assert (refused.error_code, refused.owner_id) == (ErrorCode.RESOURCE_OWNED, "anna")

    assert ben.claim(P0, 0).generation == 1
    assert machine.severed == [anna.connection]
    assert machine.owner_of(P0, "left") is None


def test_waiters_are_promoted_first_come_first_served(machine: Machine, anna: Client) -> None:
    ben, cleo = machine.client("ben"), machine.client("cleo")
    assert ben.claim(P0, -1, wait_ms=60_000).position == 1
    assert cleo.claim(P0, -1, wait_ms=60_000).position == 2

    anna.release(P0)

    assert machine.owner_of(P0) == "ben"
    assert ben.renew(P0).generation == 2
    assert cleo.renew(P0).position == 1
    ben.close()
    assert machine.owner_of(P0) == "cleo"


def test_a_waiter_leaves_the_queue_after_its_wait_timeout(machine: Machine, anna: Client) -> None:
    ben = machine.client("ben")
    ben.claim(P0, -1, wait_ms=1000)

    machine.advance(999, anna, ben)
    assert ben.renew(P0).error_code == ErrorCode.CLAIM_QUEUED
    machine.advance(1, anna, ben)

    assert ben.renew(P0).error_code == ErrorCode.REQUEST_TIMED_OUT
    anna.close()
    assert machine.owner_of(P0) is None


@pytest.mark.parametrize("earlier_ms", [-1, 1500, 60_000])
def test_a_waiter_that_claims_again_keeps_its_place_and_waits_as_long_as_it_said_last(
    machine: Machine, anna: Client, earlier_ms: int
) -> None:
    """Its first claim may have got no answer in time, so the client does not know that it waits."""
    ben, cleo = machine.client("ben"), machine.client("cleo")
    ben.claim(P0, -1, wait_ms=earlier_ms)
    cleo.claim(P0, -1, wait_ms=-1)
    machine.advance(1000, anna, ben, cleo)

    assert ben.claim(P0, -1, wait_ms=1000).position == 1

    machine.advance(999, anna, ben, cleo)
    assert ben.renew(P0).error_code == ErrorCode.CLAIM_QUEUED
    machine.advance(1, anna, ben, cleo)
    assert ben.renew(P0).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert cleo.renew(P0).position == 1


def test_a_silent_waiter_loses_its_place(machine: Machine, anna: Client) -> None:
    ben = machine.client("ben")
    ben.claim(P0, -1, wait_ms=-1)

    machine.advance(SESSION_MS, anna)

    assert ben.renew(P0).error_code == ErrorCode.REQUEST_TIMED_OUT


def test_an_owner_cannot_resume_after_a_release(machine: Machine, anna: Client) -> None:
    assert anna.release(P0).error_code == 0

    fenced = anna.resume(P0)
    assert (fenced.error_code, fenced.reason) == (ErrorCode.OWNERSHIP_FENCED, LossReason.RELEASED)
    assert machine.severed == []


def test_an_administrator_can_release_an_owned_resource(machine: Machine, anna: Client) -> None:
    assert machine.force_release(P0, generation=9).error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert machine.force_release(P0, generation=1).owner_id == "anna"

    assert machine.severed == [anna.connection]
    anna.reconnect()
    fenced = anna.resume(P0)
    assert (fenced.error_code, fenced.reason) == (ErrorCode.OWNERSHIP_FENCED, LossReason.FORCED)


@pytest.mark.parametrize("generation", [-2, -(2**63)])
def test_generations_out_of_range_are_refused(generation: int) -> None:
    with pytest.raises(BrokerError) as raised:
        check_generation(generation)
    assert raised.value.code is ErrorCode.INVALID_GENERATION


def test_a_release_is_answered_when_it_is_durable(machine: Machine, release: int) -> None:
    assert not machine.is_answered(release)
    machine.settle_writes()
    assert machine.answer(release)[0].error_code == 0
    machine.holds_writes = False
    machine.fail_over()
    assert machine.client("ben").claim(P0, generation=IF_FREE).error_code == 0


def test_a_release_that_cannot_be_written_changes_nothing(
    machine: Machine, anna: Client, release: int
) -> None:
    machine.settle_writes(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    with pytest.raises(BrokerError):
        machine.answer(release)
    assert anna.renew(P0).error_code == 0


def test_an_owner_that_disconnects_while_its_release_is_written_has_released(
    machine: Machine, anna: Client, release: int
) -> None:
    anna.close()
    machine.settle_writes()
    assert machine.answer(release)[0].error_code == 0
    machine.holds_writes = False
    anna.reconnect()
    refused = anna.resume(P0)
    assert (refused.error_code, refused.reason) == (ErrorCode.OWNERSHIP_FENCED, LossReason.RELEASED)
