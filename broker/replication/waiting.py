"""Requests that wait: for the high watermark to pass, for bytes to arrive, for a low watermark to rise.

A request is parked under the keys (partitions) that can complete it. Waking a key asks only the requests that
wait for it, and costs one dictionary look-up where none does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from coordinator.clock import Clock, DelayedCall

MAX_WAIT_MS = 24 * 60 * 60 * 1000
"""No request waits longer, whatever it asks for."""


class Parked:
    """One waiting request; ends by completing, by its timeout or by `cancel`, whichever comes first."""

    __slots__ = ("_check", "_expire", "_is_asked", "_keys", "_missed", "_timer", "_waiting")

    def __init__(
        self,
        waiting: Waiting,
        keys: Sequence[Hashable],
        check: Callable[[Hashable], bool],
        expire: Callable[[], None],
    ) -> None:
        self._waiting = waiting
        self._keys = keys
        self._check = check
        self._expire = expire
        self._timer: DelayedCall | None = None
        self._is_asked = False
        self._missed: list[Hashable] = []
        """Keys that were woken while the request was being asked about another."""

    @property
    def is_over(self) -> bool:
        return self._timer is None

    def cancel(self) -> None:
        """Forget the request: neither its check nor its expiry runs any more. Harmless once it is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._forget()

    def expire(self) -> None:
        """End the wait now, as if time were up. Harmless once it is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._forget()
            self._expire()

    def ask(self, key: Hashable) -> None:
        """Find out whether the request is over, now that `key` has been woken.

        Its answer may itself wake keys that it waits for: it reads, and the disk fails. It is not asked, and
        so not answered, a second time within the first.
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

    def _forget(self) -> None:
        self._timer = None
        self._waiting._remove(self, self._keys)


class Waiting:
    """The requests that wait for one kind of event.

    `capacity` bounds how many are parked: one more is not parked but expires at once, which is always a valid
    answer, if an early one.
    """

    def __init__(self, clock: Clock, capacity: int = 1_000_000) -> None:
        self._clock = clock
        self._capacity = capacity
        self.parked: dict[Hashable, dict[Parked, None]] = {}
        """By key, the requests that wait; for others to see whether there are any."""
        self._count = 0

    def __len__(self) -> int:
        """How many requests are parked."""
        return self._count

    def park(
        self,
        keys: Sequence[Hashable],
        timeout_ms: int,
        check: Callable[[Hashable], bool],
        expire: Callable[[], None],
    ) -> Parked:
        """Park a request under `keys` for at most `timeout_ms`.

        `check(key)` is called when `key` is woken and says whether the request is over, having answered it
        if so. `expire()` is called when time is up and must answer. Exactly one of them ends the request.
        """
        parked = Parked(self, keys, check, expire)
        if self._count >= self._capacity:
            expire()
            return parked
        self._count += 1
        for key in keys:
            self.parked.setdefault(key, {})[parked] = None
        timeout_ms = min(max(timeout_ms, 0), MAX_WAIT_MS)
        parked._timer = self._clock.callLater(timeout_ms / 1000, self._run_out, parked)
        return parked

    def wake(self, key: Hashable) -> None:
        """Ask every request parked under `key` whether it is complete now."""
        waiters = self.parked.get(key)
        if not waiters:
            return
        # A copy: an answer may lead to other requests being woken, parked or cancelled.
        for parked in list(waiters):
            parked.ask(key)

    def _run_out(self, parked: Parked) -> None:
        parked._forget()
        parked._expire()

    def _remove(self, parked: Parked, keys: Sequence[Hashable]) -> None:
        self._count -= 1
        for key in keys:
            waiters = self.parked.get(key)
            if waiters is not None:
                waiters.pop(parked, None)
                if not waiters:
                    del self.parked[key]
