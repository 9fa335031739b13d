"""Groups with very many names: a broker loads and unloads them in many turns of the reactor, because it must
renew its lease meanwhile, and confirms none that it no longer decides about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.ownership.alarms import FLUSH_INTERVAL_S
from holdfast_log.broker.ownership.group_names import NAMES_AT_ONCE
from holdfast_log.broker.ownership.shared_turns import SharedTurns
from holdfast_log.broker.ownership.table import OwnershipTable
from holdfast_log.coordinator.ownership import store
from holdfast_log.coordinator.ownership.records import NameKey, OwnershipRecord, encode_ownership
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import ResourceStanding
from tests.broker.ownership.machine import named_record
from tests.broker.ownership.world import Owner, OwnershipWorld

OFFSETS = "__consumer_offsets"
MANY = 3 * NAMES_AT_ONCE + 1


class CountedTurns:
    """Counts the calls of methods in each turn of the reactor."""

    def __init__(self, patches: pytest.MonkeyPatch) -> None:
        self._patches = patches
        self.calls = [0]
        begin = SharedTurns._begin

        def counted_begin(turns: SharedTurns) -> None:
            self.calls.append(0)
            begin(turns)

        patches.setattr(SharedTurns, "_begin", counted_begin)

    def count(self, of_class: type, name: str) -> None:
        method: Callable[..., None] = getattr(of_class, name)

        def counting(*arguments: Any) -> None:
            self.calls[-1] += 1
            method(*arguments)

        self._patches.setattr(of_class, name, counting)


def many_names(world: OwnershipWorld, *groups: str, prefix: str = "n") -> list[NameKey]:
    """Many names that have an owner, in ZooKeeper, of these groups in turn."""
    names = [NameKey(groups[number % len(groups)], f"{prefix}{number}") for number in range(MANY)]
    record = encode_ownership(named_record())
    for name in names:
        world.zookeeper.znodes[name.path] = (record, 0)
    return names


def claim(world: OwnershipWorld, owner: Owner, name: str, **fields: Any) -> ResourceStanding:
    """Claim a name of a group that may have to be loaded first."""
    owner.ask(owner.claim_request(name, **{"partition": -1, **fields}))
    while not (answers := owner.client.answers()):
        world.clock.advance(0)
    standing: ResourceStanding = answers[0].resources[0]
    owner.take(standing)
    return standing


def follow(world: OwnershipWorld, leader_epoch: int) -> None:
    """Another broker leads the partition that keeps the groups."""
    world.assign(OFFSETS, leader=2, leader_epoch=leader_epoch, replicas=(1, 2))


def known_names(world: OwnershipWorld) -> set[NameKey]:
    return {each.key for each in world.ownership.service.table.resources() if isinstance(each.key, NameKey)}


def test_a_broker_reads_many_names_in_many_turns_of_the_reactor(
    world: OwnershipWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one turn, 30,000 names would keep it from renewing its lease for seconds. All groups share a
    turn."""
    many_names(world, "app", "app1")
    world.lead(OFFSETS)
    decoded, decode = [0], store.decode_ownership

    def counted_decode(*arguments: Any) -> OwnershipRecord:
        decoded[-1] += 1
        return decode(*arguments)

    turns = CountedTurns(monkeypatch)
    turns.count(OwnershipTable, "load")
    monkeypatch.setattr(store, "decode_ownership", counted_decode)
    world.zookeeper.is_held = True
    anna = world.owner("anna")
    for group in ("app", "app1"):
        anna.group = group
        anna.ask(anna.claim_request("mine", partition=-1))
    for _ in range(50):
        requests, world.zookeeper.requests = world.zookeeper.requests, []
        for request in requests:
            world.zookeeper._instant.carry_out(request)
            decoded.append(0)
        world.clock.advance(0)
    world.zookeeper.release()

    assert (sum(turns.calls), sum(decoded)) == (MANY, MANY)
    assert max(turns.calls) <= NAMES_AT_ONCE and max(decoded) <= store.READ_AT_ONCE
    assert world.ownership.service.table._state.names == MANY + 2


def test_a_broker_that_leads_again_loads_many_names_in_many_turns_of_the_reactor(
    world: OwnershipWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker has granted some names meanwhile, and has forgotten others."""
    forgotten = many_names(world, "app")
    world.lead(OFFSETS)
    anna, ben = world.owner("anna"), world.owner("ben")
    claim(world, anna, "mine")
    ben.ask(ben.claim_request("mine", -1, partition=-1, wait_timeout_ms=-1))
    for name in forgotten:
        del world.zookeeper.znodes[name.path]
    granted = many_names(world, "app", prefix="other")
    turns = CountedTurns(monkeypatch)
    turns.count(OwnershipTable, "load")
    turns.count(OwnershipTable, "unload")

    world.lead(OFFSETS, leader_epoch=1)

    # Those granted elsewhere, those forgotten, mine, and the partition that keeps them.
    assert sum(turns.calls) == 2 * MANY + 2
    assert max(turns.calls) <= NAMES_AT_ONCE + 1
    assert known_names(world) == {*granted, NameKey("app", "mine")}
    ben.client.answers()
    anna.client.call(anna.release_request("mine", partition=-1))
    assert ben.renew("mine", -1).incarnation > 0, "who waited has kept the place"


def test_a_late_order_to_lead_in_an_earlier_epoch_takes_no_name_from_its_owner(
    world: OwnershipWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read for it may be out of date at once, because this broker goes on writing."""
    world.lead(OFFSETS, leader_epoch=1)
    anna = world.owner("anna")
    anna.claim("early", partition=-1)
    granted: list[ResourceStanding] = []
    read_names = store.OwnershipStore.read_names

    async def read_just_before_a_claim(self: store.OwnershipStore, group: str) -> store.FoundRecords:
        found = await read_names(self, group)
        granted.append(anna.claim("mine", partition=-1))
        return found

    monkeypatch.setattr(store.OwnershipStore, "read_names", read_just_before_a_claim)
    world.ownership.service.prepare(world.leader_and_isr(OFFSETS, 0, leader_epoch=0))
    if not granted:
        anna.claim("mine", partition=-1)

    assert anna.renew("mine", -1).error_code == 0
    assert world.owner("ben").claim("mine", -1, partition=-1).error_code == ErrorCode.RESOURCE_OWNED


def test_a_broker_that_leads_no_more_unloads_many_names_in_many_turns_of_the_reactor(
    world: OwnershipWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of two groups share each turn."""
    world.lead(OFFSETS)
    many_names(world, "app", "app1")
    claim(world, world.owner("anna", "app"), "mine")
    claim(world, world.owner("anna", "app1"), "mine")
    turns = CountedTurns(monkeypatch)
    turns.count(OwnershipTable, "unload")

    follow(world, 1)

    assert 0 < len(known_names(world)) < MANY
    while known_names(world):
        world.clock.advance(0)
    assert sum(turns.calls) == MANY + 3, "and both of mine, and the partition that keeps them"
    assert max(turns.calls) <= NAMES_AT_ONCE + 1


def test_a_name_that_is_not_unloaded_yet_is_confirmed_to_nobody(world: OwnershipWorld) -> None:
    """Its grant has been written, but another broker may have given it to someone else since."""
    world.lead(OFFSETS)
    many_names(world, "app")
    anna, ben = world.owner("anna"), world.owner("ben")
    claim(world, anna, "mine")
    world.zookeeper.is_held = True
    ben.ask(ben.claim_request("late", partition=-1))

    follow(world, 1)
    world.zookeeper.release()

    assert NameKey("app", "late") in known_names(world), "or this test shows nothing"
    assert [each.resources[0].error_code for each in ben.client.answers()] == [ErrorCode.NOT_COORDINATOR]
    assert anna.renew("mine", -1).error_code == ErrorCode.NOT_COORDINATOR
    assert world.ownership.service.resources() == [], "nor is it described"


def test_a_broker_that_leads_again_reads_names_once_the_former_ones_are_unloaded(
    world: OwnershipWorld,
) -> None:
    """Otherwise it would find a name known, and then unload it."""
    many_names(world, "other")
    world.lead(OFFSETS)
    claim(world, world.owner("first in the other group", "other"), "mine")
    anna = world.owner("anna")
    claim(world, anna, "mine")
    follow(world, 1)
    world.lead(OFFSETS, leader_epoch=2)

    refused = claim(world, world.owner("ben"), "mine", generation=-1)
    world.clock.advance(1)

    assert refused.error_code == ErrorCode.RESOURCE_OWNED
    assert known_names(world) == {NameKey("app", "mine")}


def test_nothing_is_written_about_a_name_from_a_former_leadership(tmp_path: Path) -> None:
    """Its owner may have resumed at the broker that led in between, which needs no write."""
    world = OwnershipWorld(tmp_path, **{"own.release.grace.ms": 0})
    world.lead(OFFSETS)
    many_names(world, "app")
    anna = world.owner("anna")
    claim(world, anna, "mine")
    mine = NameKey("app", "mine")
    written = world.zookeeper.znodes[mine.path]
    follow(world, 1)
    world.lead(OFFSETS, leader_epoch=2)
    assert mine in known_names(world), "or this test shows nothing"

    anna.client.connection.close("it has resumed at another broker")
    world.clock.advance(FLUSH_INTERVAL_S)

    assert world.zookeeper.znodes[mine.path] == written
    assert mine not in known_names(world)
