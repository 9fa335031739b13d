"""A client of the modelled ZooKeeper that answers before a call returns.

For a broker that needs ZooKeeper only as a store. `test_zookeeper_contract` holds this client, the model
below it and the real server to the same scenarios.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from holdfast_log.coordinator.zookeeper.interface import Delete, ZooKeeperConnectionLost, ZooKeeperError
from tests.models.world import Process, World
from tests.models.zookeeper import SimSession, SimZooKeeper, ZnodeRequest, ZooKeeperModel

SESSION_TIMEOUT_MS = 6000


class Znodes(MutableMapping[str, tuple[bytes, int]]):
    """Data and version of each znode by path, for tests to read and set up."""

    def __init__(self, model: ZooKeeperModel) -> None:
        self._model = model

    def __getitem__(self, path: str) -> tuple[bytes, int]:
        if not self._model.exists(path):
            raise KeyError(path)
        node = self._model.read(path)
        return node.data, node.version

    def __setitem__(self, path: str, value: tuple[bytes, int]) -> None:
        self._model.put(path, *value)

    def __delitem__(self, path: str) -> None:
        self._model.write([Delete(path)], 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._model.paths())

    def __len__(self) -> int:
        return len(self._model.paths())


class InstantZooKeeper(SimZooKeeper):
    """One session that is always connected. While `is_held`, requests wait for `release`; with `loses_answer`
    the next write is made and fails with ZooKeeperConnectionLost."""

    def __init__(self, model: ZooKeeperModel | None = None) -> None:
        model = model or ZooKeeperModel(World(0))
        super().__init__(model, Process(model.world, "instant"), SESSION_TIMEOUT_MS)
        self.znodes = Znodes(model)
        self.is_held = False
        self.loses_answer = False
        self.requests: list[ZnodeRequest] = []
        self._session = self._instant = _InstantSession(self)
        self._instant.connect(model.leader)

    @property
    def held(self) -> int:
        """Number of requests that wait for `release`."""
        return len(self.requests)

    def release(self) -> None:
        self.is_held = False
        requests, self.requests = self.requests, []
        for request in requests:
            self._instant.carry_out(request)


class _InstantSession(SimSession):
    def __init__(self, owner: InstantZooKeeper) -> None:
        super().__init__(owner)
        self._client = owner
        self._arrived: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._is_serving = False

    def carry_out(self, request: ZnodeRequest) -> None:
        self._is_serving = True
        self._serve(self._connection, request)
        self._is_serving = False
        self._deliver()

    def to_client(self, function: Callable[..., object], *arguments: Any) -> None:
        self._arrived.append((function, arguments))
        if not self._is_serving:
            self._deliver()

    def _deliver(self) -> None:
        while self._arrived and not self._is_serving:
            function, arguments = self._arrived.pop(0)
            function(*arguments)

    def _send(self, request: ZnodeRequest) -> None:
        self._unanswered.append(request)
        if self._client.is_held:
            self._client.requests.append(request)
        else:
            self.carry_out(request)

    def _finish(
        self, connection: int, request: ZnodeRequest, result: Any, error: ZooKeeperError | None
    ) -> None:
        if self._client.loses_answer and not request.is_read and error is None:
            self._client.loses_answer = False
            error = ZooKeeperConnectionLost(request.path)
        super()._finish(connection, request, result, error)
