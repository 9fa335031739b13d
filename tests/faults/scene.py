"""The start of every cell: ZooKeeper, three brokers, and two clients, each writing to its own topic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from benchmarks.steady_load import SteadyLoad, steady_loads
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.broker.tools.cluster_view import ClusterView
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.broker.tools.machine import Machine
from holdfast_log.coordinator.tools.zookeeper_process import ZooKeeperProcess, ensemble
from tests.faults.cells import Role
from tests.faults.networks import Network
from tests.faults.reader import Stored, read_all
from tests.forked_brokers import ForkedBroker

BROKERS = 3
PARTITIONS = 3
RECORDS_PER_SECOND = 300.0
"""Write rate of each client."""
SOME_RECORDS = 300
WAIT_S = 240.0
"""How long a busy machine may take for what takes seconds."""
_REQUEST_TIMEOUT_MS = 8_000
"""Shorter than the default pause, so that a client stops waiting for a paused broker before it resumes."""
_DELIVERY_TIMEOUT_MS = 300_000
"""Longer than any fault, so that a record that fails is a finding."""

_CLIENT_CONFIGS: dict[str, dict[str, Any]] = {
    "librdkafka": {
        "socket.timeout.ms": _REQUEST_TIMEOUT_MS,
        "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
        "reconnect.backoff.max.ms": 500,
    },
    "holdfast": {
        "request.timeout.ms": _REQUEST_TIMEOUT_MS,
        "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS,
    },
}
_CODECS = {"librdkafka": "lz4", "holdfast": "zstd"}


class Scene:
    """A cluster that runs, and a steady load of each client on its own topic. `close_brokers` stops only the
    brokers, cleanly, so that their logs can be compared."""

    def __init__(
        self,
        cluster: LocalCluster,
        network: Network,
        view: ClusterView,
        loads: Sequence[SteadyLoad],
        session_timeout_ms: int,
    ) -> None:
        self.network = network
        self.session_timeout_ms = session_timeout_ms
        self.zookeepers = cluster.zookeepers
        self.brokers = cluster.brokers
        self.view = view
        self.loads = loads
        self._cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def struck(self, role: Role) -> Sequence[BackgroundBroker]:
        """The broker or brokers that have the role now."""
        leader = self.view.leader(self.loads[0].topic, 0, timeout_s=WAIT_S)
        controller = self.view.controller(timeout_s=WAIT_S)
        match role:
            case Role.LEADER | Role.LAST_IN_SYNC:
                chosen = [leader]
            case Role.CONTROLLER:
                chosen = [controller]
            case Role.LEADER_AND_CONTROLLER:
                chosen = sorted({leader, controller})
            case Role.ALL:
                chosen = [broker.broker_id for broker in self.brokers]
            case _:
                ids = (broker.broker_id for broker in self.brokers)
                chosen = [next(number for number in ids if number not in (leader, controller))]
        return [self.brokers[number - 1] for number in chosen]

    def machine_of(self, broker: BackgroundBroker) -> Machine:
        return self._cluster.machines[broker.broker_id - 1]

    def wait_for_in_sync(self, brokers: Collection[int]) -> None:
        """Wait until these are the in-sync brokers of every partition."""
        for load in self.loads:
            for partition in range(PARTITIONS):
                self.view.wait_for_in_sync(load.topic, partition, brokers, timeout_s=WAIT_S)

    def write_more(self, count: int = SOME_RECORDS) -> None:
        """Wait until each client has had `count` more records acknowledged."""
        for load in self.loads:
            load.wait_for_more(count)

    def wait_until_whole(self) -> None:
        """Wait until every broker serves and every replica is in sync. Raises if a broker has died."""
        self._cluster.wait_ready()
        self.wait_for_in_sync(range(1, BROKERS + 1))

    def stop_loads(self) -> None:
        """Stop writing, and wait until the outcome of every record is known."""
        for load in self.loads:
            load.stop()

    def read_all(self) -> dict[tuple[str, int], list[Stored]]:
        """Read all stored records, by topic and partition."""
        return read_all(self._cluster.bootstrap, [load.topic for load in self.loads], PARTITIONS)

    def close_brokers(self) -> None:
        for broker in self.brokers:
            broker.stop()


@contextmanager
def set_scene(
    directory: Path,
    network: Network,
    *,
    is_compressed: bool,
    session_timeout_ms: int,
    zookeepers: int = 1,
    new_machine: Callable[[Path], Machine] | None = None,
    properties: Mapping[str, str] | None = None,
) -> Iterator[Scene]:
    """Start the processes and clients of a cell, and stop them at the exit.

    `new_machine` makes a broker's machine in a directory; None runs the brokers directly. `properties` are
    added to the brokers' settings.
    """
    with ExitStack() as stack:
        machines: list[Machine] = []
        if new_machine is not None:
            for number in range(1, BROKERS + 1):
                machine = stack.enter_context(closing(new_machine(directory / f"machine-{number}")))
                machines.append(machine)
        cluster = LocalCluster(
            directory,
            brokers=BROKERS,
            properties={
                "zookeeper.session.timeout.ms": str(session_timeout_ms),
                "zookeeper.connection.timeout.ms": "60000",  # Busy machines take long to start ZooKeeper.
                "min.insync.replicas": "2",
                "replica.lag.time.max.ms": "10000",
                "controlled.shutdown.retry.backoff.ms": "200",
                **(properties or {}),
            },
            zookeepers=_zookeepers(directory / "zookeeper", zookeepers, network),
            place=network.place,
            machines=machines,
            broker_type=ForkedBroker,
        )
        stack.enter_context(cluster)
        stack.callback(cluster.kill_brokers)
        view = stack.enter_context(ClusterView(cluster.zookeeper_connect))
        loads = stack.enter_context(_loads(cluster, view, is_compressed))
        scene = Scene(cluster, network, view, loads, session_timeout_ms)
        scene.write_more()
        yield scene


def _zookeepers(directory: Path, count: int, network: Network) -> list[ZooKeeperProcess]:
    return ensemble(directory, count) if count > 1 else [ZooKeeperProcess(directory, host=network.host)]


def _loads(
    cluster: LocalCluster, view: ClusterView, is_compressed: bool
) -> AbstractContextManager[list[SteadyLoad]]:
    """The loads of a cell. One broker leads all partitions; it is not the controller."""
    controller = view.controller(timeout_s=WAIT_S)
    leader, follower = (broker.broker_id for broker in cluster.brokers if broker.broker_id != controller)
    assignment = [[leader, follower, controller]] * PARTITIONS
    return steady_loads(
        cluster.bootstrap,
        lambda client: NewTopic(client, PARTITIONS, replica_assignment=assignment),
        records_per_second=RECORDS_PER_SECOND,
        configs={
            client: {**_CLIENT_CONFIGS[client], "compression.type": codec if is_compressed else "none"}
            for client, codec in _CODECS.items()
        },
    )
