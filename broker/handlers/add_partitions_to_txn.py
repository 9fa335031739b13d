"""AddPartitionsToTxn (key 24): partitions that a transaction is about to write to.

Versions: up to 3 they are a client's, for one transaction; before 2 a fenced producer is answered
INVALID_PRODUCER_EPOCH. From 4 on they are a broker's that leads the partitions: for transactions of several
producers, to add partitions or to ask whether they belong to the transaction (KIP-890). Before 5 a partition
that does not is answered INVALID_TXN_STATE.

A client's request adds all its partitions or none. It needs the right to write under the transactional id,
and to each topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
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


@dataclass(eq=False)
class AddPartitionsToTxnHandler(Handler[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse]):
    request = AddPartitionsToTxnRequest
    transactions: TransactionService
    metadata: MetadataCache

    def handle(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> Deferred[AddPartitionsToTxnResponse]:
        if context.version >= _FIRST_VERSION_OF_BROKERS:
            return self._of_broker(context, request)
        transactional_id = request.v3_and_below_transactional_id
        context.check(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
        check_transactional_id(transactional_id)
        topics = request.v3_and_below_topics
        refused = self._refused(context, topics)
        if refused:
            return succeed(_of_client(topics, refused, ErrorCode.OPERATION_NOT_ATTEMPTED))
        knows_fenced = context.version >= _FIRST_VERSION_WITH_FENCED
        return self.transactions.ask(
            transactional_id,
            lambda shard, waiting, now_ms: shard.add_partitions(
                waiting,
                transactional_id,
                ProducerName(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
                _partitions(topics),
                now_ms=now_ms,
            ),
        ).addCallback(
            lambda answer: _of_client(topics, {}, known_error(answer.error, knows_fenced=knows_fenced))
        )

    def _refused(
        self, context: RequestContext, topics: Sequence[AddPartitionsToTxnTopic]
    ) -> dict[TopicPartition, ErrorCode]:
        """The errors of partitions that the client may not write to, or that do not exist."""
        refused = {}
        for topic in topics:
            may_write = context.may(AclOperation.WRITE, AclResource.TOPIC, topic.name)
            for index in topic.partitions:
                if not may_write:
                    refused[TopicPartition(topic.name, index)] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif self.metadata.partition(topic.name, index) is None:
                    refused[TopicPartition(topic.name, index)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused

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
            return _of_client(request.v3_and_below_topics, {}, error.code)
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
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=errors.get(TopicPartition(topic.name, index), others),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _of_client(
    topics: Sequence[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, ErrorCode], others: ErrorCode
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_transaction=[],
        results_by_topic_v3_and_below=_results(topics, errors, others),
    )
