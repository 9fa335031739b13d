"""LeaderAndIsr (key 4, between brokers): the controller assigns this broker's roles in partitions.

Versions: from 5 on topics carry ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


@dataclass(eq=False)
class LeaderAndIsrHandler(Handler[LeaderAndIsrRequest, LeaderAndIsrResponse]):
    request = LeaderAndIsrRequest
    orders: ControllerOrders

    def handle(self, context: RequestContext, request: LeaderAndIsrRequest) -> Deferred[LeaderAndIsrResponse]:
        return self.orders.leader_and_isr(request)

    def failed(
        self, context: RequestContext, request: LeaderAndIsrRequest, error: BrokerError
    ) -> LeaderAndIsrResponse:
        return LeaderAndIsrResponse(error_code=error.code, topics=[])
