"""The composition root: the one place where a broker is built, and where its parts are connected.

`build_broker` calls one builder after the other; each returns its parts as a frozen dataclass, and no part
changes another while it is built. `connect` then lists who calls whom.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.network.admission import BrokerAdmission
from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.replication.outages import DirectoryOutages, ZooKeeperOutages
from holdfast_log.broker.requests.authorization import call_on_change
from holdfast_log.broker.security.sasl.listeners import SaslSetup
from holdfast_log.broker.wiring.authentication import AuthenticationParts, build_authentication
from holdfast_log.broker.wiring.cluster import ClusterParts, build_cluster
from holdfast_log.broker.wiring.groups import GroupParts, build_groups
from holdfast_log.broker.wiring.handlers import build_handlers, handler_types
from holdfast_log.broker.wiring.ownership import OwnershipParts, build_ownership
from holdfast_log.broker.wiring.quotas import QuotaParts, build_quotas
from holdfast_log.broker.wiring.replication import ReplicationParts, build_replication
from holdfast_log.broker.wiring.security import SecurityParts, build_security
from holdfast_log.broker.wiring.settings import SettingsParts, build_settings
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.broker.wiring.transactions import TransactionParts, build_transactions
from holdfast_log.clients.settings import Settings


@dataclass(frozen=True, slots=True)
class WiredBroker:
    """A broker that knows its id, with all its parts connected. Nothing runs yet."""

    settings: SettingsParts
    security: SecurityParts
    quotas: QuotaParts
    authentication: AuthenticationParts
    cluster: ClusterParts
    replication: ReplicationParts
    groups: GroupParts
    transactions: TransactionParts
    ownership: OwnershipParts
    orders: ControllerOrders
    zookeeper_outages: ZooKeeperOutages
    directory_outages: DirectoryOutages


def build_broker(
    static: Settings,
    around: Surroundings,
    logs: LogManager,
    identity: BrokerIdentity,
    admission: BrokerAdmission,
    fatal: Callable[[str], None],
    sasl: SaslSetup | None = None,
) -> WiredBroker:
    """Build a broker, unconnected to ZooKeeper and clients. It calls `fatal(why)` if it cannot continue.
    `sasl` is for its SASL listeners."""
    metadata = MetadataCache()
    settings = build_settings(static, around, identity.broker_id, logs, metadata)
    security = build_security(static, around)
    if security.authorizer is not None:
        around = replace(around, authorizer=security.authorizer)
    quotas = build_quotas(around, admission, settings, metadata)
    authentication = build_authentication(around, admission, settings, sasl or SaslSetup())
    cluster = build_cluster(
        around,
        identity,
        admission,
        metadata,
        settings,
        logs.runs.lineage,
        quotas.clients,
        quotas.connections,
        authentication.gates,
        authentication.login,
    )
    replication = build_replication(around, logs, settings.in_force, cluster)
    groups = build_groups(
        static,
        around,
        metadata,
        replication.replicas,
        create_topics=cluster.auto_creation.create,
        send=cluster.peers.send,
        send_claims=cluster.claim_peers.send,
    )
    transactions = build_transactions(
        static,
        around,
        metadata,
        replication.replicas,
        create_topics=cluster.auto_creation.create,
        new_producer_id=cluster.producer_ids.next,
        send=cluster.peers.send,
        send_markers=cluster.marker_peers.send,
    )
    ownership = build_ownership(
        static,
        around,
        replication.replicas,
        groups.topic.partition_of,
        replication.right,
        replication.fetches,
        cluster.dispatcher.rights,
    )
    zookeeper_outages = ZooKeeperOutages(replication.right, fatal)
    orders = ControllerOrders(
        metadata,
        replication.replicas,
        replication.roles,
        settings.dynamic_configs,
        ownership.service.prepare,
        cluster.membership,
        replication.strays,
        replication.right,
        zookeeper_outages.ordered,
    )
    broker = WiredBroker(
        settings=settings,
        security=security,
        quotas=quotas,
        authentication=authentication,
        cluster=cluster,
        replication=replication,
        groups=groups,
        transactions=transactions,
        ownership=ownership,
        orders=orders,
        zookeeper_outages=zookeeper_outages,
        directory_outages=DirectoryOutages(logs, cluster.log_dir_events, fatal),
    )
    connect(broker, around)
    return broker


def connect(broker: WiredBroker, around: Surroundings) -> None:
    """Connect every callback of the broker: the caller on the left, the callee on the right.

    Listeners of one object are called in the order of these lines.
    """
    settings, cluster, replication = broker.settings, broker.cluster, broker.replication
    groups, ownership, transactions = broker.groups, broker.ownership, broker.transactions
    security = broker.security
    parts = (
        around,
        settings,
        security,
        broker.quotas,
        broker.authentication,
        cluster,
        replication,
        groups,
        transactions,
        ownership,
        broker,
    )
    protocols = {None, *settings.in_force["group.coordinator.rebalance.protocols"]}
    served = [each for each in handler_types() if each.protocol in protocols]
    handlers = build_handlers(served, parts, settings.in_force)

    # Membership in the cluster, and the controller
    around.zookeeper.add_listener(cluster.session_counts)
    around.zookeeper.add_listener(cluster.membership)
    cluster.membership.add_listener(cluster.lease)
    cluster.membership.add_listener(settings.dynamic_configs)
    cluster.membership.add_listener(cluster.candidacy)
    cluster.membership.add_listener(broker.zookeeper_outages)
    cluster.candidacy.add_listener(cluster.controller)

    # Access control lists
    if security.lists is not None and security.authorizer is not None:
        cluster.membership.add_listener(security.lists)
        security.lists.add_listener(security.authorizer.rules_changed, security.authorizer.prepare)

    # The right to confirm, by the lease and by what was yielded
    cluster.lease.add_listener(replication.right.lease_changed)
    replication.right.add_listener(ownership.service.right_changed)
    replication.right.add_listener(replication.replicas.right_changed)

    # Settings: the broker's before the topics', which override them
    settings.dynamic_configs.add_listener(settings.broker.configs_changed)
    settings.dynamic_configs.add_listener(settings.topics.configs_changed)
    settings.dynamic_configs.add_listener(broker.quotas.limits.configs_changed)
    settings.dynamic_configs.add_listener(broker.quotas.store.configs_changed)
    settings.dynamic_configs.add_listener(broker.authentication.scram_users.configs_changed)
    broker.quotas.limits.add_listener(broker.quotas.clients.limits_changed)
    settings.broker.add_listener(replication.throttled_rates.settings_changed)
    settings.broker.add_listener(settings.topics.defaults_changed)
    if around.tls is not None:
        around.tls.follow(settings.in_force)
        settings.in_force.add_check(around.tls.check)
        settings.broker.add_listener(around.tls.look)
    settings.topics.add_listener(ownership.service.topic_changed)
    settings.topics.add_listener(replication.replicas.topic_settings_changed)
    settings.topics.add_listener(cluster.controller.topic_settings_changed)
    settings.topics.add_unclean_election_listener(cluster.controller.unclean_election_enabled)

    # Replicas: roles, in-sync sets, conditional appends, log directories
    replication.replicas.add_role_listener(groups.leadership.role_changed)
    replication.replicas.add_role_listener(transactions.transaction_leadership.role_changed)
    replication.replicas.add_role_listener(ownership.service.role_changed)
    replication.replicas.add_role_listener(replication.repairs.role_changed)
    replication.replicas.add_role_listener(replication.moves.role_changed)
    replication.replicas.conditions.add_mismatch_listener(ownership.service.append_mismatched)
    replication.isr_proposals.add_listener(replication.replicas)
    replication.logs.add_failure_listener(replication.roles.directory_failed)
    replication.logs.add_failure_listener(broker.directory_outages.directory_failed)
    replication.logs.add_damage_listener(replication.repairs.log_damaged)
    replication.logs.checkpoints.add_start_listener(replication.fetchers.start_durable)
    replication.logs.checkpoints.add_start_listener(replication.deletions.start_durable)

    # Transactions
    replication.verifying.verifier = transactions.verifier
    transactions.group_guards.add_marker_listener(groups.service.markers_applied)
    replication.markers.applied = transactions.group_guards.markers_applied

    # Who clients are, and their rights
    broker.authentication.scram_users.add_revocation_listener(
        broker.authentication.revocation.credentials_changed
    )
    if ownership.revocation is not None:
        call_on_change(around.authorizer, ownership.revocation.rules_changed)

    # Topics that are created, grown or deleted
    cluster.metadata.add_listener(groups.service)

    # Requests
    cluster.dispatcher.add(handlers)
