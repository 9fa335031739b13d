"""Requests that wait for their answer: for ZooKeeper, and for their fences to settle.

Each request is answered exactly once: with its result, an error, or REQUEST_TIMED_OUT. A result is sent only
while this broker has the right to confirm (`broker.replication.right_to_confirm`): it holds its lease, has
not asked for other leaders in its place, and knows what it leads in its present registration. Whether it has
yielded the leadership that one result depends on, `OwnershipService` checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from twisted.internet.defer import Deferred

from holdfast_log.broker.ownership.confirming import unconfirmed
from holdfast_log.broker.ownership.effects import Fence
from holdfast_log.coordinator.clock import Clock, DelayedCall
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.ownership import ResourceStanding

Standings = list[ResourceStanding]
TIMEOUT_MS_MAX = 24 * 60 * 60 * 1000
"""Maximum time, in ms, for which a request waits for its answer."""


@dataclass(slots=True, eq=False)
class _Pending:
    deferred: Deferred[Standings]
    timer: DelayedCall
    standings: tuple[ResourceStanding, ...] = ()
    fences: dict[Fence, None] = field(default_factory=dict)
    """The fences that are not settled yet."""


class Answers:
    """The requests that have no answer yet, by ticket.

    `on_given_up` is called with the ticket of each request that is given up: its timeout has expired, or its
    connection has closed. `may_confirm` returns whether this broker has the right
    to confirm anything.
    """

    def __init__(
        self, clock: Clock, on_given_up: Callable[[int], None], may_confirm: Callable[[], bool]
    ) -> None:
        self._clock = clock
        self._may_confirm = may_confirm
        self._on_given_up = on_given_up
        self._pending: dict[int, _Pending] = {}
        self._by_fence: dict[Fence, dict[int, None]] = {}
        self._tickets = 0

    def open(self, timeout_ms: int) -> tuple[int, Deferred[Standings]]:
        """A new ticket, and a Deferred of its answer. It fails with REQUEST_TIMED_OUT after `timeout_ms`."""
        self._tickets += 1
        ticket = self._tickets
        timeout_ms = min(max(timeout_ms, 0), TIMEOUT_MS_MAX)
        timer = self._clock.callLater(timeout_ms / 1000, self._time_out, ticket)
        pending = self._pending[ticket] = _Pending(Deferred(), timer)
        return ticket, pending.deferred

    def is_awaited(self, ticket: int) -> bool:
        """Whether the request still waits for its answer."""
        return ticket in self._pending

    def answer(
        self, ticket: int, standings: Sequence[ResourceStanding], fences: Sequence[Fence] = ()
    ) -> None:
        """Answer a request with `standings` once all of `fences` are settled."""
        pending = self._pending.get(ticket)
        if pending is None:
            return  # It has timed out.
        pending.standings = tuple(standings)
        pending.fences = dict.fromkeys(fences)
        for fence in fences:
            self._by_fence.setdefault(fence, {})[ticket] = None
        if not fences:
            self._fire(ticket)

    def committed(self, fence: Fence) -> None:
        """The fence is settled (see `fence_commits`): answer the requests that waited for nothing else."""
        for ticket in self._by_fence.pop(fence, {}):
            pending = self._pending[ticket]
            del pending.fences[fence]
            if not pending.fences:
                self._fire(ticket)

    def _fire(self, ticket: int) -> None:
        pending = self._close(ticket)
        if self._may_confirm():
            pending.deferred.callback(list(pending.standings))
        else:
            pending.deferred.errback(unconfirmed())

    def abandon(self, fence: Fence, error: BrokerError) -> None:
        """Fail the requests that wait for a fence: this broker has stopped leading its partition."""
        for ticket in list(self._by_fence.get(fence, ())):
            self.fail(ticket, error)

    def fail(self, ticket: int, error: BrokerError) -> None:
        """Answer a request with an error."""
        if ticket in self._pending:
            self._close(ticket).deferred.errback(error)

    def give_up(self, ticket: int) -> None:
        """Drop a request whose connection has closed."""
        if ticket in self._pending:
            pending = self._close(ticket)
            self._on_given_up(ticket)
            pending.deferred.errback(BrokerError(ErrorCode.NETWORK_EXCEPTION))

    def _time_out(self, ticket: int) -> None:
        pending = self._close(ticket)
        if not pending.standings:
            error = error_for(
                ErrorCode.REQUEST_TIMED_OUT,
                "the claim was not decided in time: send it again to find its outcome",
            )
            self._on_given_up(ticket)
            pending.deferred.errback(error)
            return
        if not self._may_confirm():
            pending.deferred.errback(unconfirmed())
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
        """Drop all requests without an answer, because the broker stops."""
        for ticket in list(self._pending):
            self._close(ticket)


def _timed_out(standing: ResourceStanding) -> ResourceStanding:
    """The standing of a resource that is granted while its fence is not settled yet."""
    return replace(
        standing,
        error_code=ErrorCode.REQUEST_TIMED_OUT,
        error_message="granted, but records written before are not committed yet: renew until they are",
    )
