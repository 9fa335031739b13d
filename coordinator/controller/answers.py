"""Requests that wait for the controller: each with its parts, their results, and a time limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList

from coordinator.clock import Clock
from protocol.errors import BrokerError, ErrorCode

SentRequests = Sequence[tuple[int, Deferred[bool]]]
"""Requests that were sent to brokers, and whether they have been answered."""


class WaitingRequest:
    """One request. Its `done` fires with a result for each of `keys`, or fails with a `BrokerError`.

    `late(key)` makes the result of a part that was not known in time. A negative `timeout_ms` is no time.
    """

    def __init__(
        self, clock: Clock, keys: Sequence[Any], timeout_ms: int, late: Callable[[Any], Any]
    ) -> None:
        self.done: Deferred[dict[Any, Any]] = Deferred()
        self._open = dict.fromkeys(keys)
        self._results: dict[Any, Any] = {}
        self._told: dict[Any, tuple[Any, list[int]]] = {}
        self._late = late
        self._timer = clock.callLater(max(timeout_ms, 0) / 1000, self._time_is_up)
        if not self._open:
            self._end()

    @property
    def ended(self) -> bool:
        return self.done.called

    def answer(self, key: Any, result: Any) -> None:
        """The result of a part."""
        if self.ended or key not in self._open:
            return
        del self._open[key]
        self._results[key] = result
        if not self._open:
            self._end()

    def answer_after(self, key: Any, result: Any, sent: SentRequests, needed: Sequence[int]) -> None:
        """The result of a part, once brokers have answered what was sent to them.

        When the time is up, it is told all the same where the `needed` ones have answered.
        """
        unanswered: list[int] = []
        self._told[key] = (result, unanswered)
        for broker_id, answered in sent:
            if broker_id in needed:
                unanswered.append(broker_id)
                answered.addCallback(_strike_out, unanswered, broker_id)
        everyone = DeferredList([answered for _, answered in sent])
        everyone.addCallback(lambda outcome: self.answer(key, result))

    def fail(self, error: BrokerError) -> None:
        """The request as a whole cannot be answered."""
        if not self.ended:
            self._stop_timer()
            self.done.errback(error)

    def _time_is_up(self) -> None:
        for key in list(self._open):
            result, unanswered = self._told.get(key, (None, [-1]))
            self.answer(key, self._late(key) if unanswered else result)

    def _end(self) -> None:
        self._stop_timer()
        self.done.callback(self._results)

    def _stop_timer(self) -> None:
        if self._timer.active():
            self._timer.cancel()


def _strike_out(answered: bool, unanswered: list[int], broker_id: int) -> bool:
    if answered:
        unanswered.remove(broker_id)
    return answered


def not_controller() -> BrokerError:
    """What requests are refused with while another broker is the controller."""
    return BrokerError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller; ask for metadata again")
