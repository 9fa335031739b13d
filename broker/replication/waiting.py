"""Requests that wait for a high watermark, for bytes, or for a low watermark.

A request is parked under the keys (partitions) that can complete it. Waking a key checks only the requests
parked under it, and costs one dictionary look-up if there are none. A request that needs more bytes than
there are yet is not checked before they have come.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from holdfast_log.broker.replication.deadlines import Deadlines
from holdfast_log.coordinator.clock import Clock

MAX_WAIT_MS = 24 * 60 * 60 * 1000
"""Maximum time in ms that a request waits. Limits longer timeouts."""
OWNED_MAX = 16
"""Maximum number of requests of one connection that wait. Answers leave in the order of their requests: all
but the first only cost: memory for each of their partitions, and a look at each when one changes."""
_OLD_ENTRIES_MAX = 64
"""So many entries of requests that wait no more are not worth a search for them."""
_MISSING = object()


def _check_nothing(key: Hashable) -> bool:
    return True


def _from_the_end(key: Hashable) -> int:
    """A request that reads nothing misses no records."""
    return sys.maxsize


def _expire_nothing() -> None: ...


class Parked:
    """One waiting request; it ends when it completes, when its timeout passes, or by `cancel`.

    An ended request drops all its references, so that it is part of no reference cycle.
    """

    __slots__ = (
        "_check", "_expire", "_is_asked", "_missed", "_waiting", "is_over", "keys", "needed", "owner",
        "reads_from",
    )  # fmt: skip

    def __init__(
        self,
        waiting: Waiting,
        keys: Sequence[Hashable],
        check: Callable[[Hashable], bool],
        expire: Callable[[], None],
        owner: int | None,
        needed: Callable[[Hashable], int | None] | None,
        reads_from: Callable[[Hashable], int] = _from_the_end,
    ) -> None:
        self._waiting = waiting
        self.keys = keys
        self._check = check
        self._expire = expire
        self.owner = owner
        self.is_over = True
        """Whether the request has ended."""
        self.needed = needed
        self.reads_from = reads_from
        """The offset of a key from which the request reads. See `Waiting.wake_before`."""
        self._is_asked = False
        self._missed: list[Hashable] | None = None
        """Keys that were woken while the check of another key was running."""

    def cancel(self) -> None:
        """Remove the request without answering it. No effect once it has ended."""
        if not self.is_over:
            self._waiting.cancel_now(self)

    def expire(self) -> None:
        """End the wait now, as if the timeout had passed. No effect once the request has ended, or while its
        check, which may answer it, is running."""
        if not self.is_over and not self._is_asked:
            self._waiting.expire_now(self)

    def ask(self, key: Hashable) -> None:
        """Check whether the request is complete, now that `key` has been woken.

        The check may itself wake keys of the request, for example when a read fails. Those keys are checked
        afterwards, not within the first check, so that no request is answered twice.
        """
        if self._is_asked:
            if self._missed is None:
                self._missed = []
            self._missed.append(key)
            return
        self._is_asked = True
        is_complete = not self.is_over and self._check(key)
        if self._missed is not None:
            while self._missed and not is_complete:
                is_complete = not self.is_over and self._check(self._missed.pop(0))
            self._missed = None
        self._is_asked = False
        if is_complete and not self.is_over:
            self._waiting.remove(self)
            self._waiting.deadlines.ended()

    def run_out(self) -> None:
        """End the wait, since the timeout has passed."""
        expire = self._expire
        self._waiting.remove(self)
        expire()

    def refuse(self) -> None:
        """End the request at once: no further one can be parked."""
        expire = self._expire
        self.forget()
        expire()

    def forget(self) -> None:
        """Drop all references: the request has ended."""
        self._check, self._expire, self.needed = _check_nothing, _expire_nothing, None
        self.reads_from = _from_the_end


class AnyParked(Protocol):
    """A waiting request: `Parked`, or a compiled one (`broker/replication/_usual_fetch.c`) with the same
    attributes and methods."""

    is_over: bool

    @property
    def keys(self) -> Sequence[Hashable]: ...

    @property
    def owner(self) -> int | None: ...

    @property
    def needed(self) -> Callable[[Hashable], int | None] | None: ...

    @property
    def reads_from(self) -> Callable[[Hashable], int]: ...

    def ask(self, key: Hashable, /) -> None: ...

    def run_out(self) -> None: ...

    def refuse(self) -> None: ...

    def forget(self) -> None: ...

    def expire(self) -> None: ...

    def cancel(self) -> None: ...


class WaitingRow:
    """The requests that are parked under one key: those that may be complete at any time, and those that need
    so many bytes of the key."""

    __slots__ = ("any_time", "heap", "needed", "order")

    def __init__(self) -> None:
        self.any_time: dict[AnyParked, None] = {}
        self.needed: dict[AnyParked, int] = {}
        self.heap: list[tuple[int, int, AnyParked]] = []
        """(bytes, order, request): one entry for each request of `needed`, and old ones."""
        self.order = 0

    def add(self, parked: AnyParked, key: Hashable) -> None:
        needed = None if parked.needed is None else parked.needed(key)
        if needed is None:
            self.any_time[parked] = None
            return
        self.order += 1
        self.needed[parked] = needed
        heapq.heappush(self.heap, (needed, self.order, parked))

    def discard(self, parked: AnyParked) -> None:
        if parked in self.any_time:
            del self.any_time[parked]
        elif (
            self.needed.pop(parked, None) is not None
            and len(self.heap) > 2 * len(self.needed) + _OLD_ENTRIES_MAX
        ):
            self.heap = [entry for entry in self.heap if self.needed.get(entry[2]) == entry[0]]
            heapq.heapify(self.heap)

    def up_to(self, bytes_: int) -> list[AnyParked]:
        """The requests that so many bytes may complete."""
        found = list(self.any_time)
        while self.heap and self.heap[0][0] <= bytes_:
            needed, _, parked = heapq.heappop(self.heap)
            if self.needed.get(parked) == needed:
                found.append(parked)
        return found


class Waiting:
    """The requests that wait for one kind of event.

    At most `capacity` requests are parked. A further request expires immediately. Of one connection's
    requests `OWNED_MAX` are parked; a further one ends the wait of the oldest.
    """

    __slots__ = ("_by_owner", "_capacity", "_count", "deadlines", "parked")

    def __init__(self, clock: Clock, capacity: int = 1_000_000) -> None:
        self.deadlines = Deadlines(clock)
        self._capacity = capacity
        self.parked: dict[Hashable, WaitingRow] = {}
        """The waiting requests by key. Public so that callers can skip keys that no request waits for."""
        self._by_owner: dict[int, dict[AnyParked, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Number of parked requests."""
        return self._count

    def park(
        self,
        keys: Sequence[Hashable],
        timeout_ms: int,
        check: Callable[[Hashable], bool],
        expire: Callable[[], None],
        owner: int | None = None,
        needed: Callable[[Hashable], int | None] | None = None,
        reads_from: Callable[[Hashable], int] = _from_the_end,
    ) -> Parked:
        """Park a request under `keys` for at most `timeout_ms`.

        `check(key)` is called when `key` is woken: it answers the request if it is complete, and returns
        whether it did. `expire()` is called when the timeout has passed, and must answer. Exactly one of them
        ends the request. `owner` is the id of the connection that cancels the request when it closes; None if
        none does. `needed(key)` are the bytes of a key before which `wake` need not check the request; None:
        it is checked whenever the key is woken. `needed` is asked for all keys when the request is parked,
        and after a check that has not answered it. `reads_from(key)` is the offset from which it reads a key.
        """
        parked = Parked(self, keys, check, expire, owner, needed, reads_from)
        self.add(parked, timeout_ms)
        return parked

    def add(self, parked: AnyParked, timeout_ms: int) -> None:
        """Park a request that has been made for this object, as `park` does."""
        if self._count >= self._capacity:
            parked.refuse()
            return
        self._count += 1
        parked.is_over = False
        for key in parked.keys:
            row = self.parked.get(key)
            if row is None:
                row = self.parked[key] = WaitingRow()
            if parked.needed is None:
                row.any_time[parked] = None
            else:
                row.add(parked, key)
        owner, oldest = parked.owner, None
        if owner is not None:
            owned = self._by_owner.get(owner)
            if owned is None:
                owned = self._by_owner[owner] = {}
            owned[parked] = None
            oldest = next(iter(owned)) if len(owned) > OWNED_MAX else None
        timeout_ms = min(max(timeout_ms, 0), MAX_WAIT_MS)
        self.deadlines.add(parked, timeout_ms / 1000)
        if oldest is not None:
            oldest.expire()

    def wake(self, key: Hashable, bytes_: int | None = None) -> None:
        """Check every request parked under `key`; if it has only so many bytes, none that needs more."""
        row = self.parked.get(key)
        if row is None:
            return
        # A copy: an answer may wake, park or cancel other requests.
        if bytes_ is None:
            for parked in [*row.any_time, *row.needed]:
                parked.ask(key)
            return
        for parked in row.up_to(bytes_):
            parked.ask(key)
            if not parked.is_over and parked.needed is not None:
                self._place_again(parked)

    def wake_before(self, key: Hashable, offset: int) -> None:
        """Check the requests parked under `key` that read from before an offset, since there is nothing any
        more."""
        row = self.parked.get(key)
        if row is not None:
            for parked in [each for each in (*row.any_time, *row.needed) if each.reads_from(key) < offset]:
                parked.ask(key)

    def _place_again(self, parked: AnyParked) -> None:
        """Ask again what a request needs of each of its keys: the check of one has counted its bytes."""
        for key in parked.keys:
            row = self.parked[key]
            row.discard(parked)
            row.add(parked, key)

    def owners(self) -> list[int]:
        """The connections of which requests wait."""
        return list(self._by_owner)

    def expire_all_of(self, owner: int) -> None:
        """End the wait of all requests of a connection now, as if their timeouts had passed."""
        for parked in list(self._by_owner.get(owner, ())):
            parked.expire()

    def cancel_all_of(self, owner: int) -> None:
        """Remove all requests of a connection without answering them."""
        for parked in list(self._by_owner.get(owner, ())):
            parked.cancel()

    def cancel_now(self, parked: AnyParked) -> None:
        """Remove a request, which waits, without answering it."""
        self.remove(parked)
        self.deadlines.ended()
        if not self:
            self.deadlines.cancel()

    def expire_now(self, parked: AnyParked) -> None:
        """End the wait of a request as if its timeout had passed."""
        parked.run_out()
        self.deadlines.ended()

    def remove(self, parked: AnyParked) -> None:
        """Forget a request, which has ended."""
        parked.is_over = True
        self._count -= 1
        for key in parked.keys:
            row = self.parked.get(key)
            if row is not None:
                if row.any_time.pop(parked, _MISSING) is _MISSING:
                    row.discard(parked)
                if not (row.any_time or row.needed):
                    del self.parked[key]
        owner = parked.owner
        if owner is not None:
            owned = self._by_owner.get(owner)
            if owned is not None:
                owned.pop(parked, None)
                if not owned:
                    del self._by_owner[owner]
        parked.forget()
