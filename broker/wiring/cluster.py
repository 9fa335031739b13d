"""Builds what connects this broker with the others: network, membership, the controller."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from twisted.internet.defer import Deferred

from holdfast_log.broker.cluster.auto_creation import AutoCreation
from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.offsets_topic import offsets_topic
from holdfast_log.broker.groups.settings import OffsetsTopicSettings
from holdfast_log.broker.network.admission import BrokerAdmission
from holdfast_log.broker.network.endpoints import Endpoints
from holdfast_log.broker.network.handshake import NONCE_BYTES, CallerHandshake
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.listener import ListenerLimits, Listeners
from holdfast_log.broker.network.outbound import ChannelSettings
from holdfast_log.broker.network.rotation import Rotation
from holdfast_log.broker.quotas.client_quotas import ClientQuotas
from holdfast_log.broker.quotas.connection_rates import ConnectionRates
from holdfast_log.broker.replication.settings import ReplicationSettings
from holdfast_log.broker.requests.answers import AnswerLimits, LongAnswers
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.requests.parts import PartedRequests
from holdfast_log.broker.requests.peers import ActiveController, Peers
from holdfast_log.broker.security.sasl.gates import SaslGates
from holdfast_log.broker.setting_groups import Live, read_group, settings_group
from holdfast_log.broker.settings.rows import ROWS
from holdfast_log.broker.transactions.settings import TransactionsTopicSettings
from holdfast_log.broker.transactions.state_topic import transactions_topic
from holdfast_log.broker.wiring.settings import SettingsParts
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.coordinator.cluster.candidacy import Candidacy
from holdfast_log.coordinator.cluster.handed_out_ids import HandedOutIds
from holdfast_log.coordinator.cluster.lease import MembershipLease
from holdfast_log.coordinator.cluster.log_dir_events import LogDirEvents
from holdfast_log.coordinator.cluster.membership import ClusterMembership
from holdfast_log.coordinator.cluster.producer_ids import ProducerIds
from holdfast_log.coordinator.cluster.session_counts import SessionCounts
from holdfast_log.coordinator.controller.effects import BrokerRequest
from holdfast_log.coordinator.controller.events import BrokerResponse
from holdfast_log.coordinator.controller.machine import ControllerPolicy
from holdfast_log.coordinator.controller.partition_limits import PartitionLimits
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.coordinator.controller.topic_rules import TopicDefaults
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.znodes.brokers import (
    ELIGIBLE_LEADERS,
    NO_EPOCH,
    PROTOCOL,
    REPLICA_LOG_INFO,
    TRANSACTION_VERSION,
    YIELDS_LEADERSHIP,
    BrokerInfo,
    RegisteredEndpoint,
)
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.inter_broker import CREATIONS_NAME_CLIENTS, NEWEST, OLDEST
from holdfast_log.protocol.sasl.callers import SaslCaller

_CONFLICT_MARGIN_MS = 1000
"""Maximum time in ms that a killed broker's registration may outlast its session timeout."""


@settings_group(ROWS)
@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of this broker's membership in its cluster, and defaults of new topics."""

    rack: Annotated[str | None, "broker.rack"]
    machine: Annotated[str | None, "broker.machine"]
    session_timeout_ms: Annotated[int, "zookeeper.session.timeout.ms"]
    request_timeout_ms: Annotated[int, "request.timeout.ms"]
    request_elements_max: Annotated[int, "socket.request.max.elements"]
    partitions: Annotated[int, "num.partitions"]
    replication_factor: Annotated[int, "default.replication.factor"]
    partitions_per_request: Annotated[int, "request.partitions.max"]
    partitions_per_topic: Annotated[int, "topic.partitions.max"]
    partitions_per_broker: Annotated[int, "broker.partitions.max"]
    protocol: Annotated[int, "inter.broker.protocol.version"]
    transaction_version: Annotated[int, "transaction.version"]


@settings_group(ROWS)
@dataclass(frozen=True, slots=True)
class BalanceSettings:
    """Whether and how often the controller moves leadership back to preferred leaders, and from which
    percentage of a broker's partitions on."""

    is_enabled: Annotated[bool, "auto.leader.rebalance.enable"]
    check_interval_seconds: Annotated[int, "leader.imbalance.check.interval.seconds"]
    imbalance_percentage: Annotated[int, "leader.imbalance.per.broker.percentage"]


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """The cluster as this broker knows it, and its channels to other brokers.

    Each kind of request has its own channels, so that none waits behind another: `controller_peers` for this
    broker's orders while it is the controller, `claim_peers` for the claims of groups with single readers,
    `marker_peers` for the end markers of transactions, one of `fetch_peers` for each fetch that waits at a
    leader, and `peers` for all other requests.
    """

    identity: BrokerIdentity
    metadata: MetadataCache
    first_update: FirstUpdate
    dispatcher: Dispatcher
    answers: LongAnswers
    rotation: Rotation
    listeners: Listeners
    peers: Peers
    controller_peers: Peers
    claim_peers: Peers
    marker_peers: Peers
    fetch_peers: tuple[Peers, ...]
    membership: ClusterMembership
    lease: MembershipLease
    candidacy: Candidacy
    controller: ControllerService
    active_controller: ActiveController
    auto_creation: AutoCreation
    producer_ids: ProducerIds
    handed_out_ids: HandedOutIds
    log_dir_events: LogDirEvents
    session_counts: SessionCounts

    @property
    def all_peers(self) -> tuple[Peers, ...]:
        return (self.peers, self.controller_peers, self.claim_peers, self.marker_peers, *self.fetch_peers)


def build_cluster(
    around: Surroundings,
    identity: BrokerIdentity,
    admission: BrokerAdmission,
    metadata: MetadataCache,
    parts: SettingsParts,
    lineage: Sequence[int],
    quotas: ClientQuotas,
    rates: ConnectionRates,
    gates: SaslGates,
    login: Callable[[], SaslCaller] | None = None,
) -> ClusterParts:
    """`lineage` are the start epochs of the broker's previous processes, latest first, whose writes this
    broker still has; empty if records may be lost."""
    settings = read_group(ClusterSettings, parts.static)
    broker_id = identity.broker_id
    repeated_log = RepeatedLog(around.clock)
    rotation = around.rotation or Rotation(around.clock)
    answers = LongAnswers(around.clock, read_group(AnswerLimits, parts.static), rotation)
    dispatcher = Dispatcher(
        repeated_log,
        settings.request_elements_max,
        around.authorizer,
        quotas,
        parted=PartedRequests(answers),
        clock_s=around.clock.seconds,
    )
    listeners = _listeners(around, parts, admission, dispatcher, repeated_log, rates, gates, rotation)
    handshakes = _handshakes(around, identity, admission)

    def peers_as(client_id: str, timeout_ms: int = settings.request_timeout_ms) -> Peers:
        channels = ChannelSettings(client_id, settings.protocol, request_timeout_ms=timeout_ms)
        return _peers(around, identity, metadata, dispatcher, channels, handshakes, login)

    peers, controller_peers = peers_as(f"broker-{broker_id}"), peers_as(f"controller-{broker_id}")
    candidacy = Candidacy(broker_id, around.clock, around.date_ms)
    active_controller = ActiveController(candidacy, peers)
    replication = read_group(ReplicationSettings, parts.static)
    handed_out_ids = HandedOutIds(around.zookeeper, around.clock)
    return ClusterParts(
        identity=identity,
        metadata=metadata,
        first_update=FirstUpdate(metadata, around.clock),
        dispatcher=dispatcher,
        answers=answers,
        rotation=rotation,
        listeners=listeners,
        peers=peers,
        controller_peers=controller_peers,
        claim_peers=peers_as(f"group-coordinator-{broker_id}"),
        marker_peers=peers_as(f"transaction-coordinator-{broker_id}"),
        fetch_peers=tuple(
            peers_as(f"replica-fetcher-{broker_id}-{lane}", replication.timeout_ms)
            for lane in range(replication.fetchers)
        ),
        membership=_membership(around, identity, listeners, settings, lineage),
        lease=MembershipLease(around.clock, broker_id),
        candidacy=candidacy,
        controller=_controller(around, identity, parts, settings, candidacy, controller_peers),
        active_controller=active_controller,
        auto_creation=_auto_creation(parts, settings, active_controller, repeated_log),
        producer_ids=ProducerIds(around.zookeeper, broker_id, handed_out_ids.reserved),
        handed_out_ids=handed_out_ids,
        log_dir_events=LogDirEvents(around.zookeeper, broker_id),
        session_counts=SessionCounts(),
    )


def _listeners(
    around: Surroundings,
    parts: SettingsParts,
    admission: BrokerAdmission,
    dispatcher: Dispatcher,
    log: RepeatedLog,
    rates: ConnectionRates,
    gates: SaslGates,
    rotation: Rotation,
) -> Listeners:
    limits = read_group(ListenerLimits, parts.static)
    return Listeners(
        around.network,
        around.clock,
        dispatcher.dispatch,
        limits,
        around.descriptors.connections,
        log,
        rates,
        admission.trusted,
        admission.own,
        secure=around.secure,
        guard=gates.guard,
        sending=around.sending,
        rotation=rotation,
    )


def _handshakes(
    around: Surroundings, identity: BrokerIdentity, admission: BrokerAdmission
) -> Callable[[int], CallerHandshake] | None:
    """What begins a handshake with another broker; None if the cluster has no secret."""
    secret = around.secret
    if secret is None:
        return None
    return lambda broker_id: CallerHandshake(
        secret,
        identity.cluster_id,
        identity.broker_id,
        broker_id,
        around.random.randbytes(NONCE_BYTES),
        is_optional=identity.inter_broker_listener in admission.trusted | admission.by_user,
    )


def _peers(
    around: Surroundings,
    identity: BrokerIdentity,
    metadata: MetadataCache,
    dispatcher: Dispatcher,
    channels: ChannelSettings,
    handshakes: Callable[[int], CallerHandshake] | None,
    login: Callable[[], SaslCaller] | None,
) -> Peers:
    def address_of(other_id: int) -> Address | None:
        node = metadata.brokers.get(other_id)
        endpoint = None if node is None else node.endpoint(identity.inter_broker_listener)
        return None if endpoint is None else Address(*endpoint)

    return Peers(
        identity.broker_id,
        dispatcher,
        around.secure.get(identity.inter_broker_listener, around.network),
        around.clock,
        around.random.random,
        channels,
        address_of,
        handshakes,
        login,
    )


def _membership(
    around: Surroundings,
    identity: BrokerIdentity,
    listeners: Listeners,
    settings: ClusterSettings,
    lineage: Sequence[int],
) -> ClusterMembership:
    return ClusterMembership(
        around.zookeeper,
        around.clock,
        around.date_ms,
        lambda: _info(identity, listeners.endpoints, settings, lineage),
        conflict_timeout_ms=settings.session_timeout_ms + _CONFLICT_MARGIN_MS,
    )


def _auto_creation(
    parts: SettingsParts, settings: ClusterSettings, active_controller: ActiveController, log: RepeatedLog
) -> AutoCreation:
    offsets = read_group(OffsetsTopicSettings, parts.static)
    transactions = read_group(TransactionsTopicSettings, parts.static)
    return AutoCreation(
        active_controller.ask,
        log,
        [offsets_topic(offsets), transactions_topic(transactions)],
        names_clients=settings.protocol >= CREATIONS_NAME_CLIENTS,
    )


def _info(
    identity: BrokerIdentity, endpoints: Endpoints | None, settings: ClusterSettings, lineage: Sequence[int]
) -> BrokerInfo:
    """How this broker registers in the cluster."""
    assert endpoints is not None, "a broker listens before it registers"
    return BrokerInfo(
        identity.broker_id,
        tuple(
            RegisteredEndpoint(endpoint.name, endpoint.host, endpoint.port, endpoint.protocol)
            for endpoint in endpoints.advertised
        ),
        settings.rack or settings.machine,  # Kafka's tools know racks only.
        {
            ELIGIBLE_LEADERS: (1, 1),
            PROTOCOL: (OLDEST, NEWEST),
            REPLICA_LOG_INFO: (1, 1),
            TRANSACTION_VERSION: (0, settings.transaction_version),
            YIELDS_LEADERSHIP: (1, 1),
        },
        previous_start_epoch=next(iter(lineage), NO_EPOCH),
        earlier_start_epochs=tuple(lineage[1:]),
        machine=settings.machine,
        protocol=settings.protocol,
    )


def _controller(
    around: Surroundings,
    identity: BrokerIdentity,
    parts: SettingsParts,
    settings: ClusterSettings,
    candidacy: Candidacy,
    peers: Peers,
) -> ControllerService:
    balance = Live(BalanceSettings, parts.in_force)

    def send(broker_id: int, request: BrokerRequest) -> Deferred[BrokerResponse]:
        answer: Deferred[Any] = peers.send(broker_id, cast("Request[Any]", request))
        return answer

    policy = ControllerPolicy(
        identity.inter_broker_listener,
        TopicDefaults(settings.partitions, settings.replication_factor),
        parts.view.check,
        parts.topics.unclean_election_allowed,
        lambda: uuid.UUID(int=around.random.getrandbits(128), version=4),
        lambda: balance.current().imbalance_percentage,
        parts.topics.min_in_sync,
        PartitionLimits(
            settings.partitions_per_request, settings.partitions_per_topic, settings.partitions_per_broker
        ),
    )
    checks = balance.current()
    interval_ms = checks.check_interval_seconds * 1000 if checks.is_enabled else 0
    return ControllerService(candidacy, around.clock, send, policy, balance_interval_ms=interval_ms)
