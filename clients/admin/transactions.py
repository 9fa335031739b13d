"""Transactions: listing, describing, aborting and fencing them (KIP-664, KIP-588)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.admin.cluster import describe_cluster
from holdfast_log.clients.admin.leaders import ask_leaders
from holdfast_log.clients.groups.coordinator import TRANSACTION_KEY_TYPE
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
)
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.list_transactions import ListTransactionsRequest
from holdfast_log.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_FENCING_TIMEOUT_MS = 10_000
"""The timeout of transactions that a fencing call names: none is begun with its epoch."""
_ANY_DURATION_MS = -1
_UNFINISHED = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states in which a transaction is open, or partitions lack its marker."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a listing. `state` is one of Kafka's, as Ongoing; `coordinator` a broker's id."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id. `start_ms` is when its transaction began, in ms since the epoch; None if it has
    none: coordinators keep the time of the last one, which says nothing once that has ended.

    `partitions` are those of the open transaction; while it ends, those that lack their marker.
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition, with the numbers that `Admin.describe_producers` reports.

    `coordinator_epoch` is that of the producer's last marker there, -1 if it has none.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """What fencing gave a transactional id: the producers before this epoch are refused."""

    producer_id: int
    producer_epoch: int


def list_transactions(
    asking: Asking,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    open_longer_than_ms: int | None = None,
) -> list[TransactionListing]:
    """The transactional ids of all coordinators, sorted by name."""
    duration_ms = _ANY_DURATION_MS if open_longer_than_ms is None else open_longer_than_ms
    request = ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=duration_ms
    )
    nodes = [node.id for node in describe_cluster(asking).nodes]
    asking.know_nodes(nodes)
    found = []
    for node in nodes:
        response = asking.ask(node, request, lambda answer: [answer.error_code])
        raise_first([(f"the transactions of broker {node}", response.error_code, None)])
        if response.unknown_state_filters:
            raise error_for(
                ErrorCode.INVALID_REQUEST,
                f"broker {node} knows no state {', '.join(sorted(response.unknown_state_filters))}: "
                "states are Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort",
            )
        found += [
            TransactionListing(row.transactional_id, node, row.producer_id, row.transaction_state)
            for row in response.transaction_states
            # A coordinator compares the time at which the last transaction began, also if it has ended.
            if open_longer_than_ms is None or row.transaction_state in _UNFINISHED
        ]
    return sorted(found, key=lambda each: each.transactional_id)


def describe_transactions(
    asking: Asking, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription]:
    """The state of these transactional ids."""
    found = {}
    for each in dict.fromkeys(transactional_ids):
        response, coordinator = asking.ask_coordinator(
            each,
            DescribeTransactionsRequest(transactional_ids=[each]),
            lambda answer: [row.error_code for row in answer.transaction_states],
            TRANSACTION_KEY_TYPE,
        )
        (row,) = response.transaction_states
        raise_first([(f"transactional id {each}", row.error_code, None)])
        found[each] = _described(row, coordinator)
    return found


def abort_transaction(asking: Asking, transaction: OpenTransaction) -> None:
    """Have the leader of a partition write the marker that aborts a transaction in it."""
    at = transaction.partition
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=at.topic, partition_indexes=[at.partition])],
                # No coordinator has written for this producer yet: 0 is below the epoch of none.
                coordinator_epoch=max(0, transaction.coordinator_epoch),
            )
        ]
    )

    def ask(
        node: int, led: Sequence[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, int, str | None, None]]:
        for marker in asking.ask(node, request).markers:
            for topic in marker.topics:
                for row in topic.partitions:
                    yield TopicPartition(topic.name, row.partition_index), row.error_code, None, None

    ask_leaders(asking, [at], ask)


def fence_producers(asking: Asking, transactional_ids: Iterable[str]) -> Mapping[str, FencedProducer]:
    """Give these transactional ids a new epoch each, which aborts what their producers have open."""
    found = {}
    for each in dict.fromkeys(transactional_ids):
        response, _ = asking.ask_coordinator(
            each,
            InitProducerIdRequest(transactional_id=each, transaction_timeout_ms=_FENCING_TIMEOUT_MS),
            lambda answer: [answer.error_code],
            TRANSACTION_KEY_TYPE,
        )
        raise_first([(f"transactional id {each}", response.error_code, None)])
        found[each] = FencedProducer(response.producer_id, response.producer_epoch)
    return found


def _described(row: DescribedTransaction, coordinator: int) -> TransactionDescription:
    return TransactionDescription(
        row.transactional_id,
        coordinator,
        row.transaction_state,
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout_ms,
        row.transaction_start_time_ms if row.transaction_state in _UNFINISHED else None,
        tuple(
            TopicPartition(topic.topic, index)
            for topic in sorted(row.topics, key=lambda each: each.topic)
            for index in sorted(topic.partitions)
        ),
    )
