"""A broker's life: up in the order in which its parts need each other, down in the reverse."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred, TimeoutError, ensureDeferred
from twisted.internet.interfaces import IReactorTime

from broker.log.checkpoints import MetaProperties
from broker.log.directory import IdentityError
from broker.log.identity import claim, known_identity
from broker.network.endpoints import parse_endpoints
from broker.process.hand_over import hand_over
from broker.process.periodic import Periodic
from broker.wiring.node import Surroundings, WiredBroker, build_logs
from clients.settings import Settings
from coordinator.cluster import identity as cluster
from coordinator.cluster.membership import BrokerIdInUse
from coordinator.zookeeper.interface import ZooKeeperSession

_log = logging.getLogger(__name__)

T = TypeVar("T")

_NO_ID = -1
_FLUSH_S = 0.05
"""How long a stop waits for responses that have been given to the network to leave."""


class StartError(Exception):
    """The broker cannot start; the message says why."""


class Broker:
    """One broker. `fatal(why)` is called where it cannot go on. Raises `SettingError`."""

    def __init__(
        self,
        settings: Settings,
        around: Surroundings,
        *,
        machine_name: str,
        fatal: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._around = around
        self._fatal = fatal
        self._endpoints = parse_endpoints(settings, machine_name)
        self._logs = build_logs(settings, around)
        self._periodic = Periodic(around.clock)
        self._started_ms = around.now_ms()
        self._are_logs_loaded = False
        self._is_zookeeper_open = False
        self._is_stopping = False
        self.node: WiredBroker | None = None
        """The broker's parts, once it knows who it is."""

    # -- up ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the logs, join the cluster, serve. Raises `StartError`, `SettingError` and OSError."""
        await self._logs.start()
        self._are_logs_loaded = True
        if not self._logs.live_directories:
            failures = "; ".join(str(directory.failure) for directory in self._logs.directories)
            raise StartError(f"none of the log directories (log.dirs) can be used: {failures}")
        _log.info("connecting to ZooKeeper at %s", self._settings["zookeeper.connect"])
        self._is_zookeeper_open = True
        self._around.zookeeper.start()
        cluster_id = await self._within_connection_timeout(
            ensureDeferred(cluster.cluster_id(self._around.zookeeper, self._around.random.randbytes))
        )
        broker_id = await self._identify(cluster_id)
        node = self.node = WiredBroker(
            self._settings, self._around, self._logs, self._endpoints, broker_id, cluster_id
        )
        self._logs.directory_failed = self._directory_failed
        await node.dynamic.load()
        node.membership.add_listener(self)
        try:
            node.endpoints = node.listeners.start(self._endpoints)
        except OSError as error:
            raise StartError(error.strerror or str(error)) from error
        try:
            await node.membership.start()
        except BrokerIdInUse as error:
            raise StartError(str(error)) from error
        node.listen_to_controllers()
        self._begin_periodic(node)
        await self._known_to_the_cluster(node)

    async def _within_connection_timeout(self, deferred: Deferred[T]) -> T:
        timeout_ms = (
            self._settings["zookeeper.connection.timeout.ms"]
            or self._settings["zookeeper.session.timeout.ms"]
        )
        deferred.addTimeout(timeout_ms / 1000, cast(IReactorTime, self._around.clock))
        try:
            return await deferred
        except TimeoutError:
            raise StartError(
                f"ZooKeeper at {self._settings['zookeeper.connect']} (zookeeper.connect) did not answer "
                f"within {timeout_ms} ms: start it, or say where it is"
            ) from None

    async def _identify(self, cluster_id: str) -> int:
        """This broker's id: as set, as the log directories have it, or a new one."""
        try:
            known = known_identity(self._logs.live_directories)
            broker_id: int = self._settings["broker.id"]
            if broker_id == _NO_ID and known is not None:
                broker_id = known.broker_id
            if broker_id == _NO_ID:
                broker_id = await cluster.generate_broker_id(
                    self._around.zookeeper, self._settings["reserved.broker.max.id"]
                )
            claim(self._logs.live_directories, MetaProperties(broker_id, cluster_id))
        except IdentityError as error:
            raise StartError(str(error)) from error
        return broker_id

    async def _known_to_the_cluster(self, node: WiredBroker) -> None:
        """Return once the controller has told this broker of itself: from then on clients can be served."""
        while not self._is_stopping and not node.metadata.is_live(node.broker_id):
            await node.metadata.next_update()

    def _begin_periodic(self, node: WiredBroker) -> None:
        settings, logs, every = self._settings, self._logs, self._periodic.add
        every(settings["log.flush.offset.checkpoint.interval.ms"], logs.checkpoints.write_offsets)
        every(settings["log.flush.scheduler.interval.ms"], logs.flush_due)
        every(settings["producer.id.expiration.check.interval.ms"], logs.expire_producers)
        every(
            settings["replica.high.watermark.checkpoint.interval.ms"],
            lambda: logs.checkpoints.write_high_watermarks(node.replicas.high_watermarks()),
        )
        every(max(1, settings["replica.lag.time.max.ms"] // 2), node.replicas.shrink_in_sync_sets)
        every(settings["offsets.retention.check.interval.ms"], node.groups.service.expire_offsets)

    def describe(self) -> dict[str, Any]:
        """Who this broker is and where it listens, for those who wait for it."""
        assert self.node is not None
        return {
            "broker.id": self.node.broker_id,
            "cluster.id": self.node.cluster_id,
            "listeners": [str(endpoint) for endpoint in self.node.endpoints.advertised],
            "log.dirs": [directory.path for directory in self._logs.live_directories],
        }

    def announce(self) -> None:
        """Say in the log that the broker is up, and where."""
        node = self.node
        assert node is not None
        _log.info(
            "started (broker id %d, cluster %s, listeners %s, log dirs %s, %d ms)",
            node.broker_id,
            node.cluster_id,
            ",".join(str(endpoint) for endpoint in node.endpoints.listeners),
            ",".join(directory.path for directory in self._logs.live_directories),
            self._around.now_ms() - self._started_ms,
        )

    # -- MembershipListener ----------------------------------------------------------------------------------

    def registered(self, session: ZooKeeperSession, broker_epoch: int) -> None:
        pass  # What this broker leads is for the controller to say, and with that it may acknowledge again.

    def suspended(self) -> None:
        if self.node is not None:
            _log.warning("Out of touch with ZooKeeper: nothing is acknowledged by all until that changes")
            self.node.replicas.suspend()

    def resumed(self) -> None:
        if self.node is not None:
            _log.info("In touch with ZooKeeper again, in the same session")
            self.node.replicas.resume()

    def expired(self) -> None:
        if self.node is not None:
            _log.warning("The ZooKeeper session has expired: registering anew")
            self.node.replicas.suspend()

    def registration_failed(self, error: Exception) -> None:
        self._fatal(f"this broker could not register again: {error}")

    # -- log directories -------------------------------------------------------------------------------------

    def _directory_failed(self, path: str) -> None:
        """The broker goes on with what the others hold; without any it is of no use."""
        assert self.node is not None
        self.node.roles.directory_failed()
        if self._logs.live_directories:
            self.node.log_dir_events.announce()
        else:
            self._fatal("the last log directory has failed")

    # -- down ------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Hand over leadership, close the logs cleanly, leave the cluster. Harmless after a failed start."""
        self._is_stopping = True
        self._periodic.stop()
        node = self.node
        if node is not None:
            if self._settings["controlled.shutdown.enable"] and node.membership.is_connected:
                await hand_over(node, self._settings, self._around.clock)
            node.membership.close()
            node.candidacy.stand_down()
            node.groups.service.stop()
            node.ownership.service.stop()
            node.listeners.stop("the broker is stopping")
            node.isr_proposals.stop()
            node.roles.stop()
            node.fetchers.stop()
            await self._pause(_FLUSH_S)
        if self._are_logs_loaded:
            await self._logs.close({} if node is None else node.replicas.high_watermarks())
        if node is not None:
            for peers in (node.peers, node.controller_peers, node.claim_peers, *node.fetch_peers):
                peers.close()
        if self._is_zookeeper_open:
            await self._around.zookeeper.close()
        _log.info("stopped")

    def _pause(self, seconds: float) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self._around.clock.callLater(seconds, done.callback, None)
        return done
