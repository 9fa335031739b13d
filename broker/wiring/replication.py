"""Builds the replicas of this broker: logs, roles, copying from leaders, serving followers."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from holdfast_log.broker.cleaning.cleaner import Cleaner
from holdfast_log.broker.cleaning.settings import CleanerSettings
from holdfast_log.broker.decompression_budget import DecompressionBudget, DecompressionLimits
from holdfast_log.broker.log.flusher import Flusher
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.log.manager_limits import ManagerLimits
from holdfast_log.broker.log.scrubber import ScrubSettings
from holdfast_log.broker.log.settings import log_directories, topic_defaults
from holdfast_log.broker.orders.strays import Strays
from holdfast_log.broker.replication.copy_pace import CopyPace
from holdfast_log.broker.replication.fetch_sessions import FetchSessions, SessionLimits
from holdfast_log.broker.replication.fetcher import FetchLimits
from holdfast_log.broker.replication.fetchers import Fetchers
from holdfast_log.broker.replication.fetches import Fetches
from holdfast_log.broker.replication.held_requests import HeldRequests
from holdfast_log.broker.replication.introducing import Introducing
from holdfast_log.broker.replication.isr_proposals import IsrProposals
from holdfast_log.broker.replication.key_reads import KeyReads
from holdfast_log.broker.replication.log_moves import LogMoves
from holdfast_log.broker.replication.record_deletions import RecordDeletions
from holdfast_log.broker.replication.repair import Repairs
from holdfast_log.broker.replication.replica_choice import ReplicaChoice, ReplicaSelection
from holdfast_log.broker.replication.replicas import ReplicaLimits, Replicas
from holdfast_log.broker.replication.retention import Retention
from holdfast_log.broker.replication.right_to_confirm import RightToConfirm
from holdfast_log.broker.replication.roles import Roles
from holdfast_log.broker.replication.settings import ThrottleRates
from holdfast_log.broker.replication.throttled_rates import ThrottledRates
from holdfast_log.broker.replication.transaction_markers import TransactionMarkers
from holdfast_log.broker.replication.verifying import AddingLimits, Verifying
from holdfast_log.broker.setting_groups import Live, read_group
from holdfast_log.broker.settings.in_force import SettingsInForce
from holdfast_log.broker.wiring.cluster import ClusterParts
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.clients.settings import Settings


@dataclass(frozen=True, slots=True)
class ReplicationParts:
    """This broker's replicas, and the parts that serve and copy them."""

    logs: LogManager
    right: RightToConfirm
    replicas: Replicas
    roles: Roles
    fetchers: Fetchers
    fetches: Fetches
    held_requests: HeldRequests
    decompression: DecompressionBudget
    key_reads: KeyReads
    verifying: Verifying
    markers: TransactionMarkers
    isr_proposals: IsrProposals
    throttled_rates: ThrottledRates
    deletions: RecordDeletions
    strays: Strays
    repairs: Repairs
    moves: LogMoves
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
        FetchSessions(around.random.getrandbits, cluster.rotation.call, read_group(SessionLimits, settings)),
        around.date_ms,
        right,
        Introducing(cluster.handed_out_ids.refusal),
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
    choice = ReplicaChoice(read_group(ReplicaSelection, settings), metadata, broker_id)
    if choice.is_on:
        fetchers.high_watermark_taken = replicas.high_watermark_taken
        fetchers.start_moved = replicas.start_moved
    roles = Roles(replicas, logs, fetchers, clock)
    held_requests = HeldRequests()
    copy_pace = CopyPace(clock)
    decompression = DecompressionBudget(around.workers, read_group(DecompressionLimits, settings))

    def committed_offset(log: Log) -> int | None:
        partition = replicas.find(*log.topic_partition)
        has_role = partition is not None and partition.log is log and partition.role is not None
        return partition.last_stable_offset if partition is not None and has_role else None

    return ReplicationParts(
        logs=logs,
        right=right,
        replicas=replicas,
        roles=roles,
        fetchers=fetchers,
        fetches=Fetches(replicas, metadata, around.workers, choice),
        held_requests=held_requests,
        decompression=decompression,
        verifying=Verifying(replicas, clock, read_group(AddingLimits, settings)),
        markers=TransactionMarkers(replicas),
        key_reads=KeyReads(replicas, around.workers, held_requests, decompression),
        isr_proposals=isr_proposals,
        throttled_rates=ThrottledRates(
            Live(ThrottleRates, settings), replicas.throttle, fetchers.throttle, copy_pace
        ),
        deletions=RecordDeletions(replicas, metadata),
        strays=Strays(broker_id, logs, replicas, roles),
        repairs=Repairs(
            logs, replicas, around.workers, clock, cluster.peers.send, cluster.log_dir_events.announce
        ),
        moves=LogMoves(
            logs,
            replicas,
            around.workers,
            clock,
            around.date_ms,
            lambda: uuid.UUID(int=around.random.getrandbits(128), version=4),
            copy_pace,
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
            decompression,
        ),
    )
