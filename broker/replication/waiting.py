"""Requests that wait for a high watermark, for bytes, or for a low watermark.

A request is parked under the keys (partitions) that can complete it. Waking a key checks only the requests
parked under it, and costs one dictionary look-up if there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from holdfast_log.coordinator.clock import Clock, DelayedCall

K = TypeVar("K", bound=Hashable)

MAX_WAIT_MS = 24 * 60 * 60 * 1000
"""Maximum time in ms that a request waits. Limits longer timeouts."""


def _check_nothing(key: Hashable) -> bool:
    return True


def _expire_nothing() -> None: ...


class Parked:
    """One waiting request; it ends when it completes, when its timeout passes, or by `cancel`.

    An ended request drops all its references, so that it is part of no reference cycle.
    """

    __slots__ = ("_check", "_expire", "_is_asked", "_keys", "_missed", "_owner", "_timer", "_waiting")

    def __init__(
        self,
        waiting: Waiting,
        keys: Sequence[Hashable],
        check: Callable[[Hashable], bool],
        expire: Callable[[], None],
        owner: int | None,
    ) -> None:
        self._waiting = waiting
        self._keys = keys
        self._check = check
        self._expire = expire
        self._owner = owner
        self._timer: DelayedCall | None = None
        self._is_asked = False
        self._missed: list[Hashable] = []
        """Keys that were woken while the check of another key was running."""

    @property
    def is_over(self) -> bool:
        """Whether the request has ended."""
        return self._timer is None

    def cancel(self) -> None:
        """Remove the request without answering it. No effect once it has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._forget()

    def expire(self) -> None:
        """End the wait now, as if the timeout had passed. No effect once the request has ended, or while its
        check, which may answer it, is running."""
        if self._timer is not None and not self._is_asked:
            self._timer.cancel()
            self._run_out()

    def ask(self, key: Hashable) -> None:
        """Check whether the request is complete, now that `key` has been woken.

        The check may itself wake keys of the request, for example when a read fails. Those keys are checked
        afterwards, not within the first check, so that no request is answered twice.
        """
        if self._is_asked:
            self._missed.append(key)
            return
        self._is_asked = True
        is_over = self._timer is not None and self._check(key)
        while self._missed and not is_over:
            is_over = self._timer is not None and self._check(self._missed.pop(0))
        self._missed.clear()
        self._is_asked = False
        if is_over and self._timer is not None:
            self._timer.cancel()
            self._forget()

    def _run_out(self) -> None:
        expire = self._expire
        self._forget()
        expire()

    def _forget(self) -> None:
        self._timer = None
        self._waiting._remove(self, self._keys, self._owner)
        self._check, self._expire = _check_nothing, _expire_nothing


class Waiting:
    """The requests that wait for one kind of event.

    At most `capacity` requests are parked. A further request expires immediately.
    """

    def __init__(self, clock: Clock, capacity: int = 1_000_000) -> None:
        self._clock = clock
        self._capacity = capacity
        self.parked: dict[Hashable, dict[Parked, None]] = {}
        """The waiting requests by key. Public so that callers can skip keys that no request waits for."""
        self._by_owner: dict[int, dict[Parked, None]] = {}
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
    ) -> Parked:
        """Park a request under `keys` for at most `timeout_ms`.

        `check(key)` is called when `key` is woken: it answers the request if it is complete, and returns
        whether it did. `expire()` is called when the timeout has passed, and must answer. Exactly one of them
        ends the request. `owner` is the id of the connection that cancels the request when it closes; None if
        none does.
        """
        parked = Parked(self, keys, check, expire, owner)
        if self._count >= self._capacity:
            expire()
            return parked
        self._count += 1
        for key in keys:
            self.parked.setdefault(key, {})[parked] = None
        if owner is not None:
            self._by_owner.setdefault(owner, {})[parked] = None
        timeout_ms = min(max(timeout_ms, 0), MAX_WAIT_MS)
        parked._timer = self._clock.callLater(timeout_ms / 1000, parked._run_out)
        return parked

    def wake(self, key: Hashable) -> None:
        """Check every request parked under `key`."""
        waiters = self.parked.get(key)
        if not waiters:
            return
        # A copy: an answer may wake, park or cancel other requests.
        for parked in list(waiters):
            parked.ask(key)

    def expire_all_of(self, owner: int) -> None:
        """End the wait of all requests of a connection now, as if their timeouts had passed."""
        for parked in list(self._by_owner.get(owner, ())):
            parked.expire()

    def cancel_all_of(self, owner: int) -> None:
        """Remove all requests of a connection without answering them."""
        for parked in list(self._by_owner.get(owner, ())):
            parked.cancel()

    def _remove(self, parked: Parked, keys: Sequence[Hashable], owner: int | None) -> None:
        self._count -= 1
        for key in keys:
            _discard(self.parked, key, parked)
        if owner is not None:
            _discard(self._by_owner, owner, parked)


def _discard(table: dict[K, dict[Parked, None]], key: K, parked: Parked) -> None:
    row = table.get(key)
    if row is not None:
        row.pop(parked, None)
        if not row:
            del table[key]
