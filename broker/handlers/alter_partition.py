"""AlterPartition (key 56, between brokers): a leader asks the controller to change an in-sync set
(KIP-497)."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


@dataclass(eq=False)
class AlterPartitionHandler(Handler[AlterPartitionRequest, AlterPartitionResponse]):
    request = AlterPartitionRequest
    controller: ControllerService

    def handle(
        self, context: RequestContext, request: AlterPartitionRequest
    ) -> Deferred[AlterPartitionResponse]:
        return self.controller.alter_partition(request)

    def failed(
        self, context: RequestContext, request: AlterPartitionRequest, error: BrokerError
    ) -> AlterPartitionResponse:
        return AlterPartitionResponse(throttle_time_ms=0, error_code=error.code, topics=[])
