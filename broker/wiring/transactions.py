"""Builds the transactions that this broker coordinates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.forwarding import SendToBroker
from holdfast_log.broker.groups.settings import CoordinatorTimeouts
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.setting_groups import read_group
from holdfast_log.broker.shards.leadership import ShardLeadership
from holdfast_log.broker.shards.partition_log import ShardLogSettings
from holdfast_log.broker.transactions.group_guards import GroupGuards
from holdfast_log.broker.transactions.markers import MarkerSender
from holdfast_log.broker.transactions.settings import transaction_settings
from holdfast_log.broker.transactions.state_topic import TransactionsTopic
from holdfast_log.broker.transactions.verification import CoordinatorVerifier
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.coordinator.transactions.partitions import TRANSACTIONS_TOPIC
from holdfast_log.coordinator.transactions.service import TransactionService
from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class TransactionParts:
    """The transactions of one broker."""

    transactions_topic: TransactionsTopic
    transactions: TransactionService
    transaction_leadership: ShardLeadership
    markers: MarkerSender
    verifier: CoordinatorVerifier
    group_guards: GroupGuards


def build_transactions(
    settings: Mapping[str, Any],
    around: Surroundings,
    metadata: MetadataCache,
    replicas: Replicas,
    *,
    create_topics: Callable[[list[str]], Deferred[dict[str, ErrorCode]]],
    new_producer_id: Callable[[], Deferred[int]],
    send: SendToBroker,
    send_markers: SendToBroker,
) -> TransactionParts:
    """`create_topics` has the controller create topics. `send` sends requests to other brokers;
    `send_markers` does so on its own channels, so that a leader that writes markers slowly delays no other
    request."""
    topic = TransactionsTopic(metadata, create_topics)
    sender = MarkerSender(around.clock, metadata.leader_of, send_markers)
    service = TransactionService(
        transaction_settings(settings),
        around.clock,
        around.date_ms,
        partition_of=topic.partition_of,
        commit_timeout_ms=read_group(CoordinatorTimeouts, settings).commit_timeout_ms,
        new_markers=sender.of_shard,
        new_producer_id=new_producer_id,
    )
    return TransactionParts(
        transactions_topic=topic,
        transactions=service,
        transaction_leadership=ShardLeadership(
            TRANSACTIONS_TOPIC,
            service,
            replicas,
            metadata,
            around.workers,
            ShardLogSettings(Compression.NONE, settings["transaction.state.log.load.buffer.size"]),
        ),
        markers=sender,
        verifier=CoordinatorVerifier(topic.leader_of, send),
        group_guards=GroupGuards(),
    )
