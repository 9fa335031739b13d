"""Brokers of a simulated cluster: the real code on machines that can be killed, paused and damaged.

A `Machine` keeps what outlives a broker process: disk, address, connection to ZooKeeper. Its methods act at
once; the consequences take simulated time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.logger import LogEvent, globalLogPublisher
from twisted.python.failure import Failure

from holdfast_log.broker.log.checkpoints import decode_directory_id
from holdfast_log.broker.log.names import DIRECTORY_ID
from holdfast_log.broker.network.handshake import ClusterSecret
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.process.lifecycle import Broker
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.requests.authorization import Authorizer
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC, partition_of_group
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.znodes.admin import DELETE_TOPICS
from holdfast_log.coordinator.znodes.brokers import BROKER_IDS, broker_path
from holdfast_log.coordinator.znodes.controller import CONTROLLER_BROKERS, decode_controller_brokers
from holdfast_log.coordinator.znodes.topics import (
    TOPICS,
    PartitionState,
    TopicAssignment,
    decode_partition_state,
    decode_topic,
    partition_state_path,
    partitions_path,
    topic_path,
)
from holdfast_log.protocol.api import Request, Response
from tests.models.disk import SimDisk, Snapshot
from tests.models.network import SimNetwork
from tests.models.workers import SimWorkers
from tests.models.world import Process, World
from tests.models.zookeeper import SimZooKeeper, ZooKeeperModel
from tests.sim.checkers import StoredLog, read_log
from tests.sim.client import OWNERS_GROUP, Decider

R = TypeVar("R", bound=Response)

PORT = 9092
_BROKERS_PORT = 19092
_SECRET_SHARE = 0.3
"""Share of the worlds whose brokers share the listener of clients, and know each other by a secret."""
LOG_DIRECTORIES = ("/disk1", "/disk2")
SESSION_TIMEOUT_MS = 6000
NORMAL_WORK_MS_MAX = 5.0
_RESTART_AFTER_FAILURE_S = 2.0
_OFFSETS_PARTITIONS = 2

SETTINGS: dict[str, str | int | bool] = {
    "log.dirs": ",".join(LOG_DIRECTORIES),
    "zookeeper.connect": "zookeeper:2181",
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "zookeeper.connection.timeout.ms": 60_000,
    "auto.create.topics.enable": False,
    "request.timeout.ms": 4000,
    "replica.socket.timeout.ms": 4000,
    "replica.lag.time.max.ms": 4000,
    "replica.fetch.wait.max.ms": 1000,
    "replica.fetch.backoff.ms": 300,
    "replica.high.watermark.checkpoint.interval.ms": 2000,
    "log.flush.offset.checkpoint.interval.ms": 5000,
    "log.scrub.interval.ms": 4000,
    "log.scrub.max.bytes.per.second": 1 << 20,
    "log.index.interval.bytes": 256,
    "log.segment.bytes.min": 14,
    "log.segment.ms.min": 1,
    "offsets.topic.num.partitions": _OFFSETS_PARTITIONS,
    "offsets.commit.timeout.ms": 3000,
    "group.initial.rebalance.delay.ms": 300,
    "group.min.session.timeout.ms": 1000,
    "controlled.shutdown.retry.backoff.ms": 500,
}
"""Settings of every simulated broker: small sizes and short timeouts allow many restarts in one run."""


def _listeners(name: str, secret: ClusterSecret | None) -> dict[str, str | int | bool]:
    """The settings of a machine's listeners."""
    if secret is not None:
        return {"listeners": f"PLAINTEXT://{name}:{PORT}", "cluster.secret.file": "in memory"}
    return {
        "listeners": f"PLAINTEXT://{name}:{PORT},INTERNAL://{name}:{_BROKERS_PORT}",
        "inter.broker.listener.name": "INTERNAL",
    }


class Machine:
    """One broker's machine. `broker` and `process` belong to the running process; None while none runs."""

    def __init__(
        self,
        world: World,
        zookeeper: ZooKeeperModel,
        network: SimNetwork,
        broker_id: int,
        settings: Mapping[str, str | int | bool],
        work_ms_max: float,
        result_ms_max: float,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._authorizer = authorizer
        self.name = f"b{broker_id}"
        self.broker_id = broker_id
        self.address = Address(self.name, PORT)
        self.disk = SimDisk(world.rng(f"{self.name}/disk"), world.now_ms, cold_share=0.02)
        self.process: Process | None = None
        self.client: SimZooKeeper | None = None
        self.broker: Broker | None = None
        self.is_stopping = False
        self._world = world
        self._zookeeper = zookeeper
        self._network = network
        self.life = 0
        self.awake_since_s = 0.0
        """When its broker last started or resumed after a pause, in simulated seconds."""
        self._is_cut_off = False
        self._boots = 1
        self._ahead_s = 0.0
        self._work_ms_max = work_ms_max
        self._result_ms_max = result_ms_max
        self._workers: SimWorkers | None = None
        self._lost: list[str] = []
        """Ids of log directories that the operator has declared lost."""
        draw = world.rng("cluster secret")
        self._secret = ClusterSecret((draw.randbytes(32),)) if draw.random() < _SECRET_SHARE else None
        self._settings = {
            **SETTINGS,
            "broker.id": broker_id,
            **_listeners(self.name, self._secret),
            **settings,
        }

    @property
    def is_up(self) -> bool:
        return self.process is not None

    @property
    def is_running(self) -> bool:
        """Whether its broker is up and not paused."""
        return self.process is not None and not self.process.paused

    def partitions(self) -> list[Partition]:
        """The broker's replicas; empty before the broker has loaded them."""
        if self.process is None or self.broker is None or self.broker.node is None:
            return []
        return list(self.broker.node.replication.replicas)

    def ask_broker(self, broker_id: int, request: Request[R]) -> Deferred[R]:
        """Have this machine's broker send a request to another one, as a controller's."""
        assert self.process is not None and self.broker is not None and self.broker.node is not None
        answer: Deferred[R] = Deferred()
        peers = self.broker.node.cluster.controller_peers
        self.process.run(lambda: peers.send(broker_id, request).chainDeferred(answer))
        return answer

    def partition(self, at: tuple[str, int]) -> Partition | None:
        """Its broker's replica of a partition."""
        return next((partition for partition in self.partitions() if partition.key == at), None)

    def stored(self, at: tuple[str, int]) -> StoredLog:
        """Read the broker's replica of a partition from the disk.

        Raises ValueError if there is none or its files are damaged.
        """
        partition = self.partition(at)
        if partition is None:
            raise ValueError(f"{self.name} has no replica of {at[0]}-{at[1]}")
        return read_log(self.disk, partition.log.directory, self.name, partition.log.log_start_offset)

    # The start of a process

    def start(self) -> None:
        """Start the broker, unless it is up."""
        if self.process is not None:
            return
        world = self._world
        self.life += 1
        self.awake_since_s = world.seconds()
        world.trace(self.name, f"starts process {self.life}")
        self._network.power_on(self.name)
        self.disk.switch_on()
        process = self.process = Process(world, self.name, self.life)
        process.clock.ahead_s = self._ahead_s
        session_timeout_ms = int(self._settings["zookeeper.session.timeout.ms"])
        self.client = SimZooKeeper(self._zookeeper, process, session_timeout_ms)
        if self._is_cut_off:
            self.client.cut()
        self._workers = SimWorkers(process, self._work_ms_max, self._result_ms_max)
        around = Surroundings(
            process.clock,
            self.disk,
            self.client,
            self._network.for_process(process),
            self._workers,
            process.rng("broker"),
            process.clock.date_ms,
            boot=f"{self.name}, boot {self._boots}",
            secret=self._secret,
            authorizer=self._authorizer,
        )
        process.run(self._begin, process, around)

    def _begin(self, process: Process, around: Surroundings) -> None:
        self.broker = Broker(
            broker_settings({**self._settings, "log.dirs.lost": ",".join(self._lost)}),
            around,
            machine_name=self.name,
            fatal=lambda why: self._gives_up(process, why),
        )
        ensureDeferred(self.broker.start()).addErrback(
            lambda failure: self._gives_up(process, failure.getErrorMessage())
        )

    def _gives_up(self, process: Process, why: str) -> None:
        """Handle the process's exit: its supervisor restarts it a little later."""
        if self.process is process and not self.is_stopping:
            self._world.trace(self.name, f"exits: {why}")
            self._world.clock.callLater(0, self._ended, process)
            self._world.clock.callLater(_RESTART_AFTER_FAILURE_S, self.start)

    @property
    def is_controller(self) -> bool:
        """Whether its broker believes that it is the controller."""
        node = None if self.broker is None else self.broker.node
        return node is not None and node.cluster.controller.is_active

    # The end of a process

    def kill(self) -> None:
        """End the process at once. Its writes stay on disk, and its connections are reset."""
        if self.process is not None:
            self._world.trace(self.name, "is killed")
            self._ended(self.process)

    def lose_power(self) -> None:
        """Cut the power: some or all unsynced writes are lost, and no connection is reset."""
        self._world.trace(self.name, "loses power")
        self._network.power_off(self.name)
        if self.process is not None:
            self._ended(self.process)
        self.disk.lose_power()
        self._boots += 1

    def wipe(self) -> None:
        """Kill the process and replace its disks with empty ones. The operator declares the old ones lost."""
        self.kill()
        self._world.trace(self.name, "gets new disks")
        self._lost += self._directory_ids()
        for directory in LOG_DIRECTORIES:
            self.disk.wipe(directory)

    def go_back(self, snapshot: Snapshot) -> None:
        """Cut the power, and replace the disks' content with an older copy. The operator declares directories
        lost that were made since."""
        self.lose_power()
        self._world.trace(self.name, "gets its disks as they were before")
        before = self._directory_ids()
        self.disk.restore(snapshot)
        self._lost += [each for each in before if each not in self._directory_ids()]

    def _directory_ids(self) -> list[str]:
        """The ids of the log directories on the disks."""
        paths = [f"{directory}/{DIRECTORY_ID}" for directory in LOG_DIRECTORIES]
        return [decode_directory_id(self.disk.peek(path)) for path in paths if self.disk.exists(path)]

    def calm_workers(self, work_ms_max: float) -> None:
        """Let the worker threads' jobs take at most `work_ms_max` from now on, and give results at once."""
        self._work_ms_max, self._result_ms_max = work_ms_max, 0.0
        if self._workers is not None:
            self._workers.delay_ms_max, self._workers.result_ms_max = work_ms_max, 0.0

    def unmount(self, directories: Sequence[str]) -> None:
        """Kill the process and unmount these log directories, so that the next process finds them empty."""
        self.kill()
        for directory in directories:
            self._world.trace(self.name, f"does not mount {directory}")
            self.disk.unmount(directory)

    def mount(self) -> None:
        """Mount all log directories again. Call it only while no process runs."""
        for directory in list(self.disk.unmounted):
            self._world.trace(self.name, f"mounts {directory}")
            self.disk.mount(directory)

    def _ended(self, process: Process) -> None:
        if self.process is not process:
            return
        process.kill()
        self.disk.kill_process()
        self.process = self.broker = self.client = None
        self.is_stopping = False

    def stop(self) -> None:
        """Ask the broker to shut down cleanly. The process ends when the shutdown is complete."""
        process, broker = self.process, self.broker
        if process is None or broker is None or self.is_stopping:
            return
        self._world.trace(self.name, "is asked to stop")
        self.is_stopping = True

        def begin() -> None:
            stopped = ensureDeferred(broker.stop())
            stopped.addErrback(lambda failure: self._world.problem(self.name, failure.getTraceback()))
            stopped.addCallback(lambda _: self._world.clock.callLater(0, self._ended, process))

        process.run(begin)

    # Other faults

    def pause(self) -> None:
        """Suspend the process as SIGSTOP does: it stops running and sends ZooKeeper no heartbeats."""
        if self.process is not None and self.client is not None and not self.process.paused:
            self._world.trace(self.name, "is paused")
            self.process.pause()
            self.client.fall_silent()

    def resume(self) -> None:
        if self.process is not None and self.client is not None and self.process.paused:
            self._world.trace(self.name, "resumes")
            self.awake_since_s = self._world.seconds()
            self.client.speak_again()
            self.process.resume()

    def set_clock(self, ahead_s: float) -> None:
        """Set the machine's clock `ahead_s` seconds ahead of the true time (behind it, if negative)."""
        self._world.trace(self.name, f"has its clock set {ahead_s:+.1f} s from the true time")
        self._ahead_s = ahead_s
        if self.process is not None:
            self.process.clock.ahead_s = ahead_s

    def cut_off_zookeeper(self, *, silently: bool = False) -> None:
        """Cut the machine off from ZooKeeper; `silently`: packets are lost, and no connection is reset."""
        self._is_cut_off = True
        self._world.trace(self.name, f"is cut off from ZooKeeper{' silently' if silently else ''}")
        if self.client is None:
            return
        if silently:
            self.client.cut_silently()
        else:
            self.client.cut()

    def mend_zookeeper(self) -> None:
        self._is_cut_off = False
        if self.client is not None:
            self.client.mend()

    def fail_directory(self, directory: str, *, only_writes: bool) -> None:
        self._world.trace(self.name, f"{directory} fails{' to write' if only_writes else ''}")
        self.disk.fail(directory, only_writes=only_writes)

    def fail_syncs(self, directory: str) -> None:
        self._world.trace(self.name, f"{directory} fails to sync files")
        self.disk.fail_syncs(directory)

    def make_read_only(self, directory: str) -> None:
        self._world.trace(self.name, f"{directory} can only be read")
        self.disk.make_read_only(directory)

    def fill_up(self, room: int) -> None:
        """Leave this many free bytes on the disk."""
        self._world.trace(self.name, f"has {room} bytes left on its disk")
        self.disk.leave_room(room)

    def mend_directories(self) -> None:
        for directory in LOG_DIRECTORIES:
            self.disk.mend(directory)
        self.disk.leave_room(None)


class Cluster:
    """Machines, the network between them, and one ZooKeeper.

    `work_ms_max` is the longest time that a broker's worker thread takes for one read, fsync or recovery,
    and `result_ms_max` the longest time until the broker gets the result. All brokers ask `authorizer` what
    clients may do.
    """

    def __init__(
        self,
        world: World,
        brokers: int,
        settings: Mapping[str, str | int | bool] | None = None,
        *,
        work_ms_max: float = NORMAL_WORK_MS_MAX,
        result_ms_max: float = 0.0,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.world = world
        self.zookeeper = ZooKeeperModel(world)
        self.network = SimNetwork(world)
        self.machines = [
            Machine(
                world,
                self.zookeeper,
                self.network,
                broker_id,
                settings or {},
                work_ms_max,
                result_ms_max,
                authorizer,
            )
            for broker_id in range(1, brokers + 1)
        ]

    def start(self) -> None:
        for machine in self.machines:
            machine.start()

    def machine(self, broker_id: int) -> Machine:
        return self.machines[broker_id - 1]

    def life_of(self, address: Address) -> int:
        """The number of the broker process at an address; each start of a machine's broker counts."""
        return next(machine.life for machine in self.machines if machine.address == address)

    @staticmethod
    def home_of(at: tuple[str, int]) -> tuple[str, int]:
        """The partition whose leader decides about a resource. Names have no partition of their own: the
        owners' group decides about them."""
        return at if at[1] >= 0 else (OFFSETS_TOPIC, partition_of_group(OWNERS_GROUP, _OFFSETS_PARTITIONS))

    def decider(self, address: Address, at: tuple[str, int]) -> Decider:
        """What judges know about the broker at an address that decides about a resource."""
        machine = next(machine for machine in self.machines if machine.address == address)
        home = self.home_of(at)
        partition = machine.partition(home)
        is_led = partition is not None and isinstance(partition.role, Leadership)
        believed = partition.leader_epoch if partition is not None and is_led else -1
        path = partition_state_path(*home)
        is_current = False
        if self.zookeeper.exists(path):
            state = decode_partition_state(*home, self.zookeeper.read(path).data)
            is_current = (state.leader, state.leader_epoch) == (machine.broker_id, believed)
        # A broker that is shutting down no longer decides claims or serves its queues.
        awake_since_s = self.world.seconds() if machine.is_stopping else machine.awake_since_s
        return Decider(machine.life, awake_since_s, believed, is_current)

    def mend(self) -> None:
        """End every fault, and start every broker."""
        self.network.heal()
        self.network.meddled.clear()
        self.zookeeper.calm()
        if not self.zookeeper.available:
            self.zookeeper.start()
        for machine in self.machines:
            # Slow workers take minutes to examine all segments once, and so to find what has rotted.
            machine.calm_workers(NORMAL_WORK_MS_MAX)
            machine.mend_zookeeper()
            machine.disk.spare()
            # An offline log directory stays offline until the broker restarts, and a broker that is shutting
            # down would not restart.
            is_impaired = machine.disk.is_failing or machine.disk.is_bounded or machine.disk.unmounted
            if is_impaired or machine.is_stopping:
                machine.mend_directories()
                machine.kill()
                machine.mount()
            machine.resume()
            machine.start()

    # The state in ZooKeeper

    def broker_epochs(self) -> dict[int, int]:
        """Epochs of the registered brokers, by broker id."""
        registered = self.zookeeper.names_below(BROKER_IDS)
        return {int(name): self.zookeeper.read(broker_path(int(name))).czxid for name in registered}

    def is_start_recorded(self, machine: Machine) -> bool:
        """Whether a controller has recorded the start of the machine's present broker process. From then on
        no partition's state relies on records that only the previous process had."""
        node = None if machine.broker is None else machine.broker.node
        if node is None or not self.zookeeper.exists(CONTROLLER_BROKERS):
            return False
        recorded = decode_controller_brokers(self.zookeeper.read(CONTROLLER_BROKERS).data)
        return recorded.get(machine.broker_id) == node.cluster.membership.start_epoch

    def topics(self) -> dict[str, TopicAssignment]:
        """The topics that ZooKeeper holds."""
        return {
            name: decode_topic(name, self.zookeeper.read(topic_path(name)).data)
            for name in self.zookeeper.names_below(TOPICS)
        }

    def states(self) -> dict[tuple[str, int], PartitionState]:
        """Every partition's state in ZooKeeper."""
        states = {}
        for topic in self.zookeeper.names_below(TOPICS):
            for number in self.zookeeper.names_below(partitions_path(topic)):
                path = partition_state_path(topic, int(number))
                if self.zookeeper.exists(path):
                    data = self.zookeeper.read(path).data
                    states[topic, int(number)] = decode_partition_state(topic, int(number), data)
        return states

    def is_whole(self) -> bool:
        """Whether every broker is registered and every partition has a working leader, all replicas in sync,
        and no reassignment."""
        registered = self.zookeeper.names_below(BROKER_IDS)
        if len(registered) < len(self.machines) or not all(machine.is_running for machine in self.machines):
            return False
        if self.zookeeper.names_below(DELETE_TOPICS):
            return False
        states = self.states()
        return all(
            self._is_in_order((name, number), kept, states.get((name, number)))
            for name, topic in self.topics().items()
            for number, kept in topic.partitions.items()
        )

    def _is_in_order(
        self, at: tuple[str, int], kept: ReplicaAssignment, state: PartitionState | None
    ) -> bool:
        if state is None or state.leader <= 0 or kept.adding or kept.removing:
            return False
        if sorted(state.isr) != sorted(kept.replicas):
            return False
        replicas = [self.machine(member).partition(at) for member in state.isr]
        leader = self.machine(state.leader).partition(at)
        role = leader.role if leader is not None else None
        # ZooKeeper may still list a restarted member as in sync after it lost the end of its log.
        return (
            leader is not None
            and isinstance(role, Leadership)
            and role.leader_epoch == state.leader_epoch
            and role.pending is None
            and all(
                replica is not None
                and not replica.log.damages
                and replica.leader_epoch == state.leader_epoch
                and replica.log.log_end_offset >= leader.high_watermark
                for replica in replicas
            )
        )


@contextmanager
def logs_in_trace(world: World) -> Iterator[None]:
    """Redirect the brokers' log to the trace. An unexpected exception that was logged is added to the world's
    problems."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = [_TraceHandler(world)]
    root.setLevel(logging.INFO)
    observer = _failure_observer(world)
    globalLogPublisher.addObserver(observer)
    try:
        yield
    finally:
        globalLogPublisher.removeObserver(observer)
        root.setLevel(level)
        root.handlers[:] = handlers


class _TraceHandler(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            error = Failure(record.exc_info[1])
            self._world.problem(self._world.running, f"{error.getTraceback()}\n{message}")
        else:
            self._world.trace(self._world.running, message.splitlines()[0])


def _failure_observer(world: World):  # type: ignore[no-untyped-def]
    def observe(event: LogEvent) -> None:
        failure = event.get("log_failure")
        if failure is not None:
            # The garbage collector reports it at an arbitrary time, so it must not enter the trace.
            world.problems.append(f"unhandled failure: {failure.getTraceback()}")

    return observe
