"""StopReplica (key 5, between brokers): the controller ends this broker's roles in partitions, or has their
logs deleted.

Versions: from 3 on each partition carries its leader epoch, so that a late request cannot stop a replica that
was assigned again since (KIP-570).
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


@dataclass(eq=False)
class StopReplicaHandler(Handler[StopReplicaRequest, StopReplicaResponse]):
    request = StopReplicaRequest
    orders: ControllerOrders

    def handle(self, context: RequestContext, request: StopReplicaRequest) -> Deferred[StopReplicaResponse]:
        return self.orders.stop_replica(request)

    def failed(
        self, context: RequestContext, request: StopReplicaRequest, error: BrokerError
    ) -> StopReplicaResponse:
        return StopReplicaResponse(error_code=error.code, partition_errors=[])
