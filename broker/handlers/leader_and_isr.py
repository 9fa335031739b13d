"""LeaderAndIsr (key 4, between brokers): the controller says which partitions this broker leads and follows.

Versions: from 5 on topics carry ids. A request for an earlier life of this broker (a lower broker epoch,
KIP-380) or from a controller that has been replaced changes nothing.

What the controller says is applied in the order in which it came: `in_order` is shared by the handlers of its
requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from twisted.internet.defer import Deferred, DeferredLock, FirstError, gatherResults
from twisted.python.failure import Failure

from broker.call import Handler, RequestContext
from broker.replication.replicas import Replicas
from broker.replication.roles import Roles
from broker.settings.changes import TOPICS
from broker.strays import Strays
from coordinator.cluster.dynamic_configs import DynamicConfigs
from coordinator.zookeeper.interface import SessionExpired
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


@dataclass(eq=False)
class LeaderAndIsrHandler(Handler[LeaderAndIsrRequest, LeaderAndIsrResponse]):
    """`prepare` reads what has to be known before this broker leads what it is given. `applied` is called
    when the controller's word has been taken."""

    request = LeaderAndIsrRequest
    replicas: Replicas
    roles: Roles
    dynamic: DynamicConfigs
    prepare: Callable[[LeaderAndIsrRequest], Deferred[None]]
    broker_epoch: Callable[[], int]
    in_order: DeferredLock
    strays: Strays
    applied: Callable[[], None]

    def handle(self, call: RequestContext, request: LeaderAndIsrRequest) -> Deferred[LeaderAndIsrResponse]:
        return self.in_order.run(self._apply, request)

    def _apply(self, request: LeaderAndIsrRequest) -> Deferred[LeaderAndIsrResponse]:
        check_broker_epoch(request.broker_epoch, self.broker_epoch())
        # The settings of a topic that is new to this broker have to be there before its logs are.
        new = [topic.topic_name for topic in request.topic_states if not self.replicas.has(topic.topic_name)]
        reads: list[Deferred[Any]] = [self.dynamic.refresh(TOPICS, name) for name in new]
        read = gatherResults([*reads, self.prepare(request)], consumeErrors=True)
        return read.addCallbacks(lambda _: self._assign(request), _registration_ended)

    def _assign(self, request: LeaderAndIsrRequest) -> Deferred[LeaderAndIsrResponse]:
        self.strays.before_roles(request)
        assigned = self.roles.apply_leader_and_isr(
            request, lambda: check_broker_epoch(request.broker_epoch, self.broker_epoch())
        )
        return assigned.addCallback(self._assigned)

    def _assigned(self, response: LeaderAndIsrResponse) -> LeaderAndIsrResponse:
        if response.error_code == ErrorCode.NONE:
            self.applied()
        return response

    def failed(
        self, call: RequestContext, request: LeaderAndIsrRequest, error: BrokerError
    ) -> LeaderAndIsrResponse:
        return LeaderAndIsrResponse(error_code=error.code, topics=[])


def _registration_ended(failure: Failure) -> NoReturn:
    """The settings could not be read, since the session is over, and with it what the controller spoke to."""
    failure.trap(FirstError)
    assert isinstance(failure.value, FirstError)
    failure.value.subFailure.trap(SessionExpired)
    raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)


def check_broker_epoch(requested: int, current: int) -> None:
    """Raises BrokerError STALE_BROKER_EPOCH for a request to an earlier registration of this broker."""
    if requested != -1 and requested < current:
        raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)
