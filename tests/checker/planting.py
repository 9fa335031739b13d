"""Puts known bugs back in the brokers of a running cluster (`tests.checker.plant`)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from tests.checker.plant import WANTED, planted_path

_TIMEOUT_S = 120.0
_POLL_S = 0.02


class Planting:
    """The bug that is in force in all brokers which are started with `python_arguments`; at first `name`, or
    none."""

    def __init__(self, directory: Path, name: str = "") -> None:
        directory.mkdir(parents=True)
        self.python_arguments = ("-m", "tests.checker.plant", str(directory))
        self._directory = directory
        self._want(name)

    @contextmanager
    def planted(self, name: str, brokers: Sequence[BackgroundBroker]) -> Iterator[None]:
        """Put a bug back in these brokers, and in those that start meanwhile; take it back at the exit.

        Raises TimeoutError if a broker does not do so.
        """
        self._want(name)
        try:
            self._wait(name, brokers)
            yield
        finally:
            self._want("")
        self._wait("", brokers)

    def _want(self, name: str) -> None:
        new = self._directory / f"{WANTED}.new"
        new.write_text(name)
        new.rename(self._directory / WANTED)

    def _wait(self, name: str, brokers: Sequence[BackgroundBroker]) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        for broker in brokers:
            path = planted_path(self._directory, broker.pid)
            while not path.exists() or path.read_text() != name:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"broker {broker.broker_id} has not planted {name!r}")
                time.sleep(_POLL_S)
