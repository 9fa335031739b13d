"""A broker's start and stop: a part starts after the parts that it needs, and stops before them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar, cast

from twisted.internet.defer import Deferred, TimeoutError, ensureDeferred, succeed
from twisted.internet.interfaces import IReactorTime

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.log.checkpoints import MetaProperties
from holdfast_log.broker.log.directory import IdentityError
from holdfast_log.broker.log.identity import check_owner, claim, known_identity
from holdfast_log.broker.log.run_marks import NO_EPOCH
from holdfast_log.broker.metrics.turn_times import TurnTimes
from holdfast_log.broker.network.admission import admission_of, notices
from holdfast_log.broker.network.endpoints import Endpoints, parse_endpoints
from holdfast_log.broker.network.memory import RequestMemory
from holdfast_log.broker.process.hand_over import HandOverSettings, hand_over
from holdfast_log.broker.process.log_directories import compare_directories
from holdfast_log.broker.process.periodic import Periodic
from holdfast_log.broker.process.start_checks import StartError, require_protocol, require_right_time
from holdfast_log.broker.replication.high_watermark_parts import high_watermark_parts
from holdfast_log.broker.replication.repair import REPAIR_INTERVAL_MS
from holdfast_log.broker.security.sasl.listeners import sasl_setup
from holdfast_log.broker.setting_groups import read_group, settings_group
from holdfast_log.broker.settings.rows import ROWS
from holdfast_log.broker.wiring.metrics import MeasuredParts
from holdfast_log.broker.wiring.node import WiredBroker, build_broker
from holdfast_log.broker.wiring.replication import build_logs
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.clients.settings import Settings
from holdfast_log.coordinator.clock import now_ms
from holdfast_log.coordinator.cluster import identity as cluster
from holdfast_log.coordinator.cluster.log_directories import write_used_directories
from holdfast_log.coordinator.cluster.membership import BrokerIdInUse
from holdfast_log.coordinator.cluster.neighbourhood import look_around
from holdfast_log.coordinator.cluster.sasl_secret import sasl_secret
from holdfast_log.coordinator.pause import pause
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import AccessDenied

_log = logging.getLogger(__name__)

T = TypeVar("T")

_NO_ID = -1
_FLUSH_S = 0.05
"""Maximum time in seconds that a stop waits for unsent responses."""


@settings_group(ROWS)
@dataclass(frozen=True, slots=True)
class StartSettings:
    """ZooKeeper's address, how long the start waits for it, and the broker's id."""

    zookeeper_connect: Annotated[str, "zookeeper.connect"]
    connection_timeout_ms: Annotated[int | None, "zookeeper.connection.timeout.ms"]
    session_timeout_ms: Annotated[int, "zookeeper.session.timeout.ms"]
    broker_id: Annotated[int, "broker.id"]
    reserved_id_max: Annotated[int, "reserved.broker.max.id"]
    lost_directories: Annotated[tuple[str, ...], "log.dirs.lost"]
    protocol: Annotated[int, "inter.broker.protocol.version"]
    clock_difference_ms_max: Annotated[int, "clock.difference.max.ms"]


@settings_group(ROWS)
@dataclass(frozen=True, slots=True)
class PeriodicSettings:
    """The intervals of the broker's periodic work."""

    write_offsets_interval_ms: Annotated[int, "log.flush.offset.checkpoint.interval.ms"]
    flush_interval_ms: Annotated[int, "log.flush.scheduler.interval.ms"]
    expire_producers_interval_ms: Annotated[int, "producer.id.expiration.check.interval.ms"]
    write_high_watermarks_interval_ms: Annotated[int, "replica.high.watermark.checkpoint.interval.ms"]
    replica_lag_ms_max: Annotated[int, "replica.lag.time.max.ms"]
    expire_offsets_interval_ms: Annotated[int, "offsets.retention.check.interval.ms"]
    retention_interval_ms: Annotated[int, "log.retention.check.interval.ms"]
    store_check_interval_ms: Annotated[int, "ssl.store.check.interval.ms"]


class Broker:
    """One broker. Calls `fatal(why)` if it cannot continue. `looks_around`: whether it first compares itself
    with the other brokers and with ZooKeeper's clock. Raises `SettingError`."""

    def __init__(
        self,
        settings: Settings,
        around: Surroundings,
        *,
        machine_name: str,
        fatal: Callable[[str], None],
        looks_around: bool = False,
    ) -> None:
        self._looks_around = looks_around
        self._settings = settings
        self._around = around
        self._fatal = fatal
        self._endpoints = parse_endpoints(settings, machine_name)
        self._admission = admission_of(settings, self._endpoints)
        self._sasl = sasl_setup(settings, self._endpoints)
        self._logs = build_logs(settings, around)
        self._periodic = Periodic(around.clock)
        self._started_ms = now_ms(around.clock)
        self._are_logs_loaded = False
        self._is_zookeeper_open = False
        self._used_directories: dict[str, str] | None = None
        """The log directories to record once the broker is registered; None if the record is correct."""
        self._is_stopping = False
        self.node: WiredBroker | None = None
        """The broker's parts; None until it knows its id."""

    # -- up ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the logs, join the cluster, serve clients. Raises `StartError`, `SettingError` and OSError."""
        try:
            await self._join()
        except AccessDenied as error:
            raise StartError(
                f"ZooKeeper does not let this broker use {error.path}, which was created with another user "
                "or password: set zookeeper.digest.file or zookeeper.sasl.file to what the other brokers have"
            ) from error

    async def _join(self) -> None:
        await self._logs.start()
        self._are_logs_loaded = True
        self._check_directories()
        settings = read_group(StartSettings, self._settings)
        _log.info("connecting to ZooKeeper at %s", settings.zookeeper_connect)
        self._is_zookeeper_open = True
        self._around.zookeeper.start()
        cluster_id = await self._cluster_id(settings)
        broker_id = await self._identify(cluster_id, settings)
        if self._looks_around:
            found = await look_around(self._around.zookeeper, broker_id, self._around.date_ms)
            require_right_time(found.ahead_ms, settings.clock_difference_ms_max)
            require_protocol(settings.protocol, found.brokers)
        identity = BrokerIdentity(broker_id, cluster_id, self._endpoints.inter_broker)
        node = self.node = build_broker(
            self._settings, self._around, self._logs, identity, self._admission, self._fatal, self._sasl
        )
        await node.settings.dynamic_configs.load()
        if node.security.lists is not None:
            await node.security.lists.load()
        if self._sasl.has_scram:
            node.authentication.scram_users.secret = await sasl_secret(
                self._around.zookeeper, self._around.random.randbytes
            )
        try:
            node.cluster.listeners.start(self._endpoints)
        except OSError as error:
            raise StartError(error.strerror or str(error)) from error
        for notice in notices(self._admission, node.cluster.listeners.endpoints or self._endpoints):
            _log.log(logging.WARNING if notice.is_warning else logging.INFO, "%s", notice.text)
        try:
            start_epoch = await node.cluster.membership.start()
        except BrokerIdInUse as error:
            raise StartError(str(error)) from error
        if self._used_directories is not None:
            await write_used_directories(self._around.zookeeper, broker_id, self._used_directories)
        await self._logs.begin_run(start_epoch)
        node.orders.begin()
        self._begin_periodic(node)
        await self._known_to_the_cluster(node)

    def unready(self) -> list[str]:
        """Why this broker does not serve clients, one sentence each; none if it does.

        A broker that has lost its connection to ZooKeeper, and whose session has not expired, serves."""
        node = self.node
        if self._is_stopping:
            return ["The broker is stopping."]
        if not self._are_logs_loaded:
            return ["The broker is loading its logs."]
        if node is None:
            return ["The broker waits for ZooKeeper: it does not know the cluster's id and its own yet."]
        if not node.cluster.membership.is_registered:
            return ["The broker is not registered in ZooKeeper; its log says why."]
        if not node.cluster.metadata.is_live(node.cluster.identity.broker_id):
            return ["The broker waits for the controller, which has not sent it the cluster's metadata yet."]
        return []

    def measured(self, turns: TurnTimes, memory: RequestMemory) -> MeasuredParts:
        """The parts that have metrics; before the start is over, some are missing."""
        return MeasuredParts(turns, memory, self._logs, self.node, self._around.tls)

    def prepare_metrics(self) -> Deferred[None]:
        """Find out what this broker has to ask others for, before its metrics are read."""
        return succeed(None) if self.node is None else self.node.groups.lag.look()

    def _check_directories(self) -> None:
        if not self._logs.live_directories:
            failures = "; ".join(
                f"{directory.path}: {directory.failure and (directory.failure.strerror or directory.failure)}"
                for directory in self._logs.directories
            )
            raise StartError(
                f"none of the log directories (log.dirs) can be used: {failures}. Give the broker's user "
                "directories that it may write, or set log.dirs to others"
            )

    async def _within_connection_timeout(self, deferred: Deferred[T], settings: StartSettings) -> T:
        timeout_ms = settings.connection_timeout_ms or settings.session_timeout_ms
        deferred.addTimeout(timeout_ms / 1000, cast(IReactorTime, self._around.clock))
        try:
            return await deferred
        except TimeoutError:
            raise StartError(
                f"ZooKeeper at {settings.zookeeper_connect} (zookeeper.connect) did not answer "
                f"within {timeout_ms} ms: start it, or set zookeeper.connect to its address"
            ) from None

    async def _cluster_id(self, settings: StartSettings) -> str:
        """The cluster's id in ZooKeeper; if that cannot be read, the one in the log directories."""
        try:
            return await self._within_connection_timeout(
                ensureDeferred(cluster.cluster_id(self._around.zookeeper, self._around.random.randbytes)),
                settings,
            )
        except BadZnode as error:
            known = known_identity(self._logs.live_directories)
            if known is None or known.cluster_id is None:
                raise StartError(
                    f"{error}: restore the znode with the cluster.id in another broker's meta.properties"
                ) from None
            _log.error(
                "%s; this broker continues with its own, %s: restore the znode with it",
                error,
                known.cluster_id,
            )
            return known.cluster_id

    async def _identify(self, cluster_id: str, settings: StartSettings) -> int:
        """This broker's id: from its settings, else from its log directories, else a new one."""
        try:
            known = known_identity(self._logs.live_directories)
            if known is not None:
                _log_what_is_kept(self._logs.runs.start_epoch)
            broker_id = settings.broker_id
            if broker_id == _NO_ID and known is not None:
                broker_id = known.broker_id
            if broker_id == _NO_ID:
                broker_id = await cluster.generate_broker_id(self._around.zookeeper, settings.reserved_id_max)
            meta = MetaProperties(broker_id, cluster_id)
            check_owner(self._logs.live_directories, meta)
            self._used_directories = await compare_directories(
                self._around.zookeeper,
                self._logs,
                broker_id,
                settings.lost_directories,
                self._around.random.randbytes,
            )
            self._check_directories()
            claim(self._logs.live_directories, meta)
        except IdentityError as error:
            raise StartError(str(error)) from error
        return broker_id

    async def _known_to_the_cluster(self, node: WiredBroker) -> None:
        """Wait until the controller's metadata lists this broker: then it can serve clients."""
        metadata = node.cluster.metadata
        while not self._is_stopping and not metadata.is_live(node.cluster.identity.broker_id):
            await metadata.next_update()

    def _begin_periodic(self, node: WiredBroker) -> None:
        settings = read_group(PeriodicSettings, self._settings)
        logs, every = self._logs, self._periodic.add
        replicas = node.replication.replicas
        every(settings.write_offsets_interval_ms, logs.checkpoints.write_offsets)
        every(settings.flush_interval_ms, logs.flush_due)
        every(settings.expire_producers_interval_ms, logs.expire_producers)
        every(
            settings.write_high_watermarks_interval_ms,
            lambda: logs.checkpoints.write_high_watermarks_in_turns(
                partial(high_watermark_parts, replicas), node.cluster.rotation.take_steps
            ),
        )
        every(max(1, settings.replica_lag_ms_max // 2), replicas.shrink_in_sync_sets)
        every(settings.expire_offsets_interval_ms, node.groups.service.expire_offsets)
        every(REPAIR_INTERVAL_MS, node.replication.repairs.look)
        every(settings.retention_interval_ms, node.replication.retention.check)
        if self._around.tls is not None:
            every(settings.store_check_interval_ms, self._around.tls.look)
        logs.scrubber.start()
        node.replication.cleaner.start()

    def describe(self) -> dict[str, Any]:
        """The broker's id, cluster, addresses and log directories, for the ready file."""
        identity, endpoints = self._identity_and_endpoints()
        return {
            "broker.id": identity.broker_id,
            "cluster.id": identity.cluster_id,
            "listeners": [str(endpoint) for endpoint in endpoints.advertised],
            "log.dirs": [directory.path for directory in self._logs.live_directories],
        }

    def announce(self) -> None:
        """Log that the broker has started, with its addresses and directories."""
        identity, endpoints = self._identity_and_endpoints()
        _log.info(
            "started (broker id %d, cluster %s, listeners %s, log dirs %s, %d ms)",
            identity.broker_id,
            identity.cluster_id,
            ",".join(str(endpoint) for endpoint in endpoints.listeners),
            ",".join(directory.path for directory in self._logs.live_directories),
            now_ms(self._around.clock) - self._started_ms,
        )

    def _identity_and_endpoints(self) -> tuple[BrokerIdentity, Endpoints]:
        assert self.node is not None and self.node.cluster.listeners.endpoints is not None
        return self.node.cluster.identity, self.node.cluster.listeners.endpoints

    # -- down ------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Hand over leadership, close the logs cleanly, leave the cluster. Also works after a failed
        start."""
        self._is_stopping = True
        self._periodic.stop()
        node = self.node
        if node is not None:
            settings = read_group(HandOverSettings, self._settings)
            if settings.is_enabled and node.cluster.membership.is_connected:
                await hand_over(
                    node.cluster,
                    node.replication.replicas,
                    node.replication.right,
                    settings,
                    self._around.clock,
                )
            node.cluster.membership.close()
            node.cluster.lease.close()
            node.cluster.candidacy.stand_down()
            node.groups.service.stop()
            node.transactions.transactions.stop()
            node.transactions.markers.stop()
            node.ownership.service.stop()
            node.authentication.revocation.stop()
            if node.ownership.revocation is not None:
                node.ownership.revocation.stop()
            node.cluster.listeners.stop("the broker is stopping")
            node.replication.isr_proposals.stop()
            node.replication.replicas.stop()
            node.replication.roles.stop()
            node.replication.retention.stop()
            node.replication.cleaner.stop()
            node.replication.moves.stop()
            node.replication.fetchers.stop()
            await pause(self._around.clock, _FLUSH_S)
        if self._are_logs_loaded:
            await self._logs.close({} if node is None else node.replication.replicas.high_watermarks())
        if node is not None:
            for peers in node.cluster.all_peers:
                peers.close()
        if self._is_zookeeper_open:
            await self._around.zookeeper.close()
        _log.info("stopped")


def _log_what_is_kept(start_epoch: int) -> None:
    if start_epoch != NO_EPOCH:
        _log.info("the log directories hold everything that this broker's last process wrote")
        return
    _log.warning(
        "the log directories may lack records: the machine was booted after an unclean stop, or a directory "
        "is new, offline or a copy. Where another replica may have more records, this broker does not "
        "lead the partition until it has caught up"
    )
