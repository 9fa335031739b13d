"""The controller's requests to one broker: sent in order, each retried until it is answered or the broker is
no longer registered.

Up to `IN_FLIGHT_MAX` requests are in flight, so that the UpdateMetadata has arrived when the broker has
finished a long LeaderAndIsr.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.clock import Clock, DelayedCall
from holdfast_log.coordinator.controller.effects import BrokerRequest
from holdfast_log.coordinator.controller.events import BrokerResponse

RETRY_DELAY_S = 0.1
IN_FLIGHT_MAX = 2
"""One LeaderAndIsr and the UpdateMetadata that follows it."""

_log = logging.getLogger(__name__)


class SendRequest(Protocol):
    """Sends requests to brokers, including this one."""

    def __call__(self, broker_id: int, request: BrokerRequest) -> Deferred[BrokerResponse]:
        """Send a request; fires with the response. After any failure the request may be sent again."""
        ...


@dataclass(slots=True, eq=False)
class _SentRequest:
    request: BrokerRequest
    done: Deferred[bool] = field(default_factory=Deferred)


class ControllerChannel:
    """Requests to one registration of a broker, which handles them in the order of arrival.

    After a failure nothing more is sent until every request in flight has ended; then all unanswered ones are
    sent again in order, so a retry never arrives after a later request.
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
        self._unanswered: deque[_SentRequest] = deque()
        """Requests without an answer. Unless one has failed, the first `_in_flight` of them have been
        sent."""
        self._in_flight = 0
        self._has_failed = False
        self._closed = False
        self._failing = False
        self._retry: DelayedCall | None = None

    def send(self, request: BrokerRequest) -> Deferred[bool]:
        """Send after all earlier requests. Fires with True once answered, False if it never will be."""
        sent_request = _SentRequest(request)
        self._unanswered.append(sent_request)
        self._next()
        return sent_request.done

    def close(self) -> None:
        """Send no more: the broker is no longer registered, or the term has ended."""
        self._closed = True
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        unanswered, self._unanswered = self._unanswered, deque()
        for sent_request in unanswered:
            sent_request.done.callback(False)

    def _next(self) -> None:
        while self._may_send():
            sent_request = self._unanswered[self._in_flight]
            self._in_flight += 1
            sent = self._send(self.broker_id, sent_request.request)
            sent.addCallbacks(self._succeeded, self._failed, callbackArgs=(sent_request,))

    def _may_send(self) -> bool:
        return not (self._closed or self._has_failed) and self._in_flight < min(
            len(self._unanswered), IN_FLIGHT_MAX
        )

    def _succeeded(self, response: BrokerResponse, sent_request: _SentRequest) -> None:
        self._in_flight -= 1
        if self._closed:
            return
        self._failing = False
        self._unanswered.remove(sent_request)
        self._answered(self.broker_id, self.broker_epoch, sent_request.request, response)
        sent_request.done.callback(True)
        self._retry_or_next()

    def _failed(self, failure: Failure) -> None:
        self._in_flight -= 1
        if self._closed:
            return
        if not self._failing:
            self._failing = True
            _log.warning(
                "a request of the controller to broker %d failed; retrying: %s", self.broker_id, failure.value
            )
        self._has_failed = True
        self._retry_or_next()

    def _retry_or_next(self) -> None:
        if not self._has_failed:
            self._next()
        elif not (self._in_flight or self._closed):
            self._retry = self._clock.callLater(RETRY_DELAY_S, self._try_again)

    def _try_again(self) -> None:
        self._has_failed = False
        self._next()
