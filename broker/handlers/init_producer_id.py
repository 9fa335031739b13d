"""InitProducerId (key 22): give a producer an id, unique in the cluster, by which brokers recognise its
retries (KIP-98).

Versions: from 3 on a producer may name its id and epoch to get the next epoch (KIP-360); it gets a new id
instead, which serves a producer without transactions as well. Transactional ids
are refused with UNSUPPORTED_VERSION, because there are no transactions (docs/transactions.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.requests.handler import NO_TRANSACTIONS, Handler, RequestContext
from holdfast_log.coordinator.cluster.producer_ids import ProducerIds
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@dataclass(eq=False)
class InitProducerIdHandler(Handler[InitProducerIdRequest, InitProducerIdResponse]):
    request = InitProducerIdRequest
    producer_ids: ProducerIds

    def handle(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> Deferred[InitProducerIdResponse]:
        if request.transactional_id is not None:
            if not request.transactional_id:
                raise BrokerError(ErrorCode.INVALID_REQUEST)
            context.check(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id)
            context.note_refused("requests with a transactional id", NO_TRANSACTIONS)
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, NO_TRANSACTIONS)
        if not context.may_some(AclOperation.WRITE, AclResource.TOPIC):
            # A client that may write to some topic needs no further right (KIP-679).
            context.check(AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER)
        return self.producer_ids.next().addCallbacks(_response, _no_way_to_zookeeper)

    def failed(
        self, context: RequestContext, request: InitProducerIdRequest, error: BrokerError
    ) -> InitProducerIdResponse:
        return InitProducerIdResponse(throttle_time_ms=0, error_code=error.code, producer_epoch=-1)


def _no_way_to_zookeeper(failure: Failure) -> NoReturn:
    """Have the client ask again. Either this broker is about to stop and another broker has ids, or the znode
    that says which ids are taken is unreadable until an operator repairs it."""
    failure.trap(SessionExpired, BadZnode)
    raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _response(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )
