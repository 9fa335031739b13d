"""The controller's requests to one broker: in order, each until it is answered or the broker has gone.

A request does not wait for the answer to the one before it. When very many partitions change, a broker is
busy with its own for a while: what it may tell clients is there already when it is done.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from coordinator.clock import Clock, DelayedCall
from coordinator.controller.effects import BrokerRequest
from coordinator.controller.events import BrokerResponse

RETRY_DELAY_S = 0.1
IN_FLIGHT_MAX = 2
"""A LeaderAndIsr, and the UpdateMetadata that belongs to it."""

_log = logging.getLogger(__name__)


class SendRequest(Protocol):
    """The way to brokers, this one included."""

    def __call__(self, broker_id: int, request: BrokerRequest) -> Deferred[BrokerResponse]:
        """Send a request; its response. Fails, with whatever error, when it may be sent again."""
        ...


@dataclass(slots=True, eq=False)
class _Order:
    request: BrokerRequest
    done: Deferred[bool] = field(default_factory=Deferred)


class ControllerChannel:
    """Requests to one life of a broker, which takes them in the order in which they come.

    When one has failed no more are sent until it is known what has become of those behind it; then all that
    have no answer are sent anew, so that a retry overtakes nothing.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        send: SendRequest,
        clock: Clock,
        answered: Callable[[int, int, BrokerRequest, BrokerResponse], None],
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self._send = send
        self._clock = clock
        self._answered = answered
        self._orders: deque[_Order] = deque()
        """Those without an answer. While none has failed, the first `_under_way` of them have been sent."""
        self._under_way = 0
        self._has_failed = False
        self._closed = False
        self._failing = False
        self._retry: DelayedCall | None = None

    def send(self, request: BrokerRequest) -> Deferred[bool]:
        """Send after all earlier ones; True once it is answered, False if it never will be."""
        order = _Order(request)
        self._orders.append(order)
        self._next()
        return order.done

    def close(self) -> None:
        """Send no more: the broker has gone, or the term is over."""
        self._closed = True
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        orders, self._orders = self._orders, deque()
        for order in orders:
            order.done.callback(False)

    def _next(self) -> None:
        while self._may_send():
            order = self._orders[self._under_way]
            self._under_way += 1
            sent = self._send(self.broker_id, order.request)
            sent.addCallbacks(self._succeeded, self._failed, callbackArgs=(order,))

    def _may_send(self) -> bool:
        return not (self._closed or self._has_failed) and self._under_way < min(
            len(self._orders), IN_FLIGHT_MAX
        )

    def _succeeded(self, response: BrokerResponse, order: _Order) -> None:
        self._under_way -= 1
        if self._closed:
            return
        self._failing = False
        self._orders.remove(order)
        self._answered(self.broker_id, self.broker_epoch, order.request, response)
        order.done.callback(True)
        self._retry_or_next()

    def _failed(self, failure: Failure) -> None:
        self._under_way -= 1
        if self._closed:
            return
        if not self._failing:
            self._failing = True
            _log.warning(
                "broker %d does not answer the controller (%s); trying on", self.broker_id, failure.value
            )
        self._has_failed = True
        self._retry_or_next()

    def _retry_or_next(self) -> None:
        if not self._has_failed:
            self._next()
        elif not (self._under_way or self._closed):
            self._retry = self._clock.callLater(RETRY_DELAY_S, self._try_again)

    def _try_again(self) -> None:
        self._has_failed = False
        self._next()
