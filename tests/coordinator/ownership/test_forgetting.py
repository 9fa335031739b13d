"""Names are forgotten in ZooKeeper in one step, and the mark for their incarnations only rises."""

from __future__ import annotations

from dataclasses import replace

import pytest
from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.cluster.identity import create_if_missing
from holdfast_log.coordinator.ownership.records import (
    Forgotten,
    Grant,
    NameKey,
    Owner,
    OwnershipRecord,
    decode_mark,
    encode_mark,
    owned_names_path,
)
from holdfast_log.coordinator.ownership.store import (
    NO_ZNODE,
    DecidingPartition,
    NotLeading,
    OwnershipStore,
    Replacement,
    Superseded,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.znodes.layout import OWNED_NAMES, OWNED_TOPICS
from holdfast_log.coordinator.znodes.topics import (
    PartitionState,
    encode_partition_state,
    partition_state_path,
)
from holdfast_log.coordinator.zookeeper.interface import ZooKeeper
from tests.models.grounds import Ground
from tests.models.instant_zookeeper import InstantZooKeeper

GROUP = "app"
DECIDER = DecidingPartition("__consumer_offsets", 0, leader=1, leader_epoch=3, state_version=0)
STATE = partition_state_path("__consumer_offsets", 0)
HIGH = 2**60
"""An incarnation far above the number of any transaction of these tests."""


def key(number: int) -> NameKey:
    return NameKey(GROUP, f"n{number}")


def record(incarnation: int) -> OwnershipRecord:
    owner = Owner("anna", "client", "User:ANONYMOUS", "127.0.0.1", 10_000)
    return OwnershipRecord(incarnation, {GROUP: (Grant(1, incarnation, owner, -1, 0),)})


async def a_store(zookeeper: ZooKeeper, *incarnations: int) -> OwnershipStore:
    """A store with a name for each incarnation, decided by broker 1."""
    session = zookeeper.session
    for path in (OWNED_TOPICS, OWNED_NAMES):
        await create_if_missing(session, path)
    await create_if_missing(session, STATE, encode_partition_state(PartitionState(1, 3, (1,), 1)))
    store = OwnershipStore(zookeeper)
    if incarnations:
        written = [
            Replacement(key(number), record(incarnation), NO_ZNODE, DECIDER)
            for number, incarnation in enumerate(incarnations)
        ]
        assert await store.write(written) == [0] * len(written)
    return store


def forgotten(number: int, incarnation: int, version: int = 0) -> Replacement:
    return Replacement(key(number), Forgotten(incarnation), version, DECIDER)


async def mark(zookeeper: ZooKeeper) -> int:
    data, _ = await zookeeper.session.get(OWNED_NAMES)
    return decode_mark(data)


async def known(store: OwnershipStore) -> set[str]:
    found = await store.read_names(GROUP)
    return {each.key.name for each in found.records if isinstance(each.key, NameKey)}


def test_names_are_forgotten_and_later_incarnations_begin_above_theirs(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        zookeeper = ground.client()
        store = await a_store(zookeeper, HIGH, HIGH + 7, 5)
        assert await store.write([forgotten(0, HIGH), forgotten(1, HIGH + 7)]) == [NO_ZNODE, NO_ZNODE]
        assert await known(store) == {"n2"}
        assert await mark(zookeeper) == HIGH + 7
        other = OwnershipStore(ground.client())
        assert (await other.read_names(GROUP)).incarnations_from >= HIGH + 7
        assert (await other.read(key(0))).incarnations_from >= HIGH + 7
        assert (await other.read_names("another group")).incarnations_from >= HIGH + 7

    ground.play(scenario)


def test_the_mark_is_never_lowered(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        zookeeper = ground.client()
        store = await a_store(zookeeper, HIGH, 5)
        await store.write([forgotten(0, HIGH)])
        await store.write([forgotten(1, 5)])
        assert await mark(zookeeper) == HIGH

    ground.play(scenario)


def test_a_group_without_names_leaves_nothing_behind(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        zookeeper = ground.client()
        store = await a_store(zookeeper, 5, 6)
        await store.write([forgotten(0, 5)])
        assert await zookeeper.session.exists(owned_names_path(GROUP)) is not None
        await store.write([forgotten(1, 6)])
        assert await zookeeper.session.exists(owned_names_path(GROUP)) is None
        assert await store.write([Replacement(key(1), record(9), NO_ZNODE, DECIDER)]) == [0]

    ground.play(scenario)


def test_nothing_is_forgotten_where_one_record_has_changed(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        zookeeper = ground.client()
        store = await a_store(zookeeper, 5, HIGH)
        await store.write([Replacement(key(0), record(6), 0, DECIDER)])
        with pytest.raises(Superseded):
            await store.write([forgotten(1, HIGH), forgotten(0, 5)])
        assert await known(store) == {"n0", "n1"}
        assert await mark(zookeeper) == 0

    ground.play(scenario)


@pytest.mark.parametrize("changed", [0, 1])
def test_a_write_of_several_records_fails_if_one_has_changed(ground: Ground, changed: int) -> None:
    async def scenario(ground: Ground) -> None:
        store = await a_store(ground.client(), 5, 6)
        await store.write([Replacement(key(changed), record(8), 0, DECIDER)])
        with pytest.raises(Superseded):
            await store.write([Replacement(key(number), record(9), 0, DECIDER) for number in (0, 1)])

    ground.play(scenario)


def test_a_broker_that_was_replaced_forgets_nothing(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        zookeeper = ground.client()
        store = await a_store(zookeeper, HIGH)
        await zookeeper.session.set(STATE, encode_partition_state(PartitionState(2, 4, (1, 2), 1)))
        with pytest.raises(NotLeading):
            await store.write([forgotten(0, HIGH)])
        assert await known(store) == {"n0"}
        assert await mark(zookeeper) == 0

    ground.play(scenario)


def test_a_leader_whose_partition_has_changed_in_its_epoch_still_forgets(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        zookeeper = ground.client()
        store = await a_store(zookeeper, 5)
        await zookeeper.session.set(STATE, encode_partition_state(PartitionState(1, 3, (1, 2), 1)))
        assert await store.write([forgotten(0, 5)]) == [NO_ZNODE]
        assert await known(store) == set()

    ground.play(scenario)


def test_a_mark_raised_by_another_broker_meanwhile_stays(ground: Ground) -> None:
    """Both have read the mark before either writes it; the second finds another version, and reads again."""

    async def scenario(ground: Ground) -> None:
        zookeeper, other = ground.client(), ground.client()
        store = await a_store(zookeeper, HIGH, HIGH + 5)
        rival = OwnershipStore(other)
        first = ensureDeferred(store.write([forgotten(1, HIGH + 5)]))
        second = ensureDeferred(rival.write([forgotten(0, HIGH)]))
        await first
        await second
        assert await mark(zookeeper) == HIGH + 5
        assert await known(store) == set()

    ground.play(scenario)


@pytest.mark.parametrize("incarnation", [5, HIGH])
def test_an_answer_that_is_lost_is_found_out(incarnation: int) -> None:
    zookeeper = InstantZooKeeper()
    zookeeper.start()
    outcomes: list[object] = []

    async def scenario() -> list[int]:
        store = await a_store(zookeeper, incarnation)
        zookeeper.loses_answer = True
        return await store.write([forgotten(0, incarnation)])

    ensureDeferred(scenario()).addBoth(outcomes.append)
    assert outcomes == [[NO_ZNODE]]
    assert key(0).path not in zookeeper.znodes


def test_a_mark_that_cannot_be_decoded_forbids_to_forget() -> None:
    """The number of ZooKeeper's transactions still keeps incarnations from being set back."""
    zookeeper = InstantZooKeeper()
    zookeeper.start()
    outcomes: list[object] = []

    async def scenario() -> None:
        store = await a_store(zookeeper, 5)
        await zookeeper.session.set(OWNED_NAMES, b"?")
        found = await store.read_names(GROUP)
        assert [each.key for each in found.records] == [key(0)]
        assert found.incarnations_from > 5
        await store.write([forgotten(0, 5)])

    ensureDeferred(scenario()).addBoth(outcomes.append)
    (failure,) = outcomes
    assert isinstance(failure, Failure)
    assert failure.check(BadZnode)


def test_the_mark_is_read_back() -> None:
    assert [decode_mark(encode_mark(number)) for number in (0, 1, HIGH)] == [0, 1, HIGH]
    assert decode_mark(b"") == 0


@pytest.mark.parametrize("data", [b"?", b"[]", b"{}", b'{"incarnations_from": "x"}', b"5"])
def test_what_is_no_mark_is_not_decoded(data: bytes) -> None:
    with pytest.raises(BadZnode):
        decode_mark(data)


def test_records_and_forgotten_names_are_written_together(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        zookeeper = ground.client()
        store = await a_store(zookeeper, 5, 6)
        changed = Replacement(key(1), replace(record(6), incarnation=7), 0, DECIDER)
        assert await store.write([forgotten(0, 5), changed]) == [NO_ZNODE, 1]
        assert await known(store) == {"n1"}

    ground.play(scenario)
