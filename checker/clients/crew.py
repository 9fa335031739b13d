"""Runs the clients of a check, each in a thread of its own, until they shall end."""

from __future__ import annotations

import random
import threading
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from holdfast_log.checker.clients.noticeboard import Noticeboard
from holdfast_log.checker.recorder import Recorder
from holdfast_log.clients.errors import ClientError
from holdfast_log.protocol.errors import BrokerError

_PAUSE_AFTER_ERROR_S = 0.2
_REQUEST_TIMEOUT_MS = 3_000


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """What every client of a check gets: the brokers' addresses, the recorder, and the names that it may use.

    `prefix` is in the names of all topics and groups. Owners ask for sessions of `session_ms`. Each client
    pauses between two steps for `pace_s` on average. Owners put what others may know of their grants, and
    what they must not use, on the `board`.
    """

    bootstrap: str
    recorder: Recorder
    prefix: str
    session_ms: int = 3_000
    pace_s: float = 0.05
    board: Noticeboard = field(default_factory=Noticeboard)

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def properties(self) -> dict[str, object]:
        """Properties for every client: requests that a stopped broker does not answer fail soon."""
        return {
            "bootstrap.servers": self.bootstrap,
            "request.timeout.ms": _REQUEST_TIMEOUT_MS,
            "socket.connection.setup.timeout.ms": _REQUEST_TIMEOUT_MS,
        }

    def producer_properties(self) -> dict[str, object]:
        """Properties for producers: an append without an answer fails soon, with an unknown outcome."""
        limits = {"delivery.timeout.ms": 3 * _REQUEST_TIMEOUT_MS, "max.block.ms": 2 * _REQUEST_TIMEOUT_MS}
        return self.properties() | limits


class CheckClient(Protocol):
    """A client of a check."""

    name: str

    def step(self) -> None:
        """Make a call or a few and record them. May raise the errors of clients and brokers."""
        ...

    def close(self) -> None: ...


class Crew:
    """The running clients. `troubles` counts the exceptions that no client should raise."""

    def __init__(self, clients: Sequence[CheckClient], pace_s: float) -> None:
        self.troubles: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        """Errors of brokers and clients, which faults cause, by client and error."""
        self._pace_s = pace_s
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(client,), name=client.name, daemon=True)
            for client in clients
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self, timeout_s: float) -> None:
        """Let every client finish its step and close. One that has not ended after `timeout_s` is a
        trouble."""
        self._ending.set()
        for thread in self._threads:
            thread.join(timeout_s)
            if thread.is_alive():
                self.troubles[f"{thread.name} did not end within {timeout_s:.0f} s"] += 1

    def _run(self, client: CheckClient) -> None:
        while not self._ending.wait(random.uniform(0.5, 1.5) * self._pace_s):
            self._try(client, client.step)
        self._try(client, client.close)

    def _try(self, client: CheckClient, step: object) -> None:
        assert callable(step)
        try:
            step()
        except (BrokerError, ClientError) as error:
            self.errors[f"{client.name}: {type(error).__name__}"] += 1
            self._ending.wait(_PAUSE_AFTER_ERROR_S)
        except Exception as error:  # A finding: it is counted and shown, and the check fails.
            traceback.print_exc()
            self.troubles[f"{client.name} raised {type(error).__name__}: {error}".splitlines()[0]] += 1
            self._ending.wait(_PAUSE_AFTER_ERROR_S)


_numbers = count()


def new_value(client: str) -> str:
    """A value that occurs once in this process's history."""
    return f"{client}:{next(_numbers)}"
