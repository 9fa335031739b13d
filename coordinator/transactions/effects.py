"""The effects and answers of the transaction coordinator.

Each event of a `TransactionShard` returns one `TransactionResult`. coordinator/shards/effects.py says in
which order its parts are performed: so a decision about the end of a transaction is durable before any marker
of it is sent, and before the producer is answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_log.coordinator.shards.effects import ProducerStamp, RequestToken, ShardRecord, ShardReply
from holdfast_log.coordinator.transactions.epochs import ProducerName
from holdfast_log.coordinator.transactions.records import Transaction
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class MarkersToWrite:
    """The end of a transaction, for the leaders of its partitions. They are told until all have answered."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class ProducerIdWanted:
    """The answer to a request that needs a new producer id: ask again with one."""


@dataclass(frozen=True, slots=True)
class ProducerAnswer:
    """The answer to InitProducerId and EndTxn: what the producer writes with from now on."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


def success(producer: ProducerName) -> ProducerAnswer:
    """The answer to a producer that goes on with this id and epoch."""
    return ProducerAnswer(ErrorCode.NONE, producer.producer_id, producer.epoch)


@dataclass(frozen=True, slots=True)
class PartitionsAnswer:
    """The answer to AddPartitionsToTxn and AddOffsetsToTxn: an error for each partition, or one for all."""

    error: ErrorCode
    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransactionAnswer:
    """The answer to DescribeTransactions for one transactional id."""

    error: ErrorCode
    transaction: Transaction | None = None


@dataclass(frozen=True, slots=True)
class TransactionsAnswer:
    """The answer to ListTransactions: all that a shard had at a time, in ms since the epoch."""

    transactional_ids: Sequence[str]
    transactions: Sequence[Transaction]
    """In the order of their ids."""
    now_ms: int


@dataclass(slots=True)
class TransactionResult:
    """The effects of one event. `before` has what the records replace, for `TransactionShard.refused`; None:
    the id was unknown."""

    records: list[ShardRecord] = field(default_factory=list)
    stamp: ProducerStamp | None = None
    claims: list[MarkersToWrite] = field(default_factory=list)
    replies: list[ShardReply] = field(default_factory=list)
    before: dict[str, Transaction | None] = field(default_factory=dict)

    def reply(self, request: RequestToken, answer: object) -> None:
        self.replies.append(ShardReply(request, answer))
