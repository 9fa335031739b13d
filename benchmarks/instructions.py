"""Counts the instructions that a broker executes for each request: python -m benchmarks.instructions --help.

The broker runs under valgrind's callgrind, which counts the instructions of the process, not the kernel's.
Other work on the machine hardly changes the count, so that a difference of 1 % between two checkouts shows in
one run; processor time needs a quiet machine for that. Each case is counted twice, and the lower count is
shown. Needs `valgrind`. Ends with one line of JSON.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks import raw_client
from benchmarks.broker import PROPERTIES
from benchmarks.cases import KB
from benchmarks.results import print_json, print_table
from benchmarks.targets import Target, create_topic
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.coordinator.tools.directories import IMPORT_ROOT
from holdfast_log.coordinator.tools.zookeeper_process import ZooKeeperProcess
from holdfast_log.protocol.batches import Compression

_START_TIMEOUT_S = 600.0
_DUMP_TIMEOUT_S = 120.0
_ANSWER_TIMEOUT_S = 120.0
_WINDOW = 4
_WARM_UP = 64
_COUNTED = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CountedCase:
    """Raw requests of one kind, produce or fetch. `requests` is the number of requests in one count."""

    kind: str
    batch_bytes: int
    requests: int
    codec: Compression = Compression.NONE

    @property
    def name(self) -> str:
        """The case's name in the first column and in the JSON."""
        packed = f" packed by {self.codec.name.lower()}" if self.codec else ""
        return f"{self.kind}, {self.batch_bytes // KB} KB{packed}"


CASES = (
    CountedCase("produce", 16 * KB, 800),
    CountedCase("produce", 1024 * KB, 160),
    CountedCase("produce", 16 * KB, 800, Compression.LZ4),
    CountedCase("produce", 16 * KB, 800, Compression.ZSTD),
    CountedCase("fetch", 16 * KB, 800),
    CountedCase("fetch", 64 * KB, 800),
)


@dataclass(frozen=True, slots=True)
class CountedBroker:
    """A broker under callgrind. Callgrind writes one file for each dump into `directory`."""

    broker: BackgroundBroker
    directory: Path

    def begin_to_count(self) -> None:
        """Count from now on; until then the broker is some five times slower than without valgrind."""
        self._control("--instr=on")

    def instructions(self) -> int:
        """The instructions since the last call, or since counting began. Raises click.ClickException."""
        known = set(self.directory.glob("counts.*"))
        self._control("--dump")
        deadline = time.monotonic() + _DUMP_TIMEOUT_S
        while time.monotonic() < deadline:
            for path in set(self.directory.glob("counts.*")) - known:
                found = _COUNTED.search(path.read_text())
                if found:
                    return int(found[1])
            time.sleep(0.1)
        raise click.ClickException(f"callgrind wrote no counts within {_DUMP_TIMEOUT_S:.0f} s")

    def _control(self, order: str) -> None:
        command = ["callgrind_control", order, str(self.broker.pid)]
        subprocess.run(command, check=True, capture_output=True, timeout=_DUMP_TIMEOUT_S)


@click.command()
@click.option(
    "--beside",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Directory of another checkout, whose broker is counted too.",
)
@click.option("--only", default="", metavar="TEXT", help="Count only cases whose name contains TEXT.")
def main(beside: Path | None, only: str) -> None:
    """Count a broker's instructions for each produce and fetch request."""
    if shutil.which("callgrind_control") is None:
        raise click.ClickException("valgrind is not installed: install the package valgrind")
    cases = [case for case in CASES if only in case.name]
    if not cases:
        raise click.BadParameter(f"no case has {only!r} in its name", param_hint="--only")
    checkouts = {"here": IMPORT_ROOT} | ({} if beside is None else {"beside": beside})
    counts: dict[str, list[int]] = {}
    for name, checkout in checkouts.items():
        with _counted_broker(checkout) as counted:
            counts[name] = [_count(counted, case) for case in cases]
    _report(cases, counts)


@contextlib.contextmanager
def _counted_broker(checkout: Path) -> Iterator[CountedBroker]:
    directory = Path(tempfile.mkdtemp(prefix="holdfast-instructions-"))
    zookeeper = ZooKeeperProcess(directory / "zookeeper")
    broker = BackgroundBroker(
        directory / "broker",
        broker_id=1,
        zookeeper_connect=zookeeper.connect,
        # A broker under valgrind is some fifty times slower, and must not lose its session for that.
        properties={**PROPERTIES, "zookeeper.session.timeout.ms": "120000"},
        launcher=(
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={directory}/counts.%p",
        ),
        checkout=checkout,
    )
    try:
        zookeeper.start()
        zookeeper.wait_ready()
        broker.start()
        broker.wait_ready(timeout_s=_START_TIMEOUT_S)
        counted = CountedBroker(broker, directory)
        counted.begin_to_count()
        yield counted
    finally:
        broker.kill()
        zookeeper.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _count(counted: CountedBroker, case: CountedCase) -> int:
    """Instructions per request of a case, on a topic of its own."""
    target = Target("counted", counted.broker.address)
    topic = f"{case.kind}-{case.batch_bytes}-{case.codec.name}"
    create_topic(target, topic, 1)
    batch, records = raw_client.build_batch(case.batch_bytes, case.codec)
    frames = [raw_client.produce_frame(topic, 0, batch)]
    with socket.create_connection(target.first_address, timeout=_ANSWER_TIMEOUT_S) as connection:
        _exchange(connection, frames, _WARM_UP)
        if case.kind == "fetch":
            frames = [
                raw_client.fetch_frame(topic, number * records, len(batch)) for number in range(_WARM_UP)
            ]
            _exchange(connection, frames, _WARM_UP)
        counted.instructions()
        totals = []
        for _ in range(2):
            _exchange(connection, frames, case.requests)
            totals.append(counted.instructions())
    return round(min(totals) / case.requests)


def _exchange(connection: socket.socket, frames: list[bytes], requests: int) -> None:
    """Send the frames in a cycle, a few at a time, and read their responses."""
    turn = itertools.cycle(frames)
    for _ in range(requests // _WINDOW):
        for frame in itertools.islice(turn, _WINDOW):
            connection.sendall(frame)
        for _ in range(_WINDOW):
            raw_client.read_frame(connection)


def _report(cases: list[CountedCase], counts: dict[str, list[int]]) -> None:
    rows: list[list[str]] = []
    report = []
    for index, case in enumerate(cases):
        numbers = {name: each[index] for name, each in counts.items()}
        ratio = {"ratio": round(numbers["here"] / numbers["beside"], 3)} if "beside" in numbers else {}
        rows.append([case.name, *(f"{number:,}" for number in numbers.values()), *map(str, ratio.values())])
        report.append({"case": case.name, **numbers, **ratio})
    headings = ["case", *counts, *(["ratio"] if len(counts) > 1 else [])]
    print_table("Instructions of the broker for each request, without the kernel's", headings, rows)
    print_json({"benchmark": "instructions", "cases": report})


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.instructions")
