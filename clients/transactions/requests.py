"""The requests of a transactional producer to coordinators, and what their answers mean."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast_log.clients.errors import CommitFailedError, TransactionAbortedError
from holdfast_log.clients.groups.coordinator import COORDINATOR_MOVED, coordinator_in
from holdfast_log.clients.groups.membership import GroupIdentity
from holdfast_log.clients.message import OffsetAndMetadata, by_topic
from holdfast_log.protocol.api import Response
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from holdfast_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from holdfast_log.protocol.messages.end_txn import EndTxnResponse
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorResponse
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdResponse
from holdfast_log.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_MEMBERSHIP_LOST = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
)
_DOOMING = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
)

_ABORTING = (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.OWNERSHIP_FENCED)
"""Refusals of a commit that leave the producer as it is (KIP-890, own API)."""


class TransactionStep(enum.Enum):
    """What a producer asks next; the value says so in words, for errors."""

    FIND = "looks for the coordinator of its transactional id"
    FIND_GROUP = "looks for the coordinator of a consumer group"
    INIT = "asks the coordinator for its producer id"
    ADD_PARTITIONS = "adds partitions to its transaction"
    ADD_GROUP = "adds a consumer group to its transaction"
    COMMIT_OFFSETS = "stores the offsets of a consumer group"
    END = "ends its transaction"


@dataclass(frozen=True, slots=True)
class TransactionalName:
    """Under which names a producer writes."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class OffsetsInTransaction:
    """Offsets of a group on their way into the open transaction."""

    group: GroupIdentity
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    is_done: bool = False
    error: Exception | None = None
    """Why they are not part of it, once it is done."""


def add_partitions_request(
    name: TransactionalName, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Says that a transaction is about to write to partitions."""
    return AddPartitionsToTxnRequest(
        transactions=[],
        v3_and_below_transactional_id=name.transactional_id,
        v3_and_below_producer_id=name.producer_id,
        v3_and_below_producer_epoch=name.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ],
    )


def commit_offsets_request(
    name: TransactionalName, group: GroupIdentity, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> TxnOffsetCommitRequest:
    """Stores offsets that count once the transaction is committed."""
    tokens = dict(group.tokens)
    return TxnOffsetCommitRequest(
        transactional_id=name.transactional_id,
        group_id=group.group_id,
        producer_id=name.producer_id,
        producer_epoch=name.epoch,
        generation_id=group.generation,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        owner_group=group.owner_group,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=stored.offset,
                        committed_leader_epoch=stored.leader_epoch,
                        committed_metadata=stored.metadata,
                        owner_token=tokens.get(TopicPartition(topic, number), -1),
                    )
                    for number in numbers
                    for stored in (offsets[TopicPartition(topic, number)],)
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )


def raise_refusal(response: Response | None) -> None:
    """Raise the error in an answer, if there is one: of the partition whose error says most, or of all."""
    match response:
        case FindCoordinatorResponse():
            coordinator_in(response)
        case InitProducerIdResponse() | AddOffsetsToTxnResponse() | EndTxnResponse():
            _raise(response.error_code)
        case AddPartitionsToTxnResponse():
            _raise_first(
                (TopicPartition(topic.name, row.partition_index), row.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            )
        case TxnOffsetCommitResponse():
            _raise_first(
                (TopicPartition(topic.name, row.partition_index), row.error_code)
                for topic in response.topics
                for row in topic.partitions
            )


def _raise_first(codes: Iterable[tuple[TopicPartition, int]]) -> None:
    refused = [(place, code) for place, code in codes if code]
    told = [each for each in refused if each[1] != ErrorCode.OPERATION_NOT_ATTEMPTED] or refused
    # One that no repetition helps decides; the others are asked again anyway.
    told.sort(key=lambda each: error_for(each[1]).retriable)
    for place, code in told:
        if code in _MEMBERSHIP_LOST:
            raise CommitFailedError(
                f"{place}: the group was rebalanced after poll() returned these records, or the consumer has "
                f"left it; their new owner will process them again ({error_for(code)})"
            )
        _raise(code, f"{place}: ")


def _raise(code: int, where: str = "") -> None:
    if code:
        raise error_for(code, f"{where}{error_for(code).message}" if where else None)


def moves_coordinator(error: Exception) -> bool:
    """Whether the coordinator must be found again: it has moved, or does not answer."""
    return not isinstance(error, BrokerError) or error.code in COORDINATOR_MOVED


def dooms(step: TransactionStep, error: Exception) -> bool:
    """Whether a refusal that no repetition helps ends the producer, and not only its transaction."""
    if isinstance(error, BrokerError) and error.code in _DOOMING:
        return True
    if step is TransactionStep.END:
        return isinstance(error, BrokerError) and error.code not in _ABORTING
    return step in (TransactionStep.FIND, TransactionStep.INIT)


def timed_out(transactional_id: str, timeout_ms: int) -> TransactionAbortedError:
    """Why the coordinator has none open to commit. With transaction.version 2 the producer may then abort,
    and go on; with version 1 it was fenced (KIP-890)."""
    return TransactionAbortedError(
        f"the transaction of transactional.id={transactional_id} was open for longer than "
        f"transaction.timeout.ms={timeout_ms}, and was aborted. Repeat it in a new transaction, in less "
        "time or with a longer timeout"
    )


def explained(error: Exception, transactional_id: str, timeout_ms: int) -> Exception:
    """A refusal of the producer with what an application can do about it."""
    if not isinstance(error, BrokerError):
        return error
    if error.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
        return error_for(
            ErrorCode.PRODUCER_FENCED,
            f"another producer has begun with transactional.id={transactional_id}, or a transaction of this "
            f"one was open for longer than transaction.timeout.ms={timeout_ms} and was aborted. If no other "
            "producer may be at work, make a new one",
        )
    if error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return error_for(
            error.code,
            f"transaction.timeout.ms={timeout_ms} is above what the broker allows: lower it, or raise the "
            "broker's transaction.max.timeout.ms",
        )
    return error_for(error.code, f"transactional.id={transactional_id}: {error.message}")
