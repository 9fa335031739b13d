"""InitProducerId (key 22): give a producer an id, unique in the cluster, by which brokers recognise its
retries, and a transactional producer the epoch that fences its predecessors (KIP-98).

Versions: from 3 on a producer may name its id and epoch to get the next epoch (KIP-360); one without a
transactional id gets a new id instead, which serves it as well. Before 4 a fenced producer is answered
INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.transactions.answers import check_transactional_id, known_error
from holdfast_log.coordinator.cluster.producer_ids import ProducerIds
from holdfast_log.coordinator.shards.hosted_shard import ShardEvent
from holdfast_log.coordinator.transactions.effects import ProducerAnswer
from holdfast_log.coordinator.transactions.epochs import ProducerName
from holdfast_log.coordinator.transactions.records import NO_PRODUCER_ID
from holdfast_log.coordinator.transactions.service import TransactionService
from holdfast_log.coordinator.transactions.shard import TransactionShard
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FIRST_VERSION_WITH_FENCED = 4


@dataclass(eq=False)
class InitProducerIdHandler(Handler[InitProducerIdRequest, InitProducerIdResponse]):
    request = InitProducerIdRequest
    producer_ids: ProducerIds
    transactions: TransactionService

    def handle(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> Deferred[InitProducerIdResponse]:
        if request.transactional_id is not None:
            return self._init(context, request, request.transactional_id)
        if not context.may_some(AclOperation.WRITE, AclResource.TOPIC):
            # A client that may write to some topic needs no further right (KIP-679).
            context.check(AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER)
        return self.producer_ids.next().addCallbacks(_response, _no_way_to_zookeeper)

    def _init(
        self, context: RequestContext, request: InitProducerIdRequest, transactional_id: str
    ) -> Deferred[InitProducerIdResponse]:
        check_transactional_id(transactional_id)
        context.check(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
        expected = None
        if request.producer_id != NO_PRODUCER_ID:
            expected = ProducerName(request.producer_id, request.producer_epoch)

        def event(new_producer_id: int | None) -> ShardEvent[TransactionShard]:
            return lambda shard, waiting, now_ms: shard.init_producer_id(
                waiting,
                transactional_id,
                request.transaction_timeout_ms,
                now_ms=now_ms,
                expected=expected,
                new_producer_id=new_producer_id,
                source=context.source,
            )

        return self.transactions.ask_with_id(transactional_id, event).addCallbacks(
            lambda answer: _of_transactional(context, answer), _no_way_to_zookeeper
        )

    def failed(
        self, context: RequestContext, request: InitProducerIdRequest, error: BrokerError
    ) -> InitProducerIdResponse:
        return InitProducerIdResponse(throttle_time_ms=0, error_code=error.code, producer_epoch=-1)


def _no_way_to_zookeeper(failure: Failure) -> NoReturn:
    """Have the client ask again. Either this broker is about to stop and another broker has ids, or the znode
    that says which ids are taken is unreadable until an operator repairs it."""
    if failure.check(BrokerError):
        failure.raiseException()
    failure.trap(SessionExpired, BadZnode)
    raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _response(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def _of_transactional(context: RequestContext, answer: ProducerAnswer) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=known_error(answer.error, knows_fenced=context.version >= _FIRST_VERSION_WITH_FENCED),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )
