"""Renew requests that wait until their owners stand otherwise than they were last told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred, succeed

from broker.ownership.answers import Standings
from broker.ownership.operations import Asker, Held
from coordinator.clock import Clock, DelayedCall
from protocol.messages.ownership import ResourceStanding

WAIT_MS_MAX = 60 * 60 * 1000
"""No Renew waits longer."""

_SEEN_MAX = 1000
"""Standings that are remembered as known to one connection's owners, beside those of the last one that asked;
the others are told at once."""

_Seen = list[tuple[object, ...]]


@dataclass(slots=True, eq=False)
class _Poll:
    asker: Asker
    held: Sequence[Held]
    deferred: Deferred[Standings]
    timer: DelayedCall


class Renewals:
    """The Renew requests that wait, at most one for each owner of a connection.

    `standings` says how an owner stands now, `told` that it has been told.
    """

    def __init__(
        self,
        clock: Clock,
        standings: Callable[[Asker, Sequence[Held]], Standings],
        told: Callable[[Asker, Sequence[Held]], None],
    ) -> None:
        self._clock = clock
        self._standings = standings
        self._told = told
        self._polls: dict[int, dict[tuple[str, str], _Poll]] = {}
        self._seen: dict[int, dict[tuple[str, str], _Seen]] = {}

    def renew(self, asker: Asker, held: Sequence[Held], max_wait_ms: int) -> Deferred[Standings]:
        """How the owner stands: at once if that is news, else when it is, or after `max_wait_ms`."""
        connection, who = asker.connection, _who(asker)
        earlier = self._polls.get(connection, {}).get(who)
        if earlier is not None:
            # Answers leave in order: this one's would wait for that of the earlier.
            self._finish(earlier, self._standings(earlier.asker, earlier.held))
        standings = self._standings(asker, held)
        if max_wait_ms <= 0 or _seen(standings) != self._seen.get(connection, {}).get(who):
            self._note(asker, held, standings)
            return succeed(standings)
        poll = _Poll(asker, held, Deferred(), self._timer(asker, min(max_wait_ms, WAIT_MS_MAX)))
        self._polls.setdefault(connection, {})[who] = poll
        return poll.deferred

    def changed(self, connection: int) -> bool:
        """Something has changed for a connection: answer those of its owners to whom it is news. Returns
        whether any was answered."""
        answered = False
        for poll in list(self._polls.get(connection, {}).values()):
            standings = self._standings(poll.asker, poll.held)
            if _seen(standings) != self._seen.get(connection, {}).get(_who(poll.asker)):
                self._finish(poll, standings)
                answered = True
        return answered

    def forget(self, connection: int) -> None:
        """A connection is closed."""
        self._seen.pop(connection, None)
        for poll in self._polls.pop(connection, {}).values():
            if poll.timer.active():
                poll.timer.cancel()

    def stop(self) -> None:
        for connection in list(self._polls):
            self.forget(connection)

    def _timer(self, asker: Asker, wait_ms: int) -> DelayedCall:
        return self._clock.callLater(wait_ms / 1000, self._run_out, asker.connection, _who(asker))

    def _run_out(self, connection: int, who: tuple[str, str]) -> None:
        poll = self._polls[connection][who]
        self._finish(poll, self._standings(poll.asker, poll.held))

    def _finish(self, poll: _Poll, standings: Standings) -> None:
        polls = self._polls[poll.asker.connection]
        del polls[_who(poll.asker)]
        if not polls:
            del self._polls[poll.asker.connection]
        if poll.timer.active():
            poll.timer.cancel()
        self._note(poll.asker, poll.held, standings)
        poll.deferred.callback(standings)

    def _note(self, asker: Asker, held: Sequence[Held], standings: Standings) -> None:
        """Remember what the owner knows from now on. It is not contended any more, for it has been told."""
        self._told(asker, held)
        known = self._seen.setdefault(asker.connection, {})
        known.pop(_who(asker), None)
        known[_who(asker)] = _seen(standings, is_told=True)
        excess = sum(map(len, known.values())) - len(held) - _SEEN_MAX
        for earlier in list(known)[:-1] if excess > 0 else ():
            excess -= len(known.pop(earlier))
            if excess <= 0:
                break


def _who(asker: Asker) -> tuple[str, str]:
    return asker.group, asker.owner.owner_id


def _seen(standings: Sequence[ResourceStanding], *, is_told: bool = False) -> _Seen:
    """What of standings is news where it differs."""
    return [
        (
            each.name,
            each.partition,
            each.error_code,
            each.generation,
            each.position,
            each.is_contended and not is_told,
        )
        for each in standings
    ]
