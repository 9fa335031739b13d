"""Two brokers that are asked for the same: one by a compiled function, the other never."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.broker.world import Client, World


class TwinBrokers:
    """The first calls the `counted` function of `module`, the other its Python. Each has as many `clients`.
    `state_of` gives what has to be alike in both."""

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        module: ModuleType,
        counted: object,
        state_of: Callable[[World], Any],
        clients: int,
        config: dict[str, Any] | None = None,
    ) -> None:
        self._monkeypatch = monkeypatch
        self._module = module
        self._ways = counted, None
        self._state_of = state_of
        self.worlds = [World(directory / name / "logs", topic_config=config or {}) for name in "cp"]
        self.clients: list[list[Client]] = [[world.client() for _ in range(clients)] for world in self.worlds]

    def both(self, act: Callable[[World], object]) -> None:
        """Do the same in both brokers."""
        for world, way in zip(self.worlds, self._ways, strict=True):
            self._monkeypatch.setattr(self._module, "_compiled", way)
            act(world)

    def client(self, world: World, number: int) -> Client:
        return self.clients[self.worlds.index(world)][number]

    def send_both(self, frame: bytes, number: int) -> None:
        """Send a frame to both, on the connection of that number."""
        self.both(lambda world: self.client(world, number).send_bytes(frame))

    def answers(self) -> list[list[bytes]]:
        """What both have answered on each connection since the last call. Both are alike."""
        ours, theirs = [
            [[frame.replace(b"/c/logs", b"/p/logs") for frame in client.wire.frames()] for client in clients]
            for clients in self.clients
        ]
        assert ours == theirs
        closed = [[client.connection.is_closed for client in clients] for clients in self.clients]
        assert closed[0] == closed[1]
        assert self._state_of(self.worlds[0]) == self._state_of(self.worlds[1])
        return ours

    def reopen(self) -> None:
        """Replace connections that have closed."""
        for world, clients in zip(self.worlds, self.clients, strict=True):
            for number, client in enumerate(clients):
                if client.connection.is_closed:
                    clients[number] = world.client()
