"""Creation of the layout, on sessions that expire at any moment."""

from __future__ import annotations

import gc

import pytest
from twisted.internet.defer import ensureDeferred

from holdfast_log.coordinator.cluster.identity import prepare_layout
from holdfast_log.coordinator.znodes.layout import PERSISTENT_PATHS
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from tests.models.world import Process, World
from tests.models.zookeeper import SimZooKeeper, ZooKeeperModel
from tests.sim.cluster import logs_in_trace


@pytest.fixture
def world() -> World:
    return World(5)


@pytest.fixture
def client(world: World) -> SimZooKeeper:
    client = SimZooKeeper(ZooKeeperModel(world), Process(world, "b1"), session_timeout_ms=6000)
    client.start()
    return client


def test_the_layout_is_created_once_and_found_afterwards(world: World, client: SimZooKeeper) -> None:
    for _ in range(2):
        done = ensureDeferred(prepare_layout(client.session))
        world.run(2)
        assert done.called
    assert all(client.model.exists(path) for path in PERSISTENT_PATHS)


def test_an_expired_session_fails_the_preparation_once(world: World, client: SimZooKeeper) -> None:
    with logs_in_trace(world):
        world.run(1)
        failures = []
        ensureDeferred(prepare_layout(client.session)).addErrback(failures.append)
        client.cut()
        world.run(7)
        client.mend()
        world.run(1)
        assert [failure.type for failure in failures] == [SessionExpired]
        gc.collect()
    assert world.problems == []
