"""AddPartitionsToTxn (key 24): partitions that a transaction is about to write to.

Versions: up to 3 they are a client's, for one transaction; before 2 a fenced producer is answered
INVALID_PRODUCER_EPOCH. From 4 on they are a broker's that leads the partitions: for transactions of several
producers, to add partitions or to ask whether they belong to the transaction (KIP-890). Before 5 a partition
that does not is answered INVALID_TXN_STATE.

A client's request adds all its partitions or none. It needs the right to write under the transactional id,
and to each topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from operator import itemgetter

from twisted.internet.defer import Deferred, ensureDeferred, gatherResults
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
from holdfast_log.broker.requests.handler import Handler, RequestContext, refusal
from holdfast_log.broker.transactions.answers import check_transactional_id, known_error
from holdfast_log.coordinator.transactions.effects import PartitionsAnswer
from holdfast_log.coordinator.transactions.epochs import BUMPING_VERSION, ProducerName
from holdfast_log.coordinator.transactions.service import TransactionService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_FIRST_VERSION_WITH_FENCED = 2
_FIRST_VERSION_OF_BROKERS = 4
_FIRST_VERSION_WITH_ABORTABLE = 5

_PART_ROWS = 50
"""Maximum number of partitions of a topic that are looked at, or answered, together."""

_PART_PRICE = 400
"""The price of a part in a turn, in bytes of rows: most have one partition."""


@dataclass(eq=False)
class AddPartitionsToTxnHandler(Handler[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse]):
    request = AddPartitionsToTxnRequest
    transactions: TransactionService
    metadata: MetadataCache
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> Deferred[AddPartitionsToTxnResponse]:
        if context.version >= _FIRST_VERSION_OF_BROKERS:
            return self._of_broker(context, request)
        transactional_id = request.v3_and_below_transactional_id
        context.check(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
        check_transactional_id(transactional_id)
        return ensureDeferred(self._of_client(context, request))

    async def _of_client(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        """Add the partitions, and answer. A request of many is looked at, and answered, in turns."""
        transactional_id, topics = request.v3_and_below_transactional_id, request.v3_and_below_topics
        with self.answers.begin(context, AddPartitionsToTxnResponse) as answer:
            partitions: list[TopicPartition] = []
            refused: dict[TopicPartition, ErrorCode] = {}
            may_write = cache(partial(context.may, AclOperation.WRITE, AclResource.TOPIC))
            for topic, indexes in _parts(topics):
                await answer.turn(_PART_PRICE)
                error = None
                if not may_write(topic.name):
                    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                for index in indexes:
                    added = TopicPartition(topic.name, index)
                    if error is not None:
                        refused[added] = error
                    elif self.metadata.partition(topic.name, index) is None:
                        refused[added] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    else:
                        partitions.append(added)
            others = ErrorCode.OPERATION_NOT_ATTEMPTED
            if not refused:
                asked = self.transactions.ask(
                    transactional_id,
                    lambda shard, waiting, now_ms: shard.add_partitions(
                        waiting,
                        transactional_id,
                        ProducerName(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
                        partitions,
                        now_ms=now_ms,
                    ),
                )
                knows_fenced = context.version >= _FIRST_VERSION_WITH_FENCED
                added_all: PartitionsAnswer = await answer.outcome(asked)
                others = known_error(added_all.error, knows_fenced=knows_fenced)
            return await _answered_in_turns(answer, topics, refused, others)

    def _of_broker(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> Deferred[AddPartitionsToTxnResponse]:
        context.check(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
        if not context.is_broker:
            context.note_refused("clients that pose as brokers", "it sent AddPartitionsToTxn as brokers do")
            raise BrokerError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "only brokers may send this version of AddPartitionsToTxn: send version 3, as clients do",
            )
        knows_abortable = context.version >= _FIRST_VERSION_WITH_ABORTABLE
        asked = [self._ask(each, knows_abortable=knows_abortable) for each in request.transactions]
        return gatherResults(asked).addCallback(
            lambda results: AddPartitionsToTxnResponse(
                throttle_time_ms=0, results_by_transaction=results, results_by_topic_v3_and_below=[]
            )
        )

    def _ask(
        self, each: AddPartitionsToTxnTransaction, *, knows_abortable: bool
    ) -> Deferred[AddPartitionsToTxnResult]:
        partitions = _partitions(each.topics)
        producer = ProducerName(each.producer_id, each.producer_epoch)

        def answered(answer: PartitionsAnswer) -> AddPartitionsToTxnResult:
            errors = {
                partition: known_error(
                    answer.partitions.get(partition, answer.error), knows_abortable=knows_abortable
                )
                for partition in partitions
            }
            return AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=_results(each.topics, errors, answer.error),
            )

        def failed(failure: Failure) -> AddPartitionsToTxnResult:
            return answered(PartitionsAnswer(refusal(failure).code))

        if each.verify_only:
            asked = self.transactions.ask(
                each.transactional_id,
                lambda shard, waiting, _: shard.verify_partitions(
                    waiting, each.transactional_id, producer, partitions
                ),
            )
        else:
            asked = self.transactions.ask(
                each.transactional_id,
                lambda shard, waiting, now_ms: shard.add_partitions(
                    waiting,
                    each.transactional_id,
                    producer,
                    partitions,
                    now_ms=now_ms,
                    client_version=BUMPING_VERSION,
                ),
            )
        return asked.addCallbacks(answered, failed)

    def failed(
        self, context: RequestContext, request: AddPartitionsToTxnRequest, error: BrokerError
    ) -> AddPartitionsToTxnResponse:
        if context.version < _FIRST_VERSION_OF_BROKERS:
            return AddPartitionsToTxnResponse(
                throttle_time_ms=0,
                results_by_transaction=[],
                results_by_topic_v3_and_below=_results(request.v3_and_below_topics, {}, error.code),
            )
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            error_code=error.code,
            results_by_transaction=[],
            results_by_topic_v3_and_below=[],
        )


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, ErrorCode], others: ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=_rows(topic.name, topic.partitions, errors, others),
        )
        for topic in topics
    ]


def _rows(
    topic: str, indexes: Sequence[int], errors: Mapping[TopicPartition, ErrorCode], others: ErrorCode
) -> list[AddPartitionsToTxnPartitionResult]:
    return [
        AddPartitionsToTxnPartitionResult(
            partition_index=index, partition_error_code=errors.get(TopicPartition(topic, index), others)
        )
        for index in indexes
    ]


def _parts(
    topics: Sequence[AddPartitionsToTxnTopic],
) -> Iterator[tuple[AddPartitionsToTxnTopic, Sequence[int]]]:
    """The partitions of each topic, a few at a time; a topic without any comes once."""
    for topic in topics:
        for start in range(0, max(1, len(topic.partitions)), _PART_ROWS):
            yield topic, topic.partitions[start : start + _PART_ROWS]


async def _answered_in_turns(
    answer: LongAnswer,
    topics: Sequence[AddPartitionsToTxnTopic],
    errors: Mapping[TopicPartition, ErrorCode],
    others: ErrorCode,
) -> AddPartitionsToTxnResponse:
    results = answer.rows(AddPartitionsToTxnTopicResult)
    for topic, parts in groupby(_parts(topics), itemgetter(0)):
        rows = answer.rows(AddPartitionsToTxnPartitionResult)
        for _, indexes in parts:
            await answer.turn(_PART_PRICE)
            for row in _rows(topic.name, indexes, errors, others):
                rows.add(row)
        results.add(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=rows.finish()))
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0, results_by_transaction=[], results_by_topic_v3_and_below=results.finish()
    )
