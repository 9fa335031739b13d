"""Creates the topic `__transaction_state` at the first lookup of a transactional id, and finds the
coordinators of transactions."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from holdfast_log.broker.cluster.internal_topic import InternalTopic
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.transactions.settings import TransactionsTopicSettings
from holdfast_log.coordinator.transactions.partitions import TRANSACTIONS_TOPIC
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig


def transactions_topic(settings: TransactionsTopicSettings) -> CreatableTopic:
    """`__transaction_state` as the controller is asked to create it, with Kafka's settings."""
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(settings.min_in_sync),
        "segment.bytes": str(settings.segment_bytes),
        "unclean.leader.election.enable": "false",
    }
    return CreatableTopic(
        name=TRANSACTIONS_TOPIC,
        num_partitions=settings.partitions,
        replication_factor=settings.replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )


class TransactionsTopic(InternalTopic):
    """Maps transactional ids to their coordinators. `create` has the cluster's controller create topics."""

    def __init__(
        self, metadata: MetadataCache, create: Callable[[list[str]], Deferred[dict[str, ErrorCode]]]
    ) -> None:
        super().__init__(
            TRANSACTIONS_TOPIC,
            metadata,
            create,
            replicas="transaction.state.log.replication.factor",
            user="Transactional producers",
        )
