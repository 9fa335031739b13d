"""Shows that very many names do not cost a broker its lease: python -m benchmarks.many_names --help.

Two brokers keep one group. While the first is down, the records of very many owned names are written to
ZooKeeper. Then the second broker loads them, the first one starts, takes the group over and loads them too,
the second unloads them, and the sessions of all owners end. All the time both brokers are asked for their API
versions, one request after the other: none of their turns of the reactor can have been longer than the
longest answer took, or can have used more processor time than the broker used meanwhile. Ends with one line
of JSON.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import click
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from benchmarks.results import print_json, print_table
from benchmarks.targets import reactor_seconds
from holdfast_log.broker.tools.broker_process import BackgroundBroker, receive
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.clients.admin import Admin, ElectionType
from holdfast_log.clients.connection.cluster_view import PartitionInfo
from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.groups.coordinator import coordinator_in, find_coordinator_request
from holdfast_log.clients.ownership.claim_requests import (
    OwnDialect,
    RequestKind,
    ResourceRequest,
    standings_in,
)
from holdfast_log.coordinator.ownership.records import NameKey, decode_ownership
from holdfast_log.coordinator.tools.zookeeper_process import HOST
from holdfast_log.coordinator.znodes.brokers import broker_path
from holdfast_log.coordinator.zookeeper.interface import Create, NoNode, ZooKeeperSession
from holdfast_log.coordinator.zookeeper.kazoo_zookeeper import KazooZooKeeper
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.topic_partition import TopicPartition

T = TypeVar("T")

_GROUP = "many"
_FIRST = "first"
_WHERE = TopicPartition("__consumer_offsets", 0)
_CREATED_AT_ONCE = 500
_WAIT_S = 120.0
_LEASE_LOST = "ZooKeeper has not answered for so long"
"""The beginning of what a broker logs when its lease ends."""


@click.command()
@click.option(
    "--names", default=30_000, show_default=True, type=click.IntRange(1, 99_000), help="Names of the group."
)
@click.option(
    "--session-timeout-ms",
    default=6000,
    show_default=True,
    type=click.IntRange(500),
    help="zookeeper.session.timeout.ms of both brokers. A lease lasts two thirds of it.",
)
@click.option(
    "--owner-session-ms",
    default=10_000,
    show_default=True,
    type=click.IntRange(1000),
    help="Session timeout of the owners, who never come back.",
)
@click.option(
    "--checkout",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(__file__).parents[1],
    help="The sources that the brokers run; by default these.",
)
def main(names: int, session_timeout_ms: int, owner_session_ms: int, checkout: Path) -> None:
    """Load and unload very many names while the brokers renew their leases."""
    properties = {
        "zookeeper.session.timeout.ms": str(session_timeout_ms),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "2",
        "auto.leader.rebalance.enable": "false",
        "zookeeper.set.acl": "false",  # This program writes the names into ZooKeeper itself.
    }
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-benchmark-") as directory,
        LocalCluster(directory, brokers=2, properties=properties, checkout=checkout) as cluster,
        ZooKeeperCalls(cluster.zookeeper_connect) as zookeeper,
    ):
        stages = _measure(cluster, zookeeper, names, owner_session_ms)
        lost = sum(broker.log.count(_LEASE_LOST) for broker in cluster.brokers)
    print_table(
        f"{names:,} names, ZooKeeper session of {session_timeout_ms} ms, leases lost: {lost}",
        ["", "took", "longest answer", "processor time in one answer"],
        [
            [
                stage.name,
                f"{stage.seconds:.1f} s",
                f"{stage.longest_ms:.0f} ms",
                f"{stage.processor_ms:.0f} ms",
            ]
            for stage in stages
        ],
    )
    print_json(
        {
            "benchmark": "many_names",
            "names": names,
            "session_timeout_ms": session_timeout_ms,
            "leases_lost": lost,
            "stages": {
                stage.name: {
                    "seconds": round(stage.seconds, 2),
                    "longest_answer_ms": round(stage.longest_ms, 1),
                    "processor_ms": round(stage.processor_ms, 1),
                }
                for stage in stages
            },
        }
    )
    if lost:
        raise SystemExit(1)


@dataclass(slots=True)
class Stage:
    """What happened while the brokers did one thing: of both brokers, the longest time that an answer took,
    and the most processor time that the reactor's thread used during one answer."""

    name: str
    seconds: float = 0.0
    longest_ms: float = 0.0
    processor_ms: float = 0.0

    def row(self) -> list[str]:
        """For the table."""
        return [
            self.name,
            f"{self.seconds:.1f} s",
            f"{self.longest_ms:.0f} ms",
            f"{self.processor_ms:.0f} ms",
        ]


def _measure(
    cluster: LocalCluster, zookeeper: ZooKeeperCalls, names: int, owner_session_ms: int
) -> list[Stage]:
    _claim(cluster.bootstrap, owner_session_ms)
    preferred = _group_partition(cluster.bootstrap).replicas[0]
    first, second = sorted(cluster.brokers, key=lambda broker: broker.broker_id != preferred)
    _lead(cluster.bootstrap, first)
    first.stop()
    zookeeper.call(lambda session: _create_names(session, names))
    stages: list[Stage] = []
    with Probe(second) as of_second:
        with _Timed(stages, "the second broker loads", of_second):
            _claim(second.address, owner_session_ms)
        first.start()
        with Probe(first) as of_first:
            with _Timed(stages, "the first broker starts", of_first, of_second):
                cluster.wait_ready()
            registered = [_registration(zookeeper, broker) for broker in cluster.brokers]
            with _Timed(stages, "the first loads, the second unloads", of_first, of_second):
                _lead(cluster.bootstrap, first)
                _claim(first.address, owner_session_ms)
            with _Timed(stages, "all sessions end", of_first, of_second):
                zookeeper.call(lambda session: _all_free(session, names))
            if registered != [_registration(zookeeper, broker) for broker in cluster.brokers]:
                raise click.ClickException("a broker has lost its session with ZooKeeper")
    return stages


class _Timed:
    """Appends a stage to a list: from entering the context to leaving it."""

    def __init__(self, stages: list[Stage], name: str, *probes: Probe) -> None:
        self._stages = stages
        self._stage = Stage(name)
        self._probes = probes

    def __enter__(self) -> None:
        for probe in self._probes:
            probe.take()
        self._stage.seconds = -time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._stage.seconds += time.perf_counter()
        for probe in self._probes:
            longest_ms, processor_ms = probe.take()
            self._stage.longest_ms = max(self._stage.longest_ms, longest_ms)
            self._stage.processor_ms = max(self._stage.processor_ms, processor_ms)
        self._stages.append(self._stage)


@dataclass
class Probe:
    """Asks a broker one thing after the other, in a thread of its own, from entering the context on."""

    broker: BackgroundBroker
    _longest_ms: float = 0.0
    _processor_ms: float = 0.0
    _is_over: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    def take(self) -> tuple[float, float]:
        """The longest answer, in ms, and the most processor time of the reactor's thread, in ms, during one
        answer, since the last call."""
        with self._lock:
            found = self._longest_ms, self._processor_ms
            self._longest_ms = self._processor_ms = 0.0
            return found

    def _run(self) -> None:
        frame = join_parts(encode_request(ApiVersionsRequest(), 0, 0, "benchmark"))
        with self._connect() as connection:
            while not self._is_over:
                used, began = reactor_seconds(self.broker.pid), time.perf_counter()
                connection.sendall(frame)
                receive(connection, SIZE.unpack(receive(connection, SIZE.size))[0])
                took_ms = (time.perf_counter() - began) * 1000
                used_ms = (reactor_seconds(self.broker.pid) - used) * 1000
                with self._lock:
                    self._longest_ms = max(self._longest_ms, took_ms)
                    self._processor_ms = max(self._processor_ms, used_ms)

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                return socket.create_connection((HOST, self.broker.port), timeout=_WAIT_S)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


class ZooKeeperCalls:
    """A session with ZooKeeper for single calls; a context manager that opens and closes it."""

    def __init__(self, connect: str) -> None:
        # All work of the session happens on this one thread, as it does on a broker's reactor.
        self._thread = ThreadPoolExecutor(1, "zookeeper-calls")
        self._zookeeper = KazooZooKeeper(connect, 30_000, self._thread.submit)

    def __enter__(self) -> Self:
        self._thread.submit(self._zookeeper.start).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._zookeeper.close)
        self._thread.shutdown()

    def call(self, function: Any) -> Any:
        """What the coroutine `function(session)` returns or raises."""
        return self._wait(lambda: ensureDeferred(_run(function(self._zookeeper.session))))

    def _wait(self, begin: Any) -> Any:
        done: Future[Any] = Future()

        def run() -> None:
            deferred: Deferred[Any] = begin()
            deferred.addCallbacks(done.set_result, lambda failure: done.set_exception(_error(failure)))

        self._thread.submit(run).result()
        return done.result(_WAIT_S)


async def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    return await coroutine


def _error(failure: Failure) -> BaseException:
    error = failure.value
    assert isinstance(error, BaseException)
    return error


def _key(number: int) -> NameKey:
    return NameKey(_GROUP, f"name-{number}")


async def _create_names(session: ZooKeeperSession, names: int) -> None:
    """Give the owner of the first name all the others too, as if it had claimed them."""
    record, _ = await session.get(NameKey(_GROUP, _FIRST).path)
    for start in range(0, names, _CREATED_AT_ONCE):
        numbers = range(start, min(names, start + _CREATED_AT_ONCE))
        await session.multi([Create(_key(number).path, record) for number in numbers])


async def _all_free(session: ZooKeeperSession, names: int) -> None:
    """Wait until the ends of all sessions are written."""
    deadline = time.monotonic() + _WAIT_S
    for number in range(names):
        while await _is_owned(session, _key(number)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{_key(number)} still has an owner after {_WAIT_S:.0f} s")


async def _is_owned(session: ZooKeeperSession, key: NameKey) -> bool:
    try:
        data, _ = await session.get(key.path)
    except NoNode:
        return False
    record = decode_ownership(key.path, data)
    return any(not history[-1].has_ended for history in record.histories.values() if history)


def _registration(zookeeper: ZooKeeperCalls, broker: BackgroundBroker) -> int:
    """The transaction that registered a broker: another one after its session has expired."""

    async def read(session: ZooKeeperSession) -> int:
        return (await session.get(broker_path(broker.broker_id)))[1].czxid

    return int(zookeeper.call(read))


def _claim(bootstrap: str, owner_session_ms: int) -> None:
    """Claim the first name, and return once that is answered: the names of its group are loaded then."""
    dialect = OwnDialect(_GROUP, "claimant", owner_session_ms)
    request = dialect.claim([ResourceRequest(RequestKind.CLAIM, _FIRST)], int(_WAIT_S * 1000))
    deadline = time.monotonic() + _WAIT_S
    with Connection(bootstrap, {"request.timeout.ms": int(_WAIT_S * 1000)}) as connection:
        while time.monotonic() < deadline:
            with suppress(BrokerError):
                node = coordinator_in(connection.ask(ANY_NODE, find_coordinator_request(_GROUP))).node
                (standing,) = standings_in(connection.ask(node, request), [_FIRST])
                if standing.error_code in (ErrorCode.NONE, ErrorCode.RESOURCE_OWNED):
                    return
            time.sleep(0.05)
    raise TimeoutError(f"the group has had no coordinator for {_WAIT_S:.0f} s")


def _group_partition(bootstrap: str) -> PartitionInfo:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        (topic,) = admin.describe_topics([_WHERE.topic])
        return topic.partitions[_WHERE.partition]


def _lead(bootstrap: str, broker: BackgroundBroker) -> None:
    """Make the preferred leader of the partition that keeps the group its leader."""
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        with suppress(BrokerError):
            if _group_partition(bootstrap).leader == broker.broker_id:
                return
            with Admin({"bootstrap.servers": bootstrap}) as admin:
                admin.elect_leaders(ElectionType.PREFERRED, [_WHERE])
        time.sleep(0.1)
    raise TimeoutError(f"broker {broker.broker_id} does not lead {_WHERE} after {_WAIT_S:.0f} s")


if __name__ == "__main__":
    main()
