"""Access control lists on a real ZooKeeper: every broker follows them, in spite of lost notifications."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, gatherResults, succeed

from holdfast_log.coordinator.cluster.acls import UNREADABLE, AccessControlLists, AclEntries, Acls
from holdfast_log.coordinator.cluster.change_notifications import EXPIRATION_MS, ChangeNotifications
from holdfast_log.coordinator.znodes.acls import (
    ACL_CHANGES,
    ACL_FOLDERS,
    acl_change_prefix,
    acl_path,
    decode_acl_change,
    encode_acls,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import ZooKeeperSession
from holdfast_log.coordinator.zookeeper.kazoo_zookeeper import KazooZooKeeper
from holdfast_log.protocol.acl_bindings import AclEntry, ResourcePattern
from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource
from tests.coordinator.zookeeper.test_zookeeper import connected
from tests.reactor import on_reactor, reactor, until

T = ResourcePattern(AclResource.TOPIC, "t")
PREFIXED = ResourcePattern(AclResource.TRANSACTIONAL_ID, "tx-é", AclPattern.PREFIXED)
NONE: AclEntries = frozenset()


def entry(principal: str = "User:alice") -> AclEntry:
    return AclEntry(principal, "*", AclOperation.READ, AclPermission.ALLOW)


def adding(*entries: AclEntry) -> Callable[[AclEntries], AclEntries]:
    return lambda present: present | set(entries)


@asynccontextmanager
async def following(
    connect: str, *, expiration_ms: int = EXPIRATION_MS
) -> AsyncIterator[tuple[AccessControlLists, KazooZooKeeper]]:
    async with connected(connect) as client:
        lists = AccessControlLists(client, reactor, expiration_ms=expiration_ms)
        await lists.load()
        lists.registered(client.session, 1)
        await until(lambda: not lists._is_behind)
        yield lists, client


@on_reactor
async def test_a_change_reaches_other_brokers_at_once_and_together(zookeeper: str) -> None:
    async with following(zookeeper) as (one, _), following(zookeeper) as (two, _):
        heard: list[Acls] = []
        two.add_listener(heard.append)
        await one.update(T, adding(entry()))
        assert one.present == {T: {entry()}}
        await until(lambda: two.present == {T: {entry()}})
        await two.update(PREFIXED, adding(entry("User:bob"), entry()))
        await until(lambda: PREFIXED in one.present)
        await one.update(T, lambda present: NONE)
        await until(lambda: T not in two.present)
        assert heard == [{T: {entry()}}, {PREFIXED: {entry("User:bob"), entry()}}, {T: NONE}]


@on_reactor
async def test_all_lists_are_read_at_start(zookeeper: str) -> None:
    async with following(zookeeper) as (one, client):
        await gatherResults([one.update(pattern, adding(entry())) for pattern in (T, PREFIXED)])
        for folder in ACL_FOLDERS:
            assert await client.session.exists(folder) is not None
        async with following(zookeeper) as (two, _):
            assert two.present == {T: {entry()}, PREFIXED: {entry()}}


@on_reactor
async def test_concurrent_changes_are_all_kept(zookeeper: str) -> None:
    async with following(zookeeper) as (one, _), following(zookeeper) as (two, _):
        await gatherResults(
            [
                lists.update(T, adding(entry(f"User:{name}{number}")))
                for name, lists in (("one", one), ("two", two))
                for number in range(5)
            ]
        )
        everyone = {entry(f"User:{name}{number}") for name in ("one", "two") for number in range(5)}
        await until(lambda: one.present == two.present == {T: everyone})


@on_reactor
async def test_a_rejected_change_changes_nothing(zookeeper: str) -> None:
    async with following(zookeeper) as (one, client):

        def refuse(present: AclEntries) -> AclEntries:
            raise ValueError("not allowed")

        with pytest.raises(ValueError, match="not allowed"):
            await one.update(T, refuse)
        assert await client.session.exists(acl_path(T)) is None
        assert await client.session.children(ACL_CHANGES) == []


@on_reactor
async def test_a_change_without_a_difference_writes_and_announces_nothing(zookeeper: str) -> None:
    async with following(zookeeper) as (one, client):
        await one.update(T, adding(entry()))
        await one.update(T, adding(entry()))
        _, stat = await client.session.get(acl_path(T))
        assert stat.version == 0 and len(await client.session.children(ACL_CHANGES)) == 1


@on_reactor
async def test_a_malformed_notification_makes_brokers_read_everything(
    zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(zookeeper) as (one, client):
        await client.session.create(acl_path(T), encode_acls([entry()]))
        await client.session.create(f"{ACL_CHANGES}/acl_changes_", b"nonsense", sequence=True)
        await until(lambda: one.present == {T: {entry()}})
        assert "everything is read again" in caplog.text


@on_reactor
async def test_a_notification_that_is_gone_before_it_is_read_makes_brokers_read_everything() -> None:
    class Session:
        """A session on which another broker removes a notification between the two reads."""

        def children(self, path: str, watch: Any) -> Deferred[list[str]]:
            return succeed(["acl_changes_0000000007"])

        def get_all(self, paths: list[str]) -> Deferred[list[None]]:
            return succeed([None for _ in paths])

    session = cast(ZooKeeperSession, Session())
    notifications = ChangeNotifications(acl_change_prefix(T), decode_acl_change)
    assert await notifications.news(session, lambda event: None) is None
    assert await notifications.news(session, lambda event: None) == [], "it is seen once"


@on_reactor
async def test_a_list_that_cannot_be_read_denies_everything_until_it_is_repaired(
    zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(zookeeper) as (one, client):
        await one.update(T, adding(entry()))
        await client.session.set(acl_path(T), b"not JSON")
        await client.session.create(f"{ACL_CHANGES}/acl_changes_", b"Topic:t", sequence=True)
        await until(lambda: one.present == {T: UNREADABLE})
        assert "until the znode is repaired or removed" in caplog.text
        with pytest.raises(BadZnode):
            await one.update(T, adding(entry("User:bob")))
        await client.session.set(acl_path(T), encode_acls([entry()]))
        await client.session.create(f"{ACL_CHANGES}/acl_changes_", b"TOPIC:t", sequence=True)
        await until(lambda: one.present == {T: {entry()}})


@on_reactor
async def test_what_has_changed_while_there_was_no_session_is_found_on_the_next_one(zookeeper: str) -> None:
    async with following(zookeeper) as (one, client):
        await one.update(T, adding(entry()))
        one.suspended()
        one.expired()
        assert one.present == {T: {entry()}}
        async with following(zookeeper) as (two, _):
            await two.update(T, lambda present: NONE)
            await two.update(PREFIXED, adding(entry()))
        assert one.present == {T: {entry()}}, "what was read last stays in force"
        one.registered(client.session, 2)
        await until(lambda: one.present == {PREFIXED: {entry()}})


@on_reactor
async def test_notifications_much_older_than_the_newest_are_removed(zookeeper: str) -> None:
    async with following(zookeeper, expiration_ms=200) as (one, client):
        await one.update(T, adding(entry()))
        (first,) = await client.session.children(ACL_CHANGES)
        count = 0
        while first in await client.session.children(ACL_CHANGES):
            count += 1
            await one.update(T, adding(entry(f"User:{count}")))
