"""Requests that wait for their answer: for ZooKeeper, and for the high watermark to reach the fence.

Exactly one answer each: the outcome, an error, or REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from twisted.internet.defer import Deferred

from broker.ownership.effects import Fence
from coordinator.clock import Clock, DelayedCall
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.ownership import ResourceStanding

Standings = list[ResourceStanding]
TIMEOUT_MS_MAX = 24 * 60 * 60 * 1000
"""No request waits longer for its answer."""


@dataclass(slots=True, eq=False)
class _Pending:
    deferred: Deferred[Standings]
    timer: DelayedCall
    standings: tuple[ResourceStanding, ...] = ()
    fences: dict[Fence, None] = field(default_factory=dict)
    """Those that are not committed yet."""


class Answers:
    """The requests that have no answer yet, by their tickets. `given_up` is told of those that nobody waits
    for any more, because their time or their connection has ended."""

    def __init__(self, clock: Clock, given_up: Callable[[int], None] = lambda ticket: None) -> None:
        self._clock = clock
        self._given_up = given_up
        self._pending: dict[int, _Pending] = {}
        self._by_fence: dict[Fence, dict[int, None]] = {}
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._pending)

    def open(self, timeout_ms: int) -> tuple[int, Deferred[Standings]]:
        """A ticket, and what will be its answer."""
        self._tickets += 1
        ticket = self._tickets
        timeout_ms = min(max(timeout_ms, 0), TIMEOUT_MS_MAX)
        timer = self._clock.callLater(timeout_ms / 1000, self._run_out, ticket)
        pending = self._pending[ticket] = _Pending(Deferred(), timer)
        return ticket, pending.deferred

    def answer(
        self, ticket: int, standings: Sequence[ResourceStanding], fences: Sequence[Fence] = ()
    ) -> None:
        """This is the answer, once everything before `fences` is committed."""
        pending = self._pending.get(ticket)
        if pending is None:
            return  # Its time has run out.
        pending.standings = tuple(standings)
        pending.fences = dict.fromkeys(fences)
        for fence in fences:
            self._by_fence.setdefault(fence, {})[ticket] = None
        if not fences:
            self._close(ticket).deferred.callback(list(standings))

    def committed(self, fence: Fence) -> None:
        """Everything before the fence is committed."""
        for ticket in self._by_fence.pop(fence, {}):
            pending = self._pending[ticket]
            del pending.fences[fence]
            if not pending.fences:
                self._close(ticket).deferred.callback(list(pending.standings))

    def abandon(self, fence: Fence, error: BrokerError) -> None:
        """This broker will not know when everything before the fence is committed."""
        for ticket in list(self._by_fence.get(fence, ())):
            self.fail(ticket, error)

    def fail(self, ticket: int, error: BrokerError) -> None:
        if ticket in self._pending:
            self._close(ticket).deferred.errback(error)

    def give_up(self, ticket: int) -> None:
        """Whoever asked is gone."""
        if ticket in self._pending:
            pending = self._close(ticket)
            self._given_up(ticket)
            pending.deferred.errback(BrokerError(ErrorCode.NETWORK_EXCEPTION))

    def _run_out(self, ticket: int) -> None:
        pending = self._close(ticket)
        if not pending.standings:
            error = error_for(
                ErrorCode.REQUEST_TIMED_OUT,
                "the claim was not decided in time; sent again, it finds what has become of it",
            )
            self._given_up(ticket)
            pending.deferred.errback(error)
            return
        late = {(fence.key.topic, fence.key.index) for fence in pending.fences}
        pending.deferred.callback(
            [_timed_out(each) if (each.name, each.partition) in late else each for each in pending.standings]
        )

    def _close(self, ticket: int) -> _Pending:
        pending = self._pending.pop(ticket)
        if pending.timer.active():
            pending.timer.cancel()
        for fence in pending.fences:
            tickets = self._by_fence.get(fence, {})
            tickets.pop(ticket, None)
            if not tickets:
                self._by_fence.pop(fence, None)
        return pending

    def stop(self) -> None:
        """Answer nobody any more: the broker goes down."""
        for ticket in list(self._pending):
            self._close(ticket)


def _timed_out(standing: ResourceStanding) -> ResourceStanding:
    """It is granted, but what is before its fence is not committed yet. Renew tells when it is."""
    return replace(
        standing,
        error_code=ErrorCode.REQUEST_TIMED_OUT,
        error_message="granted, but what was written before is not committed yet: renew until it is",
    )
