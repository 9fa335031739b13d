"""An owner of very many resources: its requests are handled a few resources a turn of the reactor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.ownership.operations import Resume
from holdfast_log.broker.ownership.renewals import _WAITING_MAX, AT_ONCE, Renewals
from holdfast_log.broker.ownership.resources import NamedGrant
from holdfast_log.broker.ownership.table import OwnershipTable
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.parts import PART_ROWS, PartedRequests
from holdfast_log.coordinator.ownership.records import NameKey
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import (
    HeldResource,
    RenewRequest,
    ResourceClaim,
    ResourceStanding,
    ResumedResource,
    ResumeRequest,
)
from tests.broker.ownership.machine import Machine
from tests.broker.ownership.world import Owner, OwnershipWorld

OFFSETS = "__consumer_offsets"
MANY = 2 * AT_ONCE + 100


class Turns:
    """Counts the calls of a method in each turn of the reactor."""

    def __init__(self, world: OwnershipWorld, patches: pytest.MonkeyPatch, of_class: type, name: str) -> None:
        self._world = world
        self.calls = [0]
        method: Callable[..., Any] = getattr(of_class, name)

        def counting(*arguments: Any) -> Any:
            self.calls[-1] += 1
            return method(*arguments)

        patches.setattr(of_class, name, counting)

    def take(self, owner: Owner) -> list[Any]:
        """Take turns, one by one, until none is due. Returns the answers that the owner has got by then."""
        clock = self._world.clock
        while due := [call for call in clock.calls if call.getTime() <= clock.seconds()]:
            clock.calls.remove(due[0])
            due[0].called = 1
            self.calls.append(0)
            due[0].func(*due[0].args, **due[0].kw)
        return owner.client.answers()


@pytest.fixture
def owner(world: OwnershipWorld) -> Owner:
    return owner_of_many(world)


def owner_of_many(world: OwnershipWorld) -> Owner:
    """The owner of `MANY` names."""
    world.lead(OFFSETS)
    world.dispatcher._parted = PartedRequests(LongAnswers(world.clock))
    owner = world.owner("anna")
    for start in range(0, MANY, 100):
        request = owner.claim_request("")
        request.resources = [
            ResourceClaim(name=f"n{start + number}", partition=-1, generation=1) for number in range(100)
        ]
        for standing in owner.client.call(request).resources:
            owner.take(standing)
    return owner


def renew(owner: Owner, max_wait_ms: int = 0, count: int = MANY, offset: int = 0) -> RenewRequest:
    request = owner.renew_request("", max_wait_ms=max_wait_ms)
    request.resources = [
        HeldResource(name=f"n{number}", partition=-1, incarnation=owner.incarnation)
        for number in range(offset, offset + count)
    ]
    return request


def resume(owner: Owner) -> ResumeRequest:
    request = owner.resume_request("")
    request.resources = [
        ResumedResource(name=f"n{number}", partition=-1, generation=1, incarnation=owner.incarnation)
        for number in range(MANY)
    ]
    return request


def test_a_renew_of_many_resources_looks_at_a_few_in_each_turn(
    world: OwnershipWorld, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(world, monkeypatch, OwnershipTable, "standing")
    owner.ask(renew(owner))
    (answer,) = turns.take(owner)
    assert [each.name for each in answer.resources] == [f"n{number}" for number in range(MANY)]
    assert {each.error_code for each in answer.resources} == {0}
    assert sum(turns.calls) == MANY
    assert max(turns.calls) <= 2 * AT_ONCE


def test_a_renew_of_many_resources_waits_until_one_has_changed(
    world: OwnershipWorld, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(world, monkeypatch, OwnershipTable, "standing")
    owner.ask(renew(owner, max_wait_ms=60_000))
    assert len(turns.take(owner)) == 1, "the owner has not been told its standings"
    owner.ask(renew(owner, max_wait_ms=60_000))
    assert not turns.take(owner)
    other = world.owner("ben")
    other.claim("n7", -1, -1)
    (answer,) = turns.take(owner)
    assert [each.name for each in answer.resources if each.is_contended] == ["n7"]
    assert max(turns.calls) <= 2 * AT_ONCE
    owner.ask(renew(owner, max_wait_ms=60_000))
    assert not turns.take(owner), "the owner knows already that somebody wants n7"
    world.clock.advance(60)
    assert len(turns.take(owner)) == 1


def test_a_change_while_the_resources_are_looked_at_is_not_missed(
    world: OwnershipWorld, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(world, monkeypatch, OwnershipTable, "standing")
    owner.ask(renew(owner, max_wait_ms=60_000))
    turns.take(owner)
    owner.ask(renew(owner, max_wait_ms=60_000))
    # The first ones have been looked at.
    assert 0 < turns.calls[-1] < MANY
    world.owner("ben").claim("n0", -1, -1)
    (answer,) = turns.take(owner)
    assert [each.name for each in answer.resources if each.is_contended] == ["n0"]


def test_a_later_renew_of_an_owner_ends_the_wait_of_an_earlier_one(
    world: OwnershipWorld, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(world, monkeypatch, OwnershipTable, "standing")
    owner.ask(renew(owner, max_wait_ms=60_000))
    turns.take(owner)
    owner.ask(renew(owner, max_wait_ms=60_000))
    assert not turns.take(owner)
    owner.ask(renew(owner, count=1))
    assert [len(each.resources) for each in turns.take(owner)] == [MANY, 1]


def test_a_renew_that_waits_ends_with_its_connection(world: OwnershipWorld, owner: Owner) -> None:
    renewals = world.ownership.service._renewals
    owner.ask(renew(owner, max_wait_ms=60_000))
    world.clock.advance(0)
    owner.client.answers()
    owner.ask(renew(owner, max_wait_ms=60_000))
    world.clock.advance(0)
    assert renewals._waiting_for_many[owner.client.connection.id]
    owner.client.connection.close("closed by the test")
    assert not renewals._waiting_for_many
    assert not owner.client.answers()


def test_a_renew_that_names_a_resource_of_another_broker_does_not_wait(
    world: OwnershipWorld, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(world, monkeypatch, OwnershipTable, "standing")
    for _ in range(2):
        request = renew(owner, max_wait_ms=60_000)
        request.resources.append(HeldResource(name="elsewhere", partition=3, incarnation=1))
        owner.ask(request)
        (answer,) = turns.take(owner)
        assert [each.error_code for each in answer.resources if each.error_code] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]


def test_many_grants_are_resumed_in_parts(
    world: OwnershipWorld, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[int] = []
    carry_out = Resume.carry_out
    monkeypatch.setattr(
        Resume, "carry_out", lambda self, *how: (keys.append(len(self.keys)), carry_out(self, *how))[1]
    )
    turns = Turns(world, monkeypatch, OwnershipTable, "submit")
    before = owner.client
    owner.reconnect()
    owner.ask(resume(owner))
    (answer,) = turns.take(owner)
    assert [each.name for each in answer.resources] == [f"n{number}" for number in range(MANY)]
    assert {each.error_code for each in answer.resources} == {0}
    assert max(keys) <= PART_ROWS
    assert max(turns.calls) <= 2
    assert before.connection.is_closed


def test_waiting_renews_of_a_connection_name_few_resources_together() -> None:
    """All of them are looked at when one resource of the connection changes."""
    machine = Machine()
    looked_at: list[int] = []

    def standings(requester: Any, named: list[NamedGrant]) -> list[ResourceStanding]:
        looked_at.append(len(named))
        return [ResourceStanding(name=each.key.name, partition=-1, error_code=0) for each in named]  # type: ignore[union-attr]

    renewals = Renewals(Clock(), standings, lambda *_: None)
    anna = machine.client("anna")
    named = [NamedGrant(NameKey("app", f"n{number}"), 1) for number in range(AT_ONCE)]
    for number in range(100):
        anna.owner_id = f"owner-{number}"
        renewals.renew(anna.requester, named, 0)
        renewals.renew(anna.requester, named, 60_000)
    looked_at.clear()
    renewals.changed(anna.connection)
    assert AT_ONCE < sum(looked_at) <= _WAITING_MAX + AT_ONCE
