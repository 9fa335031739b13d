"""LeaderAndIsr (key 4, between brokers): the controller says which partitions this broker leads and follows.

Versions: from 5 on topics carry ids. A request for an earlier life of this broker (a lower broker epoch,
KIP-380) or from a controller that has been replaced changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.call import Call, Handler
from broker.replication.replicas import Replicas
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


@dataclass(eq=False)
class LeaderAndIsrHandler(Handler[LeaderAndIsrRequest, LeaderAndIsrResponse]):
    request = LeaderAndIsrRequest
    replicas: Replicas
    broker_epoch: Callable[[], int]

    def handle(self, call: Call, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        check_broker_epoch(request.broker_epoch, self.broker_epoch())
        return self.replicas.apply_leader_and_isr(request)

    def failed(self, call: Call, request: LeaderAndIsrRequest, error: BrokerError) -> LeaderAndIsrResponse:
        return LeaderAndIsrResponse(error_code=error.code, topics=[])


def check_broker_epoch(requested: int, current: int) -> None:
    """Raises BrokerError STALE_BROKER_EPOCH for a request to an earlier registration of this broker."""
    if requested != -1 and requested < current:
        raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)
