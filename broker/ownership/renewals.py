"""Renew requests that wait until the standing of their owner differs from the last answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.resources import NamedGrant, Requester
from holdfast_log.coordinator.clock import Clock, DelayedCall
from holdfast_log.protocol.messages.ownership import ResourceStanding

WAIT_MS_MAX = 60 * 60 * 1000
"""Maximum time, in ms, for which a Renew waits."""

_SEEN_MAX = 1000
"""Maximum number of standings remembered for one connection, without those of the owner that asked last. A
Renew whose last answer was forgotten is answered at once."""

_Seen = list[tuple[object, ...]]


@dataclass(slots=True, eq=False)
class _WaitingRenew:
    requester: Requester
    named: Sequence[NamedGrant]
    deferred: Deferred[Standings]
    timer: DelayedCall


class Renewals:
    """The Renew requests that wait, at most one for each owner of a connection.

    `standings` returns the present standings of an owner; `on_answered` is called when a Renew is answered.
    """

    def __init__(
        self,
        clock: Clock,
        standings: Callable[[Requester, Sequence[NamedGrant]], Standings],
        on_answered: Callable[[Requester, Sequence[NamedGrant]], None],
    ) -> None:
        self._clock = clock
        self._standings = standings
        self._on_answered = on_answered
        self._waiting: dict[int, dict[tuple[str, str], _WaitingRenew]] = {}
        self._seen: dict[int, dict[tuple[str, str], _Seen]] = {}
        self._may_wait: dict[int, dict[tuple[str, str], bool]] = {}
        """For each owner on a connection, whether its last Renew could wait."""

    def renew(
        self, requester: Requester, named: Sequence[NamedGrant], max_wait_ms: int
    ) -> Deferred[Standings]:
        """The owner's standings: at once if they differ from the last answer, else when they do, or after
        `max_wait_ms`."""
        connection, owner = requester.connection, _owner_key(requester)
        self._note_wait(connection, owner, max_wait_ms > 0)
        earlier = self._waiting.get(connection, {}).get(owner)
        if earlier is not None:
            # Answers leave in the order of their requests: the later Renew would wait for the earlier one.
            self._finish(earlier, self._standings(earlier.requester, earlier.named))
        standings = self._standings(requester, named)
        if max_wait_ms <= 0 or _seen(standings) != self._seen.get(connection, {}).get(owner):
            self._note(requester, named, standings)
            return succeed(standings)
        waiting = _WaitingRenew(
            requester, named, Deferred(), self._timer(requester, min(max_wait_ms, WAIT_MS_MAX))
        )
        self._waiting.setdefault(connection, {})[owner] = waiting
        return waiting.deferred

    def changed(self, connection: int) -> bool:
        """A connection's standing may have changed: answer its waiting Renew requests whose answer differs
        from the last. Returns whether any was answered."""
        answered = False
        for waiting in list(self._waiting.get(connection, {}).values()):
            standings = self._standings(waiting.requester, waiting.named)
            if _seen(standings) != self._seen.get(connection, {}).get(_owner_key(waiting.requester)):
                self._finish(waiting, standings)
                answered = True
        return answered

    def _note_wait(self, connection: int, owner: tuple[str, str], may_wait: bool) -> None:
        known = self._may_wait.setdefault(connection, {})
        known.pop(owner, None)
        known[owner] = may_wait
        if len(known) > _SEEN_MAX:
            del known[next(iter(known))]

    def relies_on_ping(self, connection: int) -> bool:
        """Whether the owners of a connection rely on their sessions for `own.ping.timeout.ms` only: all their
        last Renew requests could wait. If none waits now, they are about to send the next one, or stand
        still."""
        may_wait = self._may_wait.get(connection)
        return may_wait is not None and all(may_wait.values())

    def forget(self, connection: int) -> None:
        """A connection has closed: drop its requests without an answer."""
        self._may_wait.pop(connection, None)
        self._seen.pop(connection, None)
        for waiting in self._waiting.pop(connection, {}).values():
            if waiting.timer.active():
                waiting.timer.cancel()

    def stop(self) -> None:
        """Drop all requests without an answer, because the broker stops."""
        for connection in list(self._waiting):
            self.forget(connection)

    def _timer(self, requester: Requester, wait_ms: int) -> DelayedCall:
        return self._clock.callLater(
            wait_ms / 1000, self._time_out, requester.connection, _owner_key(requester)
        )

    def _time_out(self, connection: int, owner: tuple[str, str]) -> None:
        waiting = self._waiting[connection][owner]
        self._finish(waiting, self._standings(waiting.requester, waiting.named))

    def _finish(self, waiting: _WaitingRenew, standings: Standings) -> None:
        others = self._waiting[waiting.requester.connection]
        del others[_owner_key(waiting.requester)]
        if not others:
            del self._waiting[waiting.requester.connection]
        if waiting.timer.active():
            waiting.timer.cancel()
        self._note(waiting.requester, waiting.named, standings)
        waiting.deferred.callback(standings)

    def _note(self, requester: Requester, named: Sequence[NamedGrant], standings: Standings) -> None:
        """Remember the answer sent to the owner, including whether other clients want its resources."""
        self._on_answered(requester, named)
        known = self._seen.setdefault(requester.connection, {})
        known.pop(_owner_key(requester), None)
        known[_owner_key(requester)] = _seen(standings, is_answered=True)
        excess = sum(map(len, known.values())) - len(named) - _SEEN_MAX
        for earlier in list(known)[:-1] if excess > 0 else ():
            excess -= len(known.pop(earlier))
            if excess <= 0:
                break


def _owner_key(requester: Requester) -> tuple[str, str]:
    return requester.group, requester.owner.owner_id


def _seen(standings: Sequence[ResourceStanding], *, is_answered: bool = False) -> _Seen:
    """The fields of standings whose change ends the wait of a Renew."""
    return [
        (
            each.name,
            each.partition,
            each.error_code,
            each.generation,
            each.position,
            each.is_contended and not is_answered,
        )
        for each in standings
    ]
