"""UpdateMetadata (key 6, between brokers): the controller sends the live brokers, and the partitions with
their leaders. Clients may ask any broker for this metadata."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


@dataclass(eq=False)
class UpdateMetadataHandler(Handler[UpdateMetadataRequest, UpdateMetadataResponse]):
    request = UpdateMetadataRequest
    orders: ControllerOrders

    def handle(
        self, context: RequestContext, request: UpdateMetadataRequest
    ) -> Deferred[UpdateMetadataResponse]:
        updated = self.orders.update_metadata(request)
        return updated.addCallback(lambda _: UpdateMetadataResponse(error_code=ErrorCode.NONE))

    def failed(
        self, context: RequestContext, request: UpdateMetadataRequest, error: BrokerError
    ) -> UpdateMetadataResponse:
        return UpdateMetadataResponse(error_code=error.code)
