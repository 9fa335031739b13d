"""The ZooKeepers that a test runs on: the models and the real server.

A test that takes the fixture `ground` runs once on each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol

import pytest
from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.zookeeper.interface import ZooKeeper
from holdfast_log.coordinator.zookeeper.kazoo_zookeeper import KazooZooKeeper
from tests.models.instant_zookeeper import InstantZooKeeper
from tests.models.world import Process, World
from tests.models.zookeeper import SimZooKeeper, ZooKeeperModel
from tests.reactor import reactor, run

SESSION_TIMEOUT_MS = 6000
REAL_SESSION_MS = 60_000
"""So long that a session lasts on a machine that stands still for a while."""

Scenario = Callable[["Ground"], Coroutine[Any, Any, Any]]


class Ground(Protocol):
    """The ZooKeeper that a scenario runs on: a model or the real server."""

    def client(self) -> ZooKeeper: ...

    def play(self, scenario: Scenario) -> Any:
        """Run a scenario. Returns its result."""
        ...


class ModelGround:
    def __init__(self) -> None:
        self.world = World(11)
        self.model = ZooKeeperModel(self.world)
        self.clients: list[SimZooKeeper] = []

    def client(self) -> ZooKeeper:
        process = Process(self.world, f"client{len(self.clients)}")
        client = SimZooKeeper(self.model, process, SESSION_TIMEOUT_MS)
        client.start()
        self.clients.append(client)
        return client

    def play(self, scenario: Scenario) -> Any:
        outcomes: list[Any] = []
        ensureDeferred(scenario(self)).addBoth(outcomes.append)
        self.world.run_until(lambda: bool(outcomes), 60)
        assert outcomes, "the scenario did not end"
        if isinstance(outcomes[0], Failure):
            outcomes[0].raiseException()
        return outcomes[0]


class LaggingGround(ModelGround):
    """An ensemble whose followers apply every write late."""

    def __init__(self) -> None:
        super().__init__()
        for server in self.model.servers[1:]:
            server.lag(200)


class ServerGround:
    def __init__(self, connect: str) -> None:
        self.connect = connect
        self.clients: list[KazooZooKeeper] = []

    def client(self) -> ZooKeeper:
        client = KazooZooKeeper(self.connect, REAL_SESSION_MS, reactor.callFromThread)
        client.start()
        self.clients.append(client)
        return client

    def play(self, scenario: Scenario) -> Any:
        return run(scenario(self))

    def close(self) -> None:
        async def close_all() -> None:
            for client in self.clients:
                await client.close()

        run(close_all())


class InstantGround(ModelGround):
    def client(self) -> ZooKeeper:
        client = InstantZooKeeper(self.model)
        client.start()
        self.clients.append(client)
        return client


MODELS = {"model": ModelGround, "lagging": LaggingGround, "instant": InstantGround}


@pytest.fixture(params=[*MODELS, "server"])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    if request.param != "server":
        yield MODELS[request.param]()
        return
    server = ServerGround(request.getfixturevalue("zookeeper"))
    yield server
    server.close()
