"""GetReplicaLogInfo (key 93, between brokers): the controller asks where the logs of this broker's replicas
end (KIP-966).
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
)


@dataclass(eq=False)
class GetReplicaLogInfoHandler(Handler[GetReplicaLogInfoRequest, GetReplicaLogInfoResponse]):
    request = GetReplicaLogInfoRequest
    orders: ControllerOrders

    def handle(
        self, context: RequestContext, request: GetReplicaLogInfoRequest
    ) -> Deferred[GetReplicaLogInfoResponse]:
        return self.orders.log_info(request)
