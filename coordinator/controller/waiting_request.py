"""A request to the controller that waits for the results of its parts, up to a time limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred, DeferredList

from holdfast_log.coordinator.clock import Clock
from holdfast_log.protocol.errors import BrokerError, ErrorCode

SentRequests = Sequence[tuple[int, Deferred[bool]]]
"""(broker id, result) of requests sent to brokers; the Deferred fires with whether the broker answered."""


_LATE_AT_ONCE = 200
"""Parts of a request that are answered in one turn when its time is up: each takes some microseconds."""


class TimeLimits:
    """The requests whose time is up. Some parts of one are answered in a turn, for hundreds of clients' may
    be due in the same turn, and each may have thousands of parts."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._due: deque[WaitingRequest] = deque()

    def reached(self, request: WaitingRequest) -> None:
        self._due.append(request)
        if len(self._due) == 1:
            self.clock.callLater(0, self._answer)

    def _answer(self) -> None:
        request = self._due[0]
        is_answered = True
        try:
            is_answered = request.time_out(_LATE_AT_ONCE)
        finally:
            if is_answered:
                self._due.popleft()
            if self._due:
                self.clock.callLater(0, self._answer)


class WaitingRequest:
    """One request. Its `done` fires with a result for each of `keys`, or fails with a `BrokerError`.

    `late(key)` makes the result of a part that is not known after `timeout_ms`; a negative timeout counts as
    0.
    """

    def __init__(
        self, limits: TimeLimits, keys: Sequence[Any], timeout_ms: int, late: Callable[[Any], Any]
    ) -> None:
        self.done: Deferred[dict[Any, Any]] = Deferred()
        self._open = dict.fromkeys(keys)
        self._results: dict[Any, Any] = {}
        self._results_after_answers: dict[Any, tuple[Any, list[int]]] = {}
        self._late = late
        self._timer = limits.clock.callLater(max(timeout_ms, 0) / 1000, limits.reached, self)
        if not self._open:
            self._end()

    @property
    def ended(self) -> bool:
        return self.done.called

    def answer(self, key: Any, result: Any) -> None:
        """Set the result of the part `key`. Ignored if that part already has one."""
        if self.ended or key not in self._open:
            return
        del self._open[key]
        self._results[key] = result
        if not self._open:
            self._end()

    def answer_after(self, key: Any, result: Any, sent: SentRequests, needed: Sequence[int]) -> None:
        """Set the result of the part `key` once brokers have answered all of `sent`.

        At the timeout the result still counts if all brokers in `needed` have answered.
        """
        unanswered: list[int] = []
        self._results_after_answers[key] = (result, unanswered)
        for broker_id, answered in sent:
            if broker_id in needed:
                unanswered.append(broker_id)
                answered.addCallback(_mark_answered, unanswered, broker_id)
        everyone = DeferredList([answered for _, answered in sent])
        everyone.addCallback(lambda outcome: self.answer(key, result))

    def answer_at_timeout(self, key: Any, result: Any) -> None:
        """Set the result that the part `key` has at the timeout, if it gets no other before."""
        self._results_after_answers[key] = (result, [])

    def fail(self, error: BrokerError) -> None:
        """Fail the whole request with `error`."""
        if not self.ended:
            self._stop_timer()
            self.done.errback(error)

    def time_out(self, parts_max: int) -> bool:
        """Answer some parts with what is known now, or with `late`. Returns whether the request is
        answered."""
        for key in list(islice(self._open, parts_max)):
            result, unanswered = self._results_after_answers.get(key, (None, [-1]))
            self.answer(key, self._late(key) if unanswered else result)
        return self.ended

    def _end(self) -> None:
        self._stop_timer()
        self.done.callback(self._results)

    def _stop_timer(self) -> None:
        if self._timer.active():
            self._timer.cancel()


def _mark_answered(answered: bool, unanswered: list[int], broker_id: int) -> bool:
    if answered:
        unanswered.remove(broker_id)
    return answered


def not_controller() -> BrokerError:
    """The error for requests to a broker that is not the controller."""
    return BrokerError(
        ErrorCode.NOT_CONTROLLER, "this broker is not the controller; refresh metadata and retry"
    )
