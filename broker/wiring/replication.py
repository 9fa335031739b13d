"""Builds the replicas of this broker: logs, roles, copying from leaders, serving followers."""

from __future__ import annotations

from dataclasses import dataclass

from broker.cleaning.cleaner import Cleaner
from broker.cleaning.settings import CleanerSettings
from broker.log.flusher import Flusher
from broker.log.log import Log
from broker.log.manager import LogManager, ManagerLimits
from broker.log.scrubber import ScrubSettings
from broker.log.settings import log_directories, topic_defaults
from broker.orders.strays import Strays
from broker.replication.fetch_sessions import FetchSessions, SessionLimits
from broker.replication.fetcher import FetchLimits
from broker.replication.fetchers import Fetchers
from broker.replication.fetches import Fetches
from broker.replication.isr_proposals import IsrProposals
from broker.replication.key_reads import KeyReads
from broker.replication.record_deletions import RecordDeletions
from broker.replication.repair import Repairs
from broker.replication.replicas import ReplicaLimits, Replicas
from broker.replication.retention import Retention
from broker.replication.right_to_confirm import RightToConfirm
from broker.replication.roles import Roles
from broker.replication.settings import ThrottleRates
from broker.replication.throttled_rates import ThrottledRates
from broker.setting_groups import Live, read_group
from broker.settings.in_force import SettingsInForce
from broker.wiring.cluster import ClusterParts
from broker.wiring.surroundings import Surroundings
from clients.settings import Settings


@dataclass(frozen=True, slots=True)
class ReplicationParts:
    """This broker's replicas, and the parts that serve and copy them."""

    logs: LogManager
    right: RightToConfirm
    replicas: Replicas
    roles: Roles
    fetchers: Fetchers
    fetches: Fetches
    key_reads: KeyReads
    isr_proposals: IsrProposals
    throttled_rates: ThrottledRates
    deletions: RecordDeletions
    strays: Strays
    repairs: Repairs
    retention: Retention
    cleaner: Cleaner


def build_logs(settings: Settings, around: Surroundings) -> LogManager:
    """Build the log manager, which loads the logs before the broker's id is known."""
    return LogManager(
        log_directories(settings),
        around.disk,
        around.workers,
        around.clock,
        around.date_ms,
        around.random,
        Flusher(around.workers, around.clock),
        topic_defaults(settings),
        read_group(ManagerLimits, settings),
        around.descriptors.log_files,
        read_group(ScrubSettings, settings),
        around.boot,
    )


def build_replication(
    around: Surroundings, logs: LogManager, settings: SettingsInForce, cluster: ClusterParts
) -> ReplicationParts:
    clock, broker_id, metadata = around.clock, cluster.identity.broker_id, cluster.metadata

    def broker_epoch() -> int:
        return cluster.membership.broker_epoch

    isr_proposals = IsrProposals(broker_id, clock, metadata, broker_epoch, cluster.active_controller.ask)
    right = RightToConfirm(cluster.lease.is_held)
    replicas = Replicas(
        broker_id,
        clock,
        logs.flusher,
        metadata,
        read_group(ReplicaLimits, settings),
        isr_proposals.propose,
        FetchSessions(around.random.getrandbits, read_group(SessionLimits, settings)),
        around.date_ms,
        right,
    )
    fetchers = Fetchers(
        broker_id,
        clock,
        [peers.send for peers in cluster.fetch_peers],
        read_group(FetchLimits, settings),
        broker_epoch,
        lambda log: logs.flusher.durable(log, log.log_end_offset),
        around.date_ms,
    )
    roles = Roles(replicas, logs, fetchers, clock)

    def committed_offset(log: Log) -> int | None:
        partition = replicas.find(*log.topic_partition)
        has_role = partition is not None and partition.log is log and partition.role is not None
        return partition.high_watermark if partition is not None and has_role else None

    return ReplicationParts(
        logs=logs,
        right=right,
        replicas=replicas,
        roles=roles,
        fetchers=fetchers,
        fetches=Fetches(replicas, metadata, around.workers),
        key_reads=KeyReads(replicas, around.workers),
        isr_proposals=isr_proposals,
        throttled_rates=ThrottledRates(Live(ThrottleRates, settings), replicas.throttle, fetchers.throttle),
        deletions=RecordDeletions(replicas, metadata),
        strays=Strays(broker_id, logs, replicas, roles),
        repairs=Repairs(
            logs, replicas, around.workers, clock, cluster.peers.send, cluster.log_dir_events.announce
        ),
        retention=Retention(replicas, logs.checkpoints.write_offsets, around.workers, clock, around.date_ms),
        cleaner=Cleaner(
            logs,
            around.disk,
            around.workers,
            clock,
            around.date_ms,
            Live(CleanerSettings, settings),
            committed_offset,
        ),
    )
