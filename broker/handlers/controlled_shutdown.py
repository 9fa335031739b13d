"""ControlledShutdown (key 7, between brokers): a broker that is about to stop asks the controller to move
the leadership of its partitions to others. The response names the partitions that it still leads, because no
other replica is in sync.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.controller.events import ShutdownResult
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


@dataclass(eq=False)
class ControlledShutdownHandler(Handler[ControlledShutdownRequest, ControlledShutdownResponse]):
    request = ControlledShutdownRequest
    controller: ControllerService

    def handle(
        self, context: RequestContext, request: ControlledShutdownRequest
    ) -> Deferred[ControlledShutdownResponse]:
        moved = self.controller.controlled_shutdown(request.broker_id, request.broker_epoch)
        return moved.addCallback(_response)

    def failed(
        self, context: RequestContext, request: ControlledShutdownRequest, error: BrokerError
    ) -> ControlledShutdownResponse:
        return ControlledShutdownResponse(error_code=error.code, remaining_partitions=[])


def _response(result: ShutdownResult) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(
        error_code=result.error,
        remaining_partitions=[
            RemainingPartition(topic_name=topic, partition_index=index) for topic, index in result.remaining
        ],
    )
