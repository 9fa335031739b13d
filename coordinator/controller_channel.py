"""The controller's requests to one broker: in order, each until it is answered or the broker has gone."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from coordinator.clock import Clock, DelayedCall
from coordinator.controller_effects import BrokerRequest
from coordinator.controller_events import BrokerResponse

RETRY_DELAY_S = 0.1

_log = logging.getLogger(__name__)


class SendRequest(Protocol):
    """The way to brokers, this one included."""

    def __call__(self, broker_id: int, request: BrokerRequest) -> Deferred[BrokerResponse]:
        """Send a request; its response. Fails, with whatever error, when it may be sent again."""
        ...


class ControllerChannel:
    """Requests to one life of a broker. One is on its way at a time, so that a retry overtakes nothing."""

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
        self._waiting: deque[tuple[BrokerRequest, Deferred[bool]]] = deque()
        self._busy = False
        self._closed = False
        self._failing = False
        self._retry: DelayedCall | None = None

    def send(self, request: BrokerRequest) -> Deferred[bool]:
        """Send after all earlier ones; True once it is answered, False if it never will be."""
        done: Deferred[bool] = Deferred()
        self._waiting.append((request, done))
        self._next()
        return done

    def close(self) -> None:
        """Send no more: the broker has gone, or the term is over."""
        self._closed = True
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done.callback(False)

    def _next(self) -> None:
        if self._busy or self._closed or not self._waiting:
            return
        self._busy = True
        request, _ = self._waiting[0]
        self._send(self.broker_id, request).addCallbacks(self._succeeded, self._failed)

    def _succeeded(self, response: BrokerResponse) -> None:
        self._busy = False
        if self._closed:
            return
        self._failing = False
        request, done = self._waiting.popleft()
        self._answered(self.broker_id, self.broker_epoch, request, response)
        done.callback(True)
        self._next()

    def _failed(self, failure: Failure) -> None:
        if self._closed:
            return
        if not self._failing:
            self._failing = True
            _log.warning(
                "broker %d does not answer the controller (%s); trying on", self.broker_id, failure.value
            )
        self._retry = self._clock.callLater(RETRY_DELAY_S, self._try_again)

    def _try_again(self) -> None:
        self._busy = False
        self._next()
