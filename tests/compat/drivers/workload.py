"""The records that every stock client sends and expects. Each record is computed from its index.

Imports only the standard library, because it also runs in the environment of kafka-python 2.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from typing import Any, NoReturn

PARTITIONS = 3
TEXT = b"".join(
    b"carrier %d flies from gate %d after %d minutes; " % (i, i * 7 % 31, i * i % 97) for i in range(2000)
)
# Mostly small values, some of a few KB, and every thousandth of 40 KB, so that batches vary in size.
SMALL_SIZES = (0, 1, 17, 60, 100, 150, 200, 250, 333, 512, 700, 1024, 2048)
LARGE_EVERY = 1000
LARGE_SIZE = 40_000


def partition_of(index: int) -> int:
    return index % PARTITIONS


def key_of(index: int) -> bytes:
    return b"%08d" % index


def value_of(index: int) -> bytes:
    if index % LARGE_EVERY == LARGE_EVERY - 1:
        size = LARGE_SIZE
    else:
        size = SMALL_SIZES[index % len(SMALL_SIZES)]
    start = index % 4096
    return TEXT[start : start + size]


class Checker:
    """Checks that a read returns the records from `first_index` up to `count`, in order, and no others."""

    def __init__(self, first_index: int, count: int) -> None:
        self.seen = 0
        self.wanted = count - first_index
        self.problems: list[str] = []
        self._next = {
            partition_of(index): index for index in range(first_index, min(first_index + PARTITIONS, count))
        }

    def done(self) -> bool:
        return self.seen >= self.wanted or len(self.problems) >= 5

    def record(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        index = self._next.get(partition)
        if index is None:
            self.problems.append(f"partition {partition} has an unexpected record at offset {offset}")
            return
        if key != key_of(index) or (value or b"") != value_of(index) or offset != index // PARTITIONS:
            self.problems.append(
                f"partition {partition}, offset {offset}: expected record {index}, got key {key!r}"
            )
        self._next[partition] = index + PARTITIONS
        self.seen += 1

    def stamp(self, partition: int, offset: int, stamp: tuple[int, int], base: tuple[int, int]) -> None:
        """Check the type and time of a record's timestamp; `base` are those of record 0."""
        index = offset * PARTITIONS + partition
        if stamp != (base[0], base[1] + index):
            self.problems.append(f"record {index} has timestamp {stamp}")

    def result(self) -> dict[str, Any]:
        return {"seen": self.seen, "wanted": self.wanted, "problems": self.problems}


SHARED = (90, 30)
"""Number of records that a group reads before it stops, and number that it reads afterwards."""


def sharing(read: Callable[[int], list[int]], send: Callable[[range], None]) -> dict[str, Any]:
    """Check that a group that reads, stops and resumes gets each record once.

    `read(count)` runs a consumer that joins, reads, commits automatically and leaves, and returns the indexes
    of `count` records; `send` sends records.
    """
    first, second = range(SHARED[0]), range(SHARED[0], sum(SHARED))
    send(first)
    began = read(len(first))
    send(second)
    went_on = read(len(second))
    return {"began": sorted(began) == list(first), "went_on": sorted(went_on) == list(second)}


ACTIONS = ("create", "produce", "consume", "share", "admin", "transaction")

TRANSACTION_S = 60
"""Time in seconds after which the `transaction` action of a driver ends without an error."""


def timed_error(call: Callable[[], object]) -> dict[str, Any]:
    """The type and text of the exception that `call` raises, and the seconds until then; null for none."""
    began = time.monotonic()
    error = text = None
    try:
        call()
    except Exception as raised:
        error, text = type(raised).__name__, str(raised)
    return {"error": error, "text": text, "seconds": round(time.monotonic() - began, 2)}


class Job(argparse.Namespace):
    """A driver's command line."""

    actions: list[str]
    bootstrap: str
    topic: str
    count: int
    codec: str
    idempotent: bool
    base_ms: int


def read_job() -> Job:
    parser = argparse.ArgumentParser()
    parser.add_argument("actions", nargs="+", choices=ACTIONS)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--base-ms", type=int, default=0, help="Timestamp of record 0, in ms.")
    return parser.parse_args(namespace=Job())


def late_index(count: int) -> int:
    """Index of the first record read from an offset or a timestamp: a multiple of `PARTITIONS`."""
    return count * 9 // 10 // PARTITIONS * PARTITIONS


def run(actions: dict[str, Callable[[Job], dict[str, Any]]]) -> NoReturn:
    """Run the actions on the command line in order, and print each outcome as a line of JSON."""
    # 100,000 futures live until the end, so collections would cost much and free nothing.
    gc.disable()
    job = read_job()
    for action in job.actions:
        outcome = actions[action](job)
        job.base_ms = outcome.get("between_ms", job.base_ms)
        print(json.dumps(outcome), flush=True)
    raise SystemExit(0)
