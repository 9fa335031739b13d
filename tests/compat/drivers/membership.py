"""Common code of the members of a mixed group: a member reads until SIGTERM, and writes a journal of the
partitions it owns and the records it has processed.

Imports only the standard library, because it also runs in the environment of kafka-python 2.
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

SESSION_MS = 10_000
HEARTBEAT_MS = 500
REBALANCE_MS = 15_000
COMMIT_MS = 500
POLL_MS = 100
KIP_848 = "consumer"
"""In place of a strategy: the members use `group.protocol=consumer`."""


class Job(argparse.Namespace):
    """A member's command line: the group to join, and its topic, strategy and journal."""

    bootstrap: str
    topic: str
    group: str
    strategy: str
    journal: str

    def settings(self, client_id: str) -> dict[str, Any]:
        """The settings of a consumer, by Kafka's names. For a group of KIP-848 the broker has those of
        sessions, and the assignor."""
        general = {
            "bootstrap.servers": self.bootstrap,
            "client.id": client_id,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": REBALANCE_MS,
            "auto.commit.interval.ms": COMMIT_MS,
        }
        if self.strategy == KIP_848:
            return {**general, "group.protocol": "consumer"}
        return {
            **general,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": self.strategy,
        }

    def arguments(self, client_id: str) -> dict[str, Any]:
        """The same settings as keyword arguments, without the strategy, which libraries take as classes."""
        settings = self.settings(client_id)
        del settings["partition.assignment.strategy"]
        return {name.replace(".", "_"): value for name, value in settings.items()}


class Journal:
    """Lines of JSON, each written immediately, so that a kill loses none. Times are in seconds of the
    system's monotonic clock, which all processes share."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._owned: tuple[int, tuple[int, ...]] | None = None
        self.is_stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        self.is_stopping = True

    def begins(self) -> None:
        """Write that the consumer is about to join."""
        self._write({"event": "begins"})

    def owns(self, generation: int, partitions: Iterable[int]) -> None:
        """Write the assigned partitions if they or the generation have changed."""
        owned = (generation, tuple(sorted(partitions)))
        if owned != self._owned:
            self._owned = owned
            self._write({"event": "owns", "generation": generation, "partitions": owned[1]})

    def processed(self, generation: int, records: Iterable[tuple[int, int]]) -> None:
        """Write the (partition, offset) of records that one poll returned."""
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
