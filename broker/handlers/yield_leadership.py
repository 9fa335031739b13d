"""YieldLeadership (key 30030, between brokers): the controller is about to move leadership away from this
broker, which confirms no ownership from then on."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.yield_leadership import YieldLeadershipRequest, YieldLeadershipResponse


@dataclass(eq=False)
class YieldLeadershipHandler(Handler[YieldLeadershipRequest, YieldLeadershipResponse]):
    request = YieldLeadershipRequest
    orders: ControllerOrders

    def handle(
        self, context: RequestContext, request: YieldLeadershipRequest
    ) -> Deferred[YieldLeadershipResponse]:
        return self.orders.yield_leadership(request)

    def failed(
        self, context: RequestContext, request: YieldLeadershipRequest, error: BrokerError
    ) -> YieldLeadershipResponse:
        return YieldLeadershipResponse(error_code=error.code)
