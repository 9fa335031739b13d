"""The start of every cell: ZooKeeper, three brokers, and two clients, each writing to its own topic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.steady_load import CLIENTS, SteadyLoad
from broker.tools.broker_process import BackgroundBroker
from broker.tools.cluster_view import ClusterView
from broker.tools.machine import Machine
from broker.tools.place import Place
from coordinator.tools.zookeeper_process import ZooKeeperProcess, ensemble
from tests.faults.cells import Role
from tests.faults.networks import Network
from tests.faults.reader import Stored, read_all

BROKERS = 3
PARTITIONS = 3
RECORDS_PER_SECOND = 300.0
"""Write rate of each client."""
SOME_RECORDS = 300
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
    """A context manager that starts the processes and clients of a cell, and stops them at its exit.
    `close_brokers` stops only the brokers, cleanly, so that their logs can be compared.

    `new_machine` makes a broker's machine in a directory; None runs the brokers directly. `properties` are
    added to the brokers' settings.
    """

    def __init__(
        self,
        directory: Path,
        network: Network,
        *,
        is_compressed: bool,
        session_timeout_ms: int,
        zookeepers: int = 1,
        new_machine: Callable[[Path], Machine] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.network = network
        self.session_timeout_ms = session_timeout_ms
        self.zookeepers: list[ZooKeeperProcess] = []
        self.brokers: list[BackgroundBroker] = []
        self.machines: list[Machine] = []
        self.places: list[Place] = []
        self.loads: list[SteadyLoad] = []
        self.view: ClusterView
        self._directory = directory
        self._is_compressed = is_compressed
        self._zookeeper_count = zookeepers
        self._new_machine = new_machine
        self._properties = properties or {}
        self._stack = ExitStack()

    @property
    def bootstrap(self) -> str:
        return ",".join(place.address for place in self.places)

    @property
    def zookeeper_connect(self) -> str:
        return ",".join(server.connect for server in self.zookeepers)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._stack.close)
            self._start_zookeeper()
            self._start_brokers()
            self.view = self._stack.enter_context(ClusterView(self.zookeeper_connect))
            self._start_loads()
            stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _start_zookeeper(self) -> None:
        if self._zookeeper_count > 1:
            self.zookeepers = ensemble(self._directory / "zookeeper", self._zookeeper_count)
        else:
            server = ZooKeeperProcess(self._directory / "zookeeper", host=self.network.host)
            server.start()
            self.zookeepers = [server]
        for server in self.zookeepers:
            self._stack.callback(server.stop)
            server.wait_ready()

    def _start_brokers(self) -> None:
        for number in range(1, BROKERS + 1):
            place = self.network.place(number, self.zookeeper_connect)
            python_arguments, log_dirs = self._prepare_machine(number)
            broker = BackgroundBroker(
                self._directory / f"broker-{number}",
                broker_id=number,
                zookeeper_connect=place.zookeeper_connect,
                host=place.host,
                port=place.port,
                launcher=place.launcher,
                python_arguments=python_arguments,
                properties={
                    "zookeeper.session.timeout.ms": str(self.session_timeout_ms),
                    "min.insync.replicas": "2",
                    "replica.lag.time.max.ms": "10000",
                    "controlled.shutdown.retry.backoff.ms": "200",
                    **place.properties,
                    **log_dirs,
                    **self._properties,
                },
            )
            self.places.append(place)
            self.brokers.append(broker)
            self._stack.callback(broker.kill)
            broker.start()
        for broker in self.brokers:
            broker.wait_ready(BROKERS)

    def _prepare_machine(self, number: int) -> tuple[Sequence[str], Mapping[str, str]]:
        """The interpreter's arguments, and the setting of the log directory."""
        if self._new_machine is None:
            return (), {}
        machine = self._new_machine(self._directory / f"machine-{number}")
        self.machines.append(machine)
        self._stack.callback(machine.close)
        return machine.python_arguments, {"log.dirs": str(machine.log_dir)}

    def _start_loads(self) -> None:
        """Create the topics and start writing. One broker leads all partitions; it is not the controller."""
        controller = self.view.controller()
        leader, follower = (broker.broker_id for broker in self.brokers if broker.broker_id != controller)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "broker.address.family": "v4"})
        for client in CLIENTS:
            assignment = [[leader, follower, controller]] * PARTITIONS
            topic = NewTopic(client, PARTITIONS, replica_assignment=assignment)
            admin.create_topics([topic])[client].result(60)
            codec = _CODECS[client] if self._is_compressed else "none"
            load = SteadyLoad(
                client,
                self.bootstrap,
                client,
                partitions=PARTITIONS,
                records_per_second=RECORDS_PER_SECOND,
                config={**_CLIENT_CONFIGS[client], "compression.type": codec},
            )
            self.loads.append(load)
            load.start()
            self._stack.callback(load.abandon)
        self.write_more()

    # Called by cells

    def struck(self, role: Role) -> Sequence[BackgroundBroker]:
        """The broker or brokers that have the role now."""
        leader = self.view.leader(self.loads[0].topic, 0)
        controller = self.view.controller()
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
        return self.machines[broker.broker_id - 1]

    def wait_for_in_sync(self, brokers: Collection[int]) -> None:
        """Wait until these are the in-sync brokers of every partition."""
        for load in self.loads:
            for partition in range(PARTITIONS):
                self.view.wait_for_in_sync(load.topic, partition, brokers, timeout_s=120)

    def write_more(self, count: int = SOME_RECORDS) -> None:
        """Wait until each client has had `count` more records acknowledged."""
        for load in self.loads:
            load.wait_for_more(count)

    def wait_until_whole(self) -> None:
        """Wait until every broker serves and every replica is in sync. Raises if a broker has died."""
        for broker in self.brokers:
            broker.wait_ready(BROKERS)
        self.wait_for_in_sync(range(1, BROKERS + 1))

    def stop_loads(self) -> None:
        """Stop writing, and wait until the outcome of every record is known."""
        for load in self.loads:
            load.stop()

    def read_all(self) -> dict[tuple[str, int], list[Stored]]:
        """Read all stored records, by topic and partition."""
        return read_all(self.bootstrap, [load.topic for load in self.loads], PARTITIONS)

    def close_brokers(self) -> None:
        for broker in self.brokers:
            broker.stop()
