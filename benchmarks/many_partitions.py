"""Measures the time from the loss of a broker until each of many partitions has a leader again."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from holdfast_log.broker.tools.broker_process import BackgroundBroker, receive
from holdfast_log.broker.tools.cluster_view import ClusterView
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.coordinator.tools.zookeeper_process import HOST
from holdfast_log.coordinator.tools.zookeeper_server import transactions
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import decode_response, encode_request
from holdfast_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

BROKERS = 3
PARTITIONS_PER_TOPIC = 100
_METADATA_VERSION = 7
_LOOK_S = 0.01
_QUIET_S = 2.0
_TIMEOUT_S = 170.0
_SAID = re.compile(
    r"^\[(?P<at>[^\]]+)\] INFO brokers are now \[[^\]]*\]: (?P<states>\d+) partition states written within "
    r"(?P<written_ms>\d+) ms, (?P<requests>.*) answered within (?P<told_ms>\d+) ms",
    re.MULTILINE,
)
"""The controller's log line about a broker's loss, written after all brokers have answered."""


@dataclass(frozen=True, slots=True)
class Failover:
    """One broker's loss. Times are since its session's end, as a ZooKeeper watch reported it.

    `elected_s`, `told_s`: when the controller, by its own log, had written the last state, and had the last
    broker's answer. `metadata_s`: when both remaining brokers had shown all partitions with leaders to a
    client. `states` is how many of them the controller wrote; `zookeeper_writes` counts transactions, the end
    of the session among them.
    """

    killed: str
    partitions: int
    elected_s: float
    told_s: float
    metadata_s: float
    states: int
    zookeeper_writes: int
    requests: str


def measure(directory: Path, partitions: int, session_timeout_ms: int) -> Iterator[Failover]:
    """Kill a broker that is not the controller; once it is back, kill the controller."""
    cluster = LocalCluster(
        directory,
        brokers=BROKERS,
        properties={
            "zookeeper.session.timeout.ms": str(session_timeout_ms),
            "request.partitions.max": str(partitions),
            "broker.partitions.max": str(BROKERS * partitions),
        },
    )
    with cluster, ClusterView(cluster.zookeeper_connect) as view, ExitStack() as stack:
        # Closing very many logs in order takes long, and their records are not needed.
        stack.callback(cluster.kill_brokers)
        _create(cluster.bootstrap, partitions)
        for broker in cluster.brokers:
            MetadataCase(broker, partitions).wait_until_all_in_sync()
        controller = view.controller()
        other = next(broker for broker in cluster.brokers if broker.broker_id != controller)
        yield _kill(cluster, view, other, partitions, "another broker")
        other.start()
        for broker in cluster.brokers:
            broker.wait_ready(BROKERS)
            MetadataCase(broker, partitions).wait_until_all_in_sync()
        yield _kill(cluster, view, cluster.brokers[controller - 1], partitions, "the controller")


def _topic(first: int) -> str:
    return f"many-{first}"


def _create(bootstrap: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [
        NewTopic(_topic(first), min(PARTITIONS_PER_TOPIC, partitions - first), BROKERS)
        for first in range(0, partitions, PARTITIONS_PER_TOPIC)
    ]
    for created in admin.create_topics(topics, request_timeout=_TIMEOUT_S).values():
        created.result(_TIMEOUT_S)


def _kill(
    cluster: LocalCluster, view: ClusterView, killed: BackgroundBroker, partitions: int, name: str
) -> Failover:
    survivors = [broker for broker in cluster.brokers if broker is not killed]
    client_port = cluster.zookeepers[0].client_port
    zxid = _quiet_zxid(client_port)
    logged = {broker.broker_id: len(broker.log) for broker in survivors}
    with ThreadPoolExecutor(len(survivors)) as pool:
        killed.kill()
        watching = [
            pool.submit(MetadataCase(broker, partitions).wait_until_led_without, killed.broker_id)
            for broker in survivors
        ]
        gone = view.wait_until_gone(killed.broker_id)
        gone_by_the_wall = time.time() - (time.monotonic() - gone)
        shown = max(future.result() for future in watching)
    writes = _quiet_zxid(client_port) - zxid
    controller = cluster.brokers[view.controller() - 1]
    said = _SAID.search(controller.log[logged[controller.broker_id] :])
    assert said is not None, f"the controller has not logged the failover:\n{controller.log[-3000:]}"
    told_s = datetime.strptime(said["at"], "%Y-%m-%d %H:%M:%S,%f").timestamp() - gone_by_the_wall
    return Failover(
        killed=name,
        partitions=partitions,
        elected_s=told_s - (int(said["told_ms"]) - int(said["written_ms"])) / 1000,
        told_s=told_s,
        metadata_s=shown - gone,
        states=int(said["states"]),
        zookeeper_writes=writes,
        requests=said["requests"],
    )


def _quiet_zxid(client_port: int) -> int:
    """Wait until ZooKeeper's transaction number stops rising. Returns the number."""
    deadline = time.monotonic() + _TIMEOUT_S
    last = transactions(HOST, client_port)
    while time.monotonic() < deadline:
        time.sleep(_QUIET_S)
        before, last = last, transactions(HOST, client_port)
        if last == before:
            return last
    raise TimeoutError(f"ZooKeeper was written to for {_TIMEOUT_S:.0f} s")


class MetadataCase:
    """One broker's answers about the topics that `measure` makes."""

    def __init__(self, broker: BackgroundBroker, partitions: int) -> None:
        self._address = (HOST, broker.port)
        self._partitions = partitions

    def wait_until_all_in_sync(self) -> None:
        """Return once every partition has a leader and all its replicas are in sync."""
        self._wait_until(lambda one: one.leader_id >= 0 and len(one.isr_nodes) == BROKERS)

    def wait_until_led_without(self, broker_id: int) -> float:
        """Wait until every partition has a leader other than `lost`. Returns the time of that response."""
        return self._wait_until(lambda one: one.leader_id not in (-1, broker_id))

    def _wait_until(self, holds: Callable[[MetadataResponsePartition], bool]) -> float:
        """Poll one topic until it is as wanted, then all topics, because metadata of all topics is
        expensive."""
        names: list[str] | None = [_topic(0)]
        deadline = time.monotonic() + _TIMEOUT_S
        with socket.create_connection(self._address, timeout=_TIMEOUT_S) as connection:
            while time.monotonic() < deadline:
                answer, at = self._ask(connection, names)
                found = [one for topic in answer.topics for one in topic.partitions]
                if all(map(holds, found)):
                    if names is None and len(found) == self._partitions:
                        return at
                    names = None
                else:
                    time.sleep(_LOOK_S)
        raise TimeoutError(f"after {_TIMEOUT_S:.0f} s {self._address} does not show the expected metadata")

    def _ask(self, connection: socket.socket, names: list[str] | None) -> tuple[MetadataResponse, float]:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        connection.sendall(join_parts(encode_request(request, _METADATA_VERSION, 0, "benchmark")))
        (size,) = SIZE.unpack(receive(connection, SIZE.size))
        frame = receive(connection, size)
        at = time.monotonic()
        return decode_response(MetadataRequest, _METADATA_VERSION, frame), at
