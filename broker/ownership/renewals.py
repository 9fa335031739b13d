"""Renew requests that wait until the standing of their owner differs from the last answer.

Few resources are looked at as often as something about their owner's connection changes. Many (more than
`AT_ONCE`) are looked at in several turns of the reactor, and then the next change of any kind is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.resources import NamedGrant, Requester
from holdfast_log.broker.ownership.shared_turns import SharedTurns
from holdfast_log.coordinator.clock import Clock, DelayedCall
from holdfast_log.protocol.messages.ownership import ResourceStanding

WAIT_MS_MAX = 60 * 60 * 1000
"""Maximum time, in ms, for which a Renew waits."""

_SEEN_MAX = 1000
"""Maximum number of standings remembered for one connection, without those of the owner that asked last. A
Renew whose last answer was forgotten is answered at once."""

AT_ONCE = 200
"""Maximum number of resources of an owner that are looked at in one turn of the reactor, in about 2 ms."""

_WAITING_MAX = 1000
"""Maximum number of resources that all waiting Renews of a connection name together, without those of the
last one: all are looked at when one changes. A further Renew is answered at once."""

_Seen = list[tuple[object, ...]]


@dataclass(slots=True, eq=False)
class _WaitingRenew:
    requester: Requester
    named: Sequence[NamedGrant]
    deferred: Deferred[Standings]
    timer: DelayedCall


class AnswerAtOnce(Exception):
    """A Renew must not wait: the client has to ask other brokers about some of its resources."""


@dataclass(slots=True, eq=False)
class _WaitingForMany:
    """A Renew of many resources: something may have changed, or somebody waits for that."""

    is_changed: bool = False
    changed: Deferred[None] = field(default_factory=Deferred)

    def change(self) -> None:
        if not self.is_changed:
            self.is_changed = True
            self.changed.callback(None)


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
        self._turns = SharedTurns(clock, AT_ONCE)
        self._waiting: dict[int, dict[tuple[str, str], _WaitingRenew]] = {}
        self._waiting_for_many: dict[int, dict[tuple[str, str], _WaitingForMany]] = {}
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
        self._end_earlier(connection, owner)
        standings = self._standings(requester, named)
        is_new = _seen(standings) != self._seen.get(connection, {}).get(owner)
        if max_wait_ms <= 0 or is_new or not self._has_room(connection):
            self._note(requester, named, standings)
            return succeed(standings)
        waiting = _WaitingRenew(
            requester, named, Deferred(), self._timer(requester, min(max_wait_ms, WAIT_MS_MAX))
        )
        self._waiting.setdefault(connection, {})[owner] = waiting
        return waiting.deferred

    def _end_earlier(self, connection: int, owner: tuple[str, str]) -> None:
        """Answer the Renew for which the owner waits. Answers leave in the order of their requests: a later
        one would wait for it."""
        earlier = self._waiting.get(connection, {}).get(owner)
        if earlier is not None:
            self._finish(earlier, self._standings(earlier.requester, earlier.named))
        many = self._waiting_for_many.get(connection, {}).pop(owner, None)
        if many is not None:
            many.change()

    def _has_room(self, connection: int) -> bool:
        """Whether one more Renew of the connection may wait."""
        waiting = self._waiting.get(connection)
        return not waiting or sum(len(each.named) for each in waiting.values()) <= _WAITING_MAX

    async def await_many(
        self,
        requester: Requester,
        count: int,
        standings: Callable[[int, int], Standings],
        max_wait_ms: int,
    ) -> None:
        """Wait until a Renew of `count` resources is to be answered: at once if their standings differ from
        the last answer, else when something has changed, or after `max_wait_ms`. `standings` returns the
        present ones between two places in the request, or raises `AnswerAtOnce`."""
        connection, owner = requester.connection, _owner_key(requester)
        self._note_wait(connection, owner, max_wait_ms > 0)
        self._end_earlier(connection, owner)
        if max_wait_ms <= 0:
            return
        others = self._waiting_for_many.setdefault(connection, {})
        waiting = others[owner] = _WaitingForMany()
        timer = self._clock.callLater(min(max_wait_ms, WAIT_MS_MAX) / 1000, waiting.change)
        try:
            digest = ManyStandings()
            await self.in_turns(count, lambda start, end: digest.add(standings(start, end)))
            if digest.seen == self._seen.get(connection, {}).get(owner):
                await waiting.changed
        except AnswerAtOnce:
            self._note_wait(connection, owner, False)
        finally:
            if timer.active():
                timer.cancel()
            if others.get(owner) is waiting:
                del others[owner]

    async def in_turns(self, count: int, look: Callable[[int, int], None]) -> None:
        """Call `look` with the ends of each portion of `count` places, a few in each turn of the reactor."""
        done = 0
        while done < count:
            taken = await self._turns.take(count - done)
            look(done, done + taken)
            done += taken

    def note_many(self, requester: Requester, answered: ManyStandings) -> None:
        """Remember the answer to a Renew of many resources, which is about to be sent."""
        self._remember(requester, answered.seen)

    def changed(self, connection: int) -> bool:
        """A connection's standing may have changed: answer its waiting Renew requests whose answer differs
        from the last, and those of many resources. Returns whether any was answered."""
        many = list(self._waiting_for_many.get(connection, {}).values())
        for each in many:
            each.change()
        answered = bool(many)
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
        # Those that wait find the connection closed.
        for many in self._waiting_for_many.pop(connection, {}).values():
            many.change()
        for waiting in self._waiting.pop(connection, {}).values():
            if waiting.timer.active():
                waiting.timer.cancel()

    def stop(self) -> None:
        """Drop all requests without an answer, because the broker stops."""
        for connection in {*self._waiting, *self._waiting_for_many}:
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
        self._remember(requester, _seen(standings, is_answered=True))

    def _remember(self, requester: Requester, seen: _Seen) -> None:
        known = self._seen.setdefault(requester.connection, {})
        known.pop(_owner_key(requester), None)
        known[_owner_key(requester)] = seen
        excess = sum(map(len, known.values())) - len(seen) - _SEEN_MAX
        for earlier in list(known)[:-1] if excess > 0 else ():
            excess -= len(known.pop(earlier))
            if excess <= 0:
                break


class ManyStandings:
    """What is remembered of the standings with many resources, added in portions. `is_answered`: they are
    about to be sent."""

    __slots__ = ("_digest", "_is_answered")

    def __init__(self, *, is_answered: bool = False) -> None:
        self._is_answered = is_answered
        self._digest = 0

    def add(self, standings: Iterable[ResourceStanding]) -> None:
        for each in _seen(standings, is_answered=self._is_answered):
            self._digest = hash((self._digest, each))

    @property
    def seen(self) -> _Seen:
        return [("many", self._digest)]


def _owner_key(requester: Requester) -> tuple[str, str]:
    return requester.group, requester.owner.owner_id


def _seen(standings: Iterable[ResourceStanding], *, is_answered: bool = False) -> _Seen:
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
