"""StopReplica (key 5, between brokers): the controller takes partitions away from this broker, or has them
deleted.

Versions: from 3 on each partition carries its leader epoch, so that a late request cannot stop a replica that
was assigned anew (KIP-570).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.defer import Deferred, DeferredLock

from broker.call import Handler, RequestContext
from broker.handlers.leader_and_isr import check_broker_epoch
from broker.replication.roles import Roles
from protocol.errors import BrokerError
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


@dataclass(eq=False)
class StopReplicaHandler(Handler[StopReplicaRequest, StopReplicaResponse]):
    request = StopReplicaRequest
    roles: Roles
    broker_epoch: Callable[[], int]
    in_order: DeferredLock

    def handle(self, call: RequestContext, request: StopReplicaRequest) -> Deferred[StopReplicaResponse]:
        return self.in_order.run(self._apply, request)

    def _apply(self, request: StopReplicaRequest) -> StopReplicaResponse:
        check_broker_epoch(request.broker_epoch, self.broker_epoch())
        return self.roles.apply_stop_replica(request)

    def failed(
        self, call: RequestContext, request: StopReplicaRequest, error: BrokerError
    ) -> StopReplicaResponse:
        return StopReplicaResponse(error_code=error.code, partition_errors=[])
