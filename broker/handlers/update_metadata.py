"""UpdateMetadata (key 6, between brokers): the controller says what clients may ask any broker about: who
lives, and who leads.

News from a controller that has been replaced, or meant for an earlier life of this broker, changes nothing.

News of partitions that clients know already does not wait for the LeaderAndIsr before it to be carried out,
which takes a while where very many change: clients are better sent to leaders that are about to begin than to
one that has gone. Of new partitions they learn when those that are this broker's are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.defer import Deferred, DeferredLock, succeed

from broker.call import Handler, RequestContext
from broker.handlers.leader_and_isr import check_broker_epoch
from broker.metadata import MetadataCache
from broker.strays import Strays
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


@dataclass(eq=False)
class UpdateMetadataHandler(Handler[UpdateMetadataRequest, UpdateMetadataResponse]):
    """`in_order` is for this handler alone; `after_roles` is what LeaderAndIsr and StopReplica wait for."""

    request = UpdateMetadataRequest
    metadata: MetadataCache
    broker_epoch: Callable[[], int]
    in_order: DeferredLock
    after_roles: DeferredLock
    strays: Strays

    def handle(
        self, call: RequestContext, request: UpdateMetadataRequest
    ) -> Deferred[UpdateMetadataResponse]:
        roles_begun = self.after_roles.run(self._look_for_strays, request)
        return self.in_order.run(self._apply, request, roles_begun)

    def _apply(
        self, request: UpdateMetadataRequest, roles_begun: Deferred[None]
    ) -> Deferred[UpdateMetadataResponse]:
        if self.metadata.knows_partitions_of(request):
            return succeed(self._take(request))
        return roles_begun.addCallback(lambda _: self._take(request))

    def _take(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        check_broker_epoch(request.broker_epoch, self.broker_epoch())
        if request.controller_epoch < self.metadata.controller_epoch:
            raise BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.metadata.update(request)
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)

    def _look_for_strays(self, request: UpdateMetadataRequest) -> None:
        try:
            check_broker_epoch(request.broker_epoch, self.broker_epoch())
        except BrokerError:
            return
        if request.controller_epoch >= self.metadata.controller_epoch:
            self.strays.after_metadata(request)

    def failed(
        self, call: RequestContext, request: UpdateMetadataRequest, error: BrokerError
    ) -> UpdateMetadataResponse:
        return UpdateMetadataResponse(error_code=error.code)
