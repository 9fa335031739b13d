"""AddOffsetsToTxn (key 25): a transaction is about to commit offsets of a group. The partition that stores
them joins the transaction.

Versions: before 2 a fenced producer is answered INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.groups.offsets_topic import OffsetsTopic
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.transactions.answers import check_transactional_id, known_error
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.coordinator.transactions.effects import PartitionsAnswer
from holdfast_log.coordinator.transactions.epochs import ProducerName
from holdfast_log.coordinator.transactions.service import TransactionService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from holdfast_log.protocol.topic_partition import TopicPartition

_FIRST_VERSION_WITH_FENCED = 2


@dataclass(eq=False)
class AddOffsetsToTxnHandler(Handler[AddOffsetsToTxnRequest, AddOffsetsToTxnResponse]):
    request = AddOffsetsToTxnRequest
    transactions: TransactionService
    topic: OffsetsTopic

    def handle(
        self, context: RequestContext, request: AddOffsetsToTxnRequest
    ) -> Deferred[AddOffsetsToTxnResponse]:
        context.check(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id)
        context.check(AclOperation.READ, AclResource.GROUP, request.group_id)
        check_transactional_id(request.transactional_id)
        index = self.topic.partition_of(request.group_id)
        if index is None:
            self.topic.ensure()
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} does not exist yet")
        partitions = (TopicPartition(OFFSETS_TOPIC, index),)

        def answered(answer: PartitionsAnswer) -> AddOffsetsToTxnResponse:
            error = known_error(answer.error, knows_fenced=context.version >= _FIRST_VERSION_WITH_FENCED)
            return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=error)

        return self.transactions.ask(
            request.transactional_id,
            lambda shard, waiting, now_ms: shard.add_partitions(
                waiting,
                request.transactional_id,
                ProducerName(request.producer_id, request.producer_epoch),
                partitions,
                now_ms=now_ms,
            ),
        ).addCallback(answered)

    def failed(
        self, context: RequestContext, request: AddOffsetsToTxnRequest, error: BrokerError
    ) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=error.code)
