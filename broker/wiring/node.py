"""The composition root: the one place where a broker is built and wired.

What it stands on (clock, disk, ZooKeeper, network, workers, chance) comes in; nothing here knows whether a
process surrounds it or a simulation. How the parts come up and go down is told in `broker.process.lifecycle`.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred, DeferredLock, fail

from broker.auto_creation import AutoCreation
from broker.dispatch import AnyHandler, Dispatcher
from broker.groups.offsets_topic import offsets_topic
from broker.handlers.alter_configs import AlterConfigsHandler
from broker.handlers.alter_partition import AlterPartitionHandler
from broker.handlers.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from broker.handlers.api_versions import ApiVersionsHandler
from broker.handlers.controlled_shutdown import ControlledShutdownHandler
from broker.handlers.create_partitions import CreatePartitionsHandler
from broker.handlers.create_topics import CreateTopicsHandler
from broker.handlers.delete_records import DeleteRecordsHandler
from broker.handlers.delete_topics import DeleteTopicsHandler
from broker.handlers.describe_cluster import DescribeClusterHandler
from broker.handlers.describe_configs import DescribeConfigsHandler
from broker.handlers.describe_log_dirs import DescribeLogDirsHandler
from broker.handlers.describe_producers import DescribeProducersHandler
from broker.handlers.elect_leaders import ElectLeadersHandler
from broker.handlers.fetch import FetchHandler
from broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from broker.handlers.init_producer_id import InitProducerIdHandler
from broker.handlers.leader_and_isr import LeaderAndIsrHandler
from broker.handlers.list_offsets import ListOffsetsHandler
from broker.handlers.list_partition_reassignments import ListPartitionReassignmentsHandler
from broker.handlers.metadata import MetadataHandler
from broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.handlers.produce import ProduceHandler
from broker.handlers.stop_replica import StopReplicaHandler
from broker.handlers.update_metadata import UpdateMetadataHandler
from broker.log.config import log_directories, topic_defaults
from broker.log.disk import Disk
from broker.log.flusher import Flusher
from broker.log.manager import LogManager, ManagerLimits
from broker.metadata import MetadataCache
from broker.network.endpoints import Endpoints
from broker.network.interfaces import Address, Network
from broker.network.listener import ListenerLimits, Listeners
from broker.network.outbound import ChannelLost, ChannelSettings
from broker.peers import Peers
from broker.replication.fetch_sessions import FetchSessions, SessionLimits
from broker.replication.fetcher import FetchLimits
from broker.replication.fetchers import Fetchers
from broker.replication.fetches import Fetches
from broker.replication.isr_proposals import IsrProposals
from broker.replication.record_deletions import RecordDeletions
from broker.replication.replicas import ReplicaLimits, Replicas
from broker.replication.roles import Roles
from broker.settings.broker import BrokerConfigs
from broker.settings.changes import ConfigChanges
from broker.settings.in_force import DynamicSettings
from broker.settings.topics import TopicConfigs
from broker.settings.view import ConfigView
from broker.strays import Strays
from broker.wiring import ownership
from broker.wiring.groups import Groups
from broker.workers import Workers
from clients.settings import Settings
from coordinator.clock import Clock
from coordinator.cluster.candidacy import Candidacy
from coordinator.cluster.dynamic_configs import DynamicConfigs
from coordinator.cluster.log_dir_events import LogDirEvents
from coordinator.cluster.membership import ClusterMembership
from coordinator.cluster.producer_ids import ProducerIds
from coordinator.controller.effects import BrokerRequest
from coordinator.controller.events import BrokerResponse
from coordinator.controller.machine import ControllerPolicy
from coordinator.controller.service import ControllerService
from coordinator.controller.topic_rules import TopicDefaults
from coordinator.znodes.brokers import BrokerInfo
from coordinator.znodes.brokers import RegisteredEndpoint as RegisteredEndpoint
from coordinator.zookeeper.interface import ZooKeeper
from protocol.api import Request, Response

R = TypeVar("R", bound=Response)

FEATURES = {"holdfast.groups": (1, 1), **ownership.FEATURES}
"""What this broker has beyond Kafka, and in which versions."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a broker stands on."""

    clock: Clock
    disk: Disk
    zookeeper: ZooKeeper
    network: Network
    workers: Workers
    random: random.Random
    monotonic_s: Callable[[], float]
    """A clock that nobody sets, from any beginning: for how long something took. `clock` tells what time it
    is."""

    def now_ms(self) -> int:
        return int(self.clock.seconds() * 1000)


def build_logs(settings: Settings, around: Surroundings) -> LogManager:
    """The logs, which are there before it is known who this broker is."""
    return LogManager(
        log_directories(settings),
        around.disk,
        around.workers,
        around.clock,
        around.random,
        Flusher(around.workers, around.now_ms),
        topic_defaults(settings),
        ManagerLimits(settings["num.recovery.threads.per.data.dir"], settings["producer.id.expiration.ms"]),
    )


class WiredBroker:
    """A broker that knows who it is, with all its parts wired to each other. Nothing runs yet.

    `endpoints` has to be set to the real ones before the broker is registered.
    """

    def __init__(
        self,
        settings: Settings,
        around: Surroundings,
        logs: LogManager,
        endpoints: Endpoints,
        broker_id: int,
        cluster_id: str,
    ) -> None:
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.endpoints = endpoints
        self.logs = logs
        self.metadata = MetadataCache()
        self._settings = settings
        self._around = around
        clock = around.clock

        self.dispatcher = Dispatcher(settings["socket.request.max.elements"])
        self.listeners = Listeners(
            around.network,
            clock,
            self.dispatcher.dispatch,
            ListenerLimits.from_settings(settings),
            around.monotonic_s,
        )
        # The controller's news must not wait behind what brokers ask of a controller.
        timeout_ms = settings["request.timeout.ms"]
        self.controller_peers = self._peers(f"controller-{broker_id}", timeout_ms)
        self.peers = self._peers(f"broker-{broker_id}", timeout_ms)

        self.membership = ClusterMembership(
            around.zookeeper,
            clock,
            self.info,
            conflict_timeout_ms=settings["zookeeper.session.timeout.ms"] + 1000,
        )
        self.dynamic = DynamicConfigs(around.zookeeper, clock)
        self.candidacy = Candidacy(broker_id, clock)
        self.producer_ids = ProducerIds(around.zookeeper, broker_id)
        self.log_dir_events = LogDirEvents(around.zookeeper, broker_id)

        self.isr_proposals = IsrProposals(
            broker_id, clock, self.metadata, lambda: self.membership.broker_epoch, self.ask_controller
        )
        # A connection of its own for each fetch that waits at a leader.
        self.fetch_peers = [
            self._peers(f"replica-fetcher-{broker_id}-{lane}", settings["replica.socket.timeout.ms"])
            for lane in range(settings["num.replica.fetchers"])
        ]
        self.fetchers = Fetchers(
            broker_id,
            clock,
            [peers.send for peers in self.fetch_peers],
            FetchLimits(
                settings["replica.fetch.wait.max.ms"],
                settings["replica.fetch.min.bytes"],
                settings["replica.fetch.max.bytes"],
                settings["replica.fetch.response.max.bytes"],
                settings["replica.fetch.backoff.ms"],
            ),
            lambda: self.membership.broker_epoch,
            lambda log: logs.flusher.durable(log, log.log_end_offset),
        )
        self.replicas = Replicas(
            broker_id,
            clock,
            logs.flusher,
            self.metadata,
            ReplicaLimits(settings["replica.lag.time.max.ms"], settings["waiting.requests.max"]),
            self.isr_proposals.propose,
            FetchSessions(
                around.random.getrandbits,
                SessionLimits(
                    settings["max.incremental.fetch.session.cache.slots"],
                    settings["max.incremental.fetch.session.cache.partitions"],
                ),
            ),
            around.monotonic_s,
        )
        self.isr_proposals.outcome = self.replicas
        self.roles = Roles(self.replicas, logs, self.fetchers, clock)

        self._dynamic_settings = DynamicSettings(settings)
        self._set_throttles()
        view = ConfigView(self._dynamic_settings)
        # The broker's settings before the topics': what topics set goes on top of them.
        self.broker_configs = BrokerConfigs(
            broker_id, self._dynamic_settings, self.dynamic, self._broker_settings_changed
        )
        self.topic_configs = TopicConfigs(view, self.dynamic, logs, self._topic_changed)
        self.controller = ControllerService(
            self.candidacy,
            clock,
            self._tell,
            self._policy(view),
            balance_interval_ms=settings["leader.imbalance.check.interval.seconds"] * 1000
            if settings["auto.leader.rebalance.enable"]
            else 0,
        )
        self.auto_creation = AutoCreation(self.ask_controller, [offsets_topic(settings)])
        # A leader that does not answer, or is too old to, is in nobody's way.
        self.claim_peers = self._peers(f"group-coordinator-{broker_id}", timeout_ms)
        self.groups = Groups(
            settings,
            clock,
            around.monotonic_s,
            around.workers,
            around.random,
            self.metadata,
            self.replicas,
            create_topics=self.auto_creation.create,
            send=self.peers.send,
            send_claims=self.claim_peers.send,
            default_listener=self.endpoints.inter_broker,
        )
        self.ownership = ownership.Ownership(
            settings,
            self.replicas,
            around.zookeeper,
            self.groups.topic.partition_of,
            clock=clock,
            date_ms=around.now_ms,
            monotonic_s=around.monotonic_s,
        )
        self.ownership.connect()
        # Until this life of the broker is registered, what a controller says is meant for the one before.
        self._metadata_in_order = DeferredLock()
        self._roles_in_order = DeferredLock()
        self._metadata_in_order.acquire()
        self._roles_in_order.acquire()
        self.membership.add_listener(self.dynamic)
        self.membership.add_listener(self.candidacy)
        self.dispatcher.add(self._handlers(view))

    def listen_to_controllers(self) -> None:
        """Take what controllers have said and will say: their broker epochs can be told apart from now on."""
        self._metadata_in_order.release()
        self._roles_in_order.release()

    def _peers(self, client_id: str, timeout_ms: int) -> Peers:
        around = self._around
        return Peers(
            self.broker_id,
            self.dispatcher,
            around.network,
            around.clock,
            around.random.random,
            ChannelSettings(client_id, request_timeout_ms=timeout_ms),
            self._address_of,
        )

    def _policy(self, view: ConfigView) -> ControllerPolicy:
        settings, chance = self._settings, self._around.random
        return ControllerPolicy(
            self.endpoints.inter_broker,
            TopicDefaults(settings["num.partitions"], settings["default.replication.factor"]),
            view.check,
            self.topic_configs.unclean_election_allowed,
            lambda: uuid.UUID(int=chance.getrandbits(128), version=4),
            lambda: self._dynamic_settings["leader.imbalance.per.broker.percentage"],
        )

    def _handlers(self, view: ConfigView) -> list[AnyHandler]:
        settings, replicas, metadata, logs = self._settings, self.replicas, self.metadata, self.logs
        strays = Strays(self.broker_id, logs, replicas, self.roles)
        changes = ConfigChanges(self.broker_id, view, self._dynamic_settings, self.dynamic, metadata)
        listener = self.endpoints.inter_broker
        in_order = self._roles_in_order

        def broker_epoch() -> int:
            return self.membership.broker_epoch

        return [
            ApiVersionsHandler(lambda: self.dispatcher.apis, FEATURES),
            MetadataHandler(
                metadata,
                self.cluster_id,
                listener,
                self.auto_creation.create if settings["auto.create.topics.enable"] else None,
            ),
            ProduceHandler(replicas),
            FetchHandler(
                Fetches(replicas, metadata, self._around.workers), replicas, settings["fetch.max.bytes"]
            ),
            ListOffsetsHandler(replicas, self._around.workers),
            OffsetForLeaderEpochHandler(replicas),
            DeleteRecordsHandler(
                RecordDeletions(replicas, metadata),
                replicas.deleters,
                settings["delete.records.purgatory.timeout.ms"],
            ),
            InitProducerIdHandler(self.producer_ids.next),
            DescribeClusterHandler(metadata, self.cluster_id, listener),
            DescribeLogDirsHandler(logs, replicas, self._around.disk),
            DescribeProducersHandler(replicas),
            CreateTopicsHandler(self.controller, view),
            DeleteTopicsHandler(self.controller, metadata, settings["delete.topic.enable"]),
            CreatePartitionsHandler(self.controller),
            ElectLeadersHandler(self.controller),
            AlterPartitionReassignmentsHandler(self.controller),
            ListPartitionReassignmentsHandler(self.controller),
            DescribeConfigsHandler(self.broker_id, view, self.dynamic, metadata),
            AlterConfigsHandler(changes),
            IncrementalAlterConfigsHandler(changes),
            LeaderAndIsrHandler(
                replicas,
                self.roles,
                self.dynamic,
                self.ownership.service.prepare,
                broker_epoch,
                in_order,
                strays,
                self._assigned,
            ),
            UpdateMetadataHandler(metadata, broker_epoch, self._metadata_in_order, in_order, strays),
            StopReplicaHandler(self.roles, broker_epoch, in_order),
            AlterPartitionHandler(self.controller),
            ControlledShutdownHandler(self.controller),
            *self.groups.handlers(),
            *self.ownership.handlers(),
        ]

    def info(self) -> BrokerInfo:
        """What this broker tells the others of itself."""
        return BrokerInfo(
            self.broker_id,
            tuple(
                RegisteredEndpoint(endpoint.name, endpoint.host, endpoint.port, endpoint.protocol)
                for endpoint in self.endpoints.advertised
            ),
            self._settings["broker.rack"],
        )

    def ask_controller(self, request: Request[R]) -> Deferred[R]:
        """The controller's response. Fails with `ChannelError` where there is no controller."""
        controller_id = self.candidacy.controller_id
        if controller_id is None:
            return fail(ChannelLost("the cluster has no controller at the moment"))
        return self.peers.send(controller_id, request)

    def _tell(self, broker_id: int, request: BrokerRequest) -> Deferred[BrokerResponse]:
        """The way of this broker, while it is the controller, to every broker."""
        answer: Deferred[Any] = self.controller_peers.send(broker_id, cast("Request[Any]", request))
        return answer

    def _address_of(self, broker_id: int) -> Address | None:
        node = self.metadata.brokers.get(broker_id)
        endpoint = None if node is None else node.endpoint(self.endpoints.inter_broker)
        return None if endpoint is None else Address(*endpoint)

    def _assigned(self) -> None:
        """The controller has said what this broker leads, in its present registration."""
        if self.membership.is_connected:
            self.replicas.resume()

    def _set_throttles(self) -> None:
        settings = self._dynamic_settings
        self.replicas.throttle.set_rate(settings["leader.replication.throttled.rate"])
        self.fetchers.throttle.set_rate(settings["follower.replication.throttled.rate"])

    def _broker_settings_changed(self) -> None:
        self._set_throttles()
        self.logs.configs.set_defaults(self._dynamic_settings.topic_defaults)
        for topic in list(self.metadata.topics):
            self._topic_changed(topic)

    def _topic_changed(self, topic: str) -> None:
        self.ownership.service.topic_changed(topic)
        if self.topic_configs.unclean_election_allowed(topic):
            self.controller.unclean_election_enabled(topic)
