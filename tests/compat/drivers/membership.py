"""What every consumer of a mixed group does, whichever library it is made with: it reads until it is told to
stop, and notes in a file what it owns and what it has processed.

Standard library only: it also runs in an environment that holds another version of a client.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

SESSION_MS = 3_000
HEARTBEAT_MS = 500
REBALANCE_MS = 15_000
COMMIT_MS = 500
POLL_MS = 100


class Job(argparse.Namespace):
    """Which group to join, and how."""

    bootstrap: str
    topic: str
    group: str
    strategy: str
    journal: str


class Journal:
    """Lines of JSON, each written at once: what a killed process has noted is there. Times are those of the
    machine's monotonic clock, in seconds, which all processes share."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._owned: tuple[int, tuple[int, ...]] | None = None
        self.is_stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        self.is_stopping = True

    def begins(self) -> None:
        """The consumer is about to join."""
        self._write({"event": "begins"})

    def owns(self, generation: int, partitions: Iterable[int]) -> None:
        """What is assigned, where that has changed."""
        owned = (generation, tuple(sorted(partitions)))
        if owned != self._owned:
            self._owned = owned
            self._write({"event": "owns", "generation": generation, "partitions": owned[1]})

    def processed(self, generation: int, records: Iterable[tuple[int, int]]) -> None:
        """Records, as partition and offset, that have come in one go."""
        offsets: dict[int, list[int]] = {}
        for partition, offset in records:
            offsets.setdefault(partition, []).append(offset)
        if offsets:
            self._write({"event": "processed", "generation": generation, "offsets": offsets})

    def _write(self, line: dict[str, Any]) -> None:
        line["at"] = time.monotonic()
        os.write(self._file, json.dumps(line).encode() + b"\n")


def run(member: Callable[[Job, Journal], None]) -> NoReturn:
    """Be a member until SIGTERM comes, then leave. The library's log lines go to standard error."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "group", "strategy", "journal"):
        parser.add_argument(f"--{name}", required=True)
    job = parser.parse_args(namespace=Job())
    journal = Journal(job.journal)
    journal.begins()
    member(job, journal)
    raise SystemExit(0)
