"""Measures what a broker takes for each thing that it holds: python -m benchmarks.sizing --help.

One broker gets partitions, a record in each, connections, members of groups and open transactions, one after
the other. After each the process, its directory and ZooKeeper are looked at; at last it starts again with all
its partitions. Nothing is timed but the start, so other programs on the machine hardly change the figures.
Ends with one line of JSON.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from benchmarks.load_error import LoadError
from benchmarks.results import print_json, print_table
from benchmarks.sizing_load import (
    GROUP_MEMBERS,
    RECORD_BYTES,
    connected,
    join_groups,
    open_transactions,
    write_to_each,
)
from benchmarks.targets import Target, cpu_seconds, create_topic
from benchmarks.tls import self_signed, trusting
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.coordinator.tools.zookeeper_process import HOST, ZooKeeperProcess, free_port
from holdfast_log.protocol.topic_partition import TopicPartition

_TOPIC_PARTITIONS = 500
_SETTLE_S = 1.0
_SETTINGS = {
    "group.initial.rebalance.delay.ms": "10000",
    "group.max.session.timeout.ms": "1800000",
    "max.connections": "100000",
    "max.connections.per.ip": "100000",
}
"""Settings of the broker: all members of a group have to join before the first is answered."""


_ZOOKEEPER = {"4lw.commands.whitelist": "srvr, ruok, dump, mntr"}
"""`mntr` says how many znodes there are."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a broker takes. `memory_bytes` is its resident memory without mapped files, `disk_bytes` the
    blocks of its log directory; `znode_bytes` are the names and data of the `znodes` of ZooKeeper."""

    memory_bytes: int
    files: int
    disk_bytes: int
    znodes: int
    znode_bytes: int


@dataclass(frozen=True, slots=True)
class SizeStep:
    """What a broker holds more than before: so many of something, and its size afterwards."""

    what: str
    count: int
    size: Size


@dataclass(frozen=True, slots=True)
class Start:
    """How long a broker took until it served, in seconds, and how much processor time. Other programs on the
    machine change the former more than the latter."""

    seconds: float
    cpu_s: float


@click.command()
@click.option("--partitions", default=2000, show_default=True, type=click.IntRange(1), help="Partitions.")
@click.option("--connections", default=2000, show_default=True, type=click.IntRange(1), help="Connections.")
@click.option(
    "--tls-connections", default=500, show_default=True, type=click.IntRange(1), help="Connections with TLS."
)
@click.option(
    "--members", default=2000, show_default=True, type=click.IntRange(1),
    help=f"Members of groups, {GROUP_MEMBERS} in each, with a connection each.",
)  # fmt: skip
@click.option(
    "--transactions", default=2000, show_default=True, type=click.IntRange(1), help="Open transactions."
)
def main(partitions: int, connections: int, tls_connections: int, members: int, transactions: int) -> None:
    """Measure what one broker takes for each partition, connection, member of a group and open transaction,
    and how long it takes to start. The default takes some minutes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    directory = Path(tempfile.mkdtemp(prefix="holdfast-benchmark-"))
    try:
        with _running(directory) as broker:
            broker.measure("nothing", 0, lambda: None)
            broker.measure("an empty partition", partitions, lambda: broker.create(partitions))
            broker.measure(f"a record of {RECORD_BYTES:,} bytes in each partition", partitions, broker.write)
            broker.measure("a connection", connections, lambda: broker.connect(connections))
            broker.measure(
                "a connection with TLS", tls_connections, lambda: broker.connect_tls(tls_connections)
            )
            broker.measure("a group's member and its connection", members, lambda: broker.join(members))
            broker.measure("an open transaction", transactions, lambda: broker.transact(transactions))
            _report(broker.steps, broker.empty, broker.restarted(), partitions)
    except LoadError as error:
        raise click.ClickException(str(error)) from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class SizedBroker:
    """A broker, and what it has been given so far."""

    def __init__(
        self,
        broker: BackgroundBroker,
        zookeeper: ZooKeeperProcess,
        tls_port: int,
        trusted: Path,
        opened: ExitStack,
    ) -> None:
        self.steps: list[SizeStep] = []
        self.empty = Start(0.0, 0.0)
        self._broker = broker
        self._zookeeper = zookeeper
        self._tls = HOST, tls_port
        self._trusted = trusted
        self._opened = opened
        self._partitions: list[TopicPartition] = []

    @property
    def _address(self) -> tuple[str, int]:
        return HOST, self._broker.port

    def measure(self, what: str, count: int, act: Callable[[], None]) -> None:
        click.echo(f"{what}: {count:,}" if count else what, err=True)
        act()
        time.sleep(_SETTLE_S)
        self.steps.append(SizeStep(what, count, size_of(self._broker, self._zookeeper)))

    def create(self, count: int) -> None:
        target = Target("holdfast", self._broker.address)
        for first in range(0, count, _TOPIC_PARTITIONS):
            size = min(_TOPIC_PARTITIONS, count - first)
            create_topic(target, f"sized-{first}", size)
            self._partitions += [TopicPartition(f"sized-{first}", number) for number in range(size)]

    def write(self) -> None:
        (caller,) = connected(self._opened, self._address, 1)
        write_to_each(caller, self._partitions)

    def connect(self, count: int) -> None:
        connected(self._opened, self._address, count)

    def connect_tls(self, count: int) -> None:
        connected(self._opened, self._tls, count, trusting(self._trusted))

    def join(self, count: int) -> None:
        join_groups(connected(self._opened, self._address, count), "sized")

    def transact(self, count: int) -> None:
        (caller,) = connected(self._opened, self._address, 1)
        open_transactions(caller, "sized", count, self._partitions)

    def restarted(self) -> Start:
        """How the broker starts with all its partitions, after it has been stopped in order."""
        self._opened.close()
        self._broker.stop()
        return started(self._broker)


@contextmanager
def _running(directory: Path) -> Iterator[SizedBroker]:
    certificate = self_signed(directory)
    tls_port = free_port()
    zookeeper = ZooKeeperProcess(directory / "zookeeper", config=_ZOOKEEPER)
    with ExitStack() as stack:
        zookeeper.start()
        stack.callback(zookeeper.stop)
        zookeeper.wait_ready()
        broker = BackgroundBroker(
            directory / "broker", broker_id=1, zookeeper_connect=zookeeper.connect, properties=_SETTINGS
        )
        broker.properties["listeners"] += f",SSL://{HOST}:{tls_port}"
        broker.properties["listener.security.protocol.map"] += ",SSL:SSL"
        broker.properties["ssl.keystore.location"] = str(certificate)
        stack.callback(broker.stop)
        started(broker)  # The first one compiles Python's modules.
        broker.stop()
        opened = stack.enter_context(ExitStack())
        sized = SizedBroker(broker, zookeeper, tls_port, certificate, opened)
        sized.empty = started(broker)
        yield sized


def started(broker: BackgroundBroker) -> Start:
    """Start a broker, and wait until it serves."""
    began_s = time.monotonic()
    broker.start()
    broker.wait_ready()
    return Start(time.monotonic() - began_s, cpu_seconds([broker.pid]) or 0.0)


def size_of(broker: BackgroundBroker, zookeeper: ZooKeeperProcess) -> Size:
    """What a broker takes at present."""
    files = len(os.listdir(f"/proc/{broker.pid}/fd"))
    told = _told(zookeeper)
    return Size(
        _memory_bytes(broker.pid),
        files,
        _disk_bytes(broker.log_dirs),
        int(told["zk_znode_count"]),
        int(told["zk_approximate_data_size"]),
    )


def _memory_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise LoadError("the system does not say how much memory the broker has")


def _disk_bytes(directories: list[Path]) -> int:
    blocks = 0
    for directory in directories:
        for folder, folders, names in os.walk(directory):
            for name in (*folders, *names):
                with suppress(FileNotFoundError):  # The broker replaces its checkpoints meanwhile.
                    blocks += os.lstat(os.path.join(folder, name)).st_blocks
    return 512 * blocks


def _told(zookeeper: ZooKeeperProcess) -> dict[str, str]:
    """What a server of ZooKeeper says of itself."""
    with socket.create_connection((HOST, zookeeper.client_port), timeout=300) as connection:
        connection.sendall(b"mntr")
        text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return {name: value for name, _, value in (line.partition("\t") for line in text.splitlines())}


def _report(steps: list[SizeStep], empty: Start, full: Start, partitions: int) -> None:
    rows = [[step.what, f"{step.count:,}" if step.count else "", *cells(step, before)]
            for step, before in zip(steps, [None, *steps], strict=False)]  # fmt: skip
    print_table(
        "What a broker takes: at first altogether, then for each",
        ["", "of them", "memory, KiB", "descriptors", "disk, KiB", "znodes", "bytes in znodes"],
        rows,
    )
    thousands = partitions / 1000
    print(
        f"Start: {empty.seconds:.2f} s ({empty.cpu_s:.2f} s of processor time) without partitions, "
        f"{full.seconds:.2f} s ({full.cpu_s:.2f} s) with {partitions:,}: for each 1,000 "
        f"{(full.seconds - empty.seconds) / thousands:.2f} s ({(full.cpu_s - empty.cpu_s) / thousands:.2f} s)"
    )
    print_json({
        "benchmark": "sizing",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "steps": [asdict(step) for step in steps],
        "start": {"empty": asdict(empty), "full": asdict(full)},
    })  # fmt: skip


def cells(step: SizeStep, before: SizeStep | None) -> list[str]:
    """What each of them takes."""
    count = step.count or 1
    size, earlier = asdict(step.size), asdict(before.size) if before else {}
    each = {name: (value - earlier.get(name, 0)) / count for name, value in size.items()}
    return [
        f"{each['memory_bytes'] / 1024:,.1f}",
        f"{each['files']:,.2f}",
        f"{each['disk_bytes'] / 1024:,.1f}",
        f"{each['znodes']:,.2f}",
        f"{each['znode_bytes']:,.0f}",
    ]


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.sizing")
