"""Dynamic configs on a real ZooKeeper: changes reach every broker, and old notifications are removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from twisted.internet.defer import gatherResults
from twisted.internet.task import Clock

from holdfast_log.coordinator.cluster.change_notifications import EXPIRATION_MS
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs
from holdfast_log.coordinator.cluster.identity import prepare_layout
from holdfast_log.coordinator.znodes.configs import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    config_path,
    encode_config,
    encode_config_change,
)
from holdfast_log.coordinator.zookeeper.kazoo_zookeeper import KazooZooKeeper
from tests.coordinator.zookeeper.test_zookeeper import connected
from tests.reactor import on_reactor, reactor, until


@asynccontextmanager
async def following(
    connect: str, clock: Any = reactor, *, expiration_ms: int = EXPIRATION_MS
) -> AsyncIterator[tuple[DynamicConfigs, KazooZooKeeper]]:
    async with connected(connect) as client:
        await prepare_layout(client.session)
        configs = DynamicConfigs(client, clock, expiration_ms=expiration_ms)
        await configs.load()
        configs.registered(client.session, 1)
        await until(lambda: not configs._is_behind)
        yield configs, client


@on_reactor
async def test_a_change_reaches_other_brokers(zookeeper: str) -> None:
    async with following(zookeeper) as (one, _), following(zookeeper) as (two, _):
        heard: list[tuple[str, str, dict[str, str]]] = []
        two.add_listener(lambda kind, name, configs: heard.append((kind, name, dict(configs))))
        await one.update("topics", "t", lambda old: {**old, "retention.ms": "5"})
        assert one.get("topics", "t") == {"retention.ms": "5"}
        await until(lambda: two.get("topics", "t") == {"retention.ms": "5"})
        await one.update("clients", "c", lambda old: {"producer_byte_rate": "1024"})
        await one.update("topics", "t", lambda old: {})
        await until(lambda: two.get("topics", "t") == {} and two.get("clients", "c") != {})
        assert heard == [
            ("topics", "t", {"retention.ms": "5"}),
            ("clients", "c", {"producer_byte_rate": "1024"}),
            ("topics", "t", {}),
        ]
        assert two.entities("clients") == ["c"]


@on_reactor
async def test_a_znode_that_is_no_notification_does_not_hide_later_notifications(zookeeper: str) -> None:
    async with following(zookeeper) as (one, client), following(zookeeper) as (two, _):
        await client.session.create("/config/changes/zzz", b"{")
        await one.update("topics", "t", lambda old: {"retention.ms": "5"})
        await until(lambda: two.get("topics", "t") == {"retention.ms": "5"})
        await one.update("topics", "t", lambda old: {"retention.ms": "6"})
        await until(lambda: two.get("topics", "t") == {"retention.ms": "6"})


@on_reactor
async def test_concurrent_changes_are_all_kept(zookeeper: str) -> None:
    async with following(zookeeper) as (one, _), following(zookeeper) as (two, _):

        def adding(key: str) -> Callable[[dict[str, str]], dict[str, str]]:
            return lambda old: {**old, key: "x"}

        await gatherResults(
            [
                each.update("topics", "t", adding(f"{name}{number}"))
                for name, each in (("one", one), ("two", two))
                for number in range(5)
            ]
        )
        found = await one.refresh("topics", "t")
        assert sorted(found) == sorted(f"{name}{number}" for name in ("one", "two") for number in range(5))


@on_reactor
async def test_a_rejected_change_changes_nothing(zookeeper: str) -> None:
    async with following(zookeeper) as (one, client):

        def refuse(old: dict[str, str]) -> dict[str, str]:
            raise ValueError("not allowed")

        with pytest.raises(ValueError, match="not allowed"):
            await one.update("topics", "t", refuse)
        assert await client.session.exists(config_path("topics", "t")) is None
        assert await client.session.children(CONFIG_CHANGES) == []


@on_reactor
async def test_a_malformed_config_leaves_the_previous_values(
    zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(zookeeper) as (one, client):
        await one.update("topics", "t", lambda old: {"a": "1"})
        await client.session.set(config_path("topics", "t"), b"not JSON")
        assert await one.refresh("topics", "t") == {"a": "1"}
        await client.session.create(CONFIG_CHANGE_PREFIX, b"nonsense", sequence=True)
        await one.update("topics", "u", lambda old: {"b": "2"})
        await until(lambda: one.get("topics", "u") == {"b": "2"})
        assert "ignoring a malformed config, the previous values stay" in caplog.text


@on_reactor
async def test_notifications_much_older_than_the_newest_are_removed(zookeeper: str) -> None:
    async with following(zookeeper, expiration_ms=200) as (one, client):
        await one.update("topics", "t", lambda old: {"a": "1"})
        (first,) = await client.session.children(CONFIG_CHANGES)
        while first in await client.session.children(CONFIG_CHANGES):
            await one.update("topics", "t", lambda old: {"a": "2"})


@on_reactor
async def test_a_broker_whose_clock_is_ahead_removes_no_notification_that_others_have_not_read(
    zookeeper: str,
) -> None:
    clock = Clock()
    clock.advance(reactor.seconds() + 10 * EXPIRATION_MS / 1000)
    async with following(zookeeper, clock) as (one, client):
        await one.update("topics", "t", lambda old: {"a": "1"})
        await one.update("topics", "t", lambda old: {"a": "2"})
        await until(lambda: one._notifications[0]._last_seen.endswith("1") and not one._is_following)
        assert len(await client.session.children(CONFIG_CHANGES)) == 2


@on_reactor
async def test_a_broker_that_misses_a_notification_reads_all_configs(zookeeper: str) -> None:
    async with following(zookeeper) as (one, client), connected(zookeeper) as other:
        children = client.session.children

        def with_one_that_is_gone(path: str, *watch: Any) -> Any:
            gone = ["config_change_0000099999"] if path == CONFIG_CHANGES else []
            return children(path, *watch).addCallback(lambda names: [*names, *gone])

        client.session.children = with_one_that_is_gone
        await other.session.create(config_path("topics", "t"), encode_config({"a": "1"}))
        await other.session.create(CONFIG_CHANGE_PREFIX, encode_config_change("topics", "u"), sequence=True)
        await until(lambda: one.get("topics", "t") == {"a": "1"})


@on_reactor
async def test_a_change_looks_at_no_notification_that_cannot_be_old_yet(zookeeper: str) -> None:
    async with following(zookeeper) as (one, client), connected(zookeeper) as other:
        for _ in range(60):
            await other.session.create(CONFIG_CHANGE_PREFIX, b"nonsense", sequence=True)
        await one.update("topics", "t", lambda old: {"a": "0"})
        looks: list[str] = []
        exists = client.session.exists
        client.session.exists = lambda path, *watch: (looks.append(path), exists(path, *watch))[1]
        for number in range(10):
            await one.update("topics", "t", lambda old, number=number: {"a": str(number)})
            await until(lambda: not one._is_following)
        assert len([path for path in looks if path.startswith(CONFIG_CHANGES)]) <= 60


@on_reactor
async def test_the_configs_of_users_clients_are_loaded_changed_and_followed(zookeeper: str) -> None:
    name = "anna/clients/<default>"
    async with following(zookeeper) as (one, client), following(zookeeper) as (two, _):
        await one.update("users", name, lambda old: {**old, "producer_byte_rate": "1"})
        await until(lambda: two.get("users", name) == {"producer_byte_rate": "1"})
        assert await client.session.get("/config/users/anna") is not None
        assert one.get("users", "anna") == {}
        await one.update("users", name, lambda old: {**old, "producer_byte_rate": "2"})
        await until(lambda: two.get("users", name) == {"producer_byte_rate": "2"})
        async with following(zookeeper) as (three, _):
            assert three.get("users", name) == {"producer_byte_rate": "2"}
            await client.session.delete(config_path("users", name))
            await three.reload(("users",))
            assert three.get("users", name) == {}
