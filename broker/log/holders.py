"""Who has the most of something: decides from whom it is taken when there is too much in all."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

_Who = TypeVar("_Who", bound=Hashable)


class Holders(Generic[_Who]):
    """How many things each holder has. Each change, and each question, costs the same however many holders
    there are."""

    __slots__ = ("_by_count", "_counts", "_most")

    def __init__(self) -> None:
        self._counts: dict[_Who, int] = {}
        self._by_count: dict[int, dict[_Who, None]] = {}
        """The holders of so many things, the one that came to that number longest ago first."""
        self._most = 0

    def __len__(self) -> int:
        """Number of holders that have something."""
        return len(self._counts)

    def add(self, holder: _Who) -> None:
        """Count one more thing of a holder."""
        count = self._counts.get(holder, 0)
        self._move(holder, count, count + 1)

    def take(self, holder: _Who) -> None:
        """Count one thing less of a holder, which must have one."""
        count = self._counts[holder]
        self._move(holder, count, count - 1)

    def first_with_most(self, preferred: _Who | None = None) -> _Who:
        """A holder that has the most, of several `preferred` if it is one of them and has more than one
        thing, else the one that came to that number longest ago. There must be one."""
        most = self._by_count[self._most]
        if preferred is not None and preferred in most and self._most > 1:
            return preferred
        return next(iter(most))

    def clear(self) -> None:
        """Count nothing of anybody."""
        self._counts.clear()
        self._by_count.clear()
        self._most = 0

    def _move(self, holder: _Who, before: int, after: int) -> None:
        if before:
            same = self._by_count[before]
            del same[holder]
            if not same:
                del self._by_count[before]
        if after:
            self._counts[holder] = after
            self._by_count.setdefault(after, {})[holder] = None
        else:
            del self._counts[holder]
        if after > self._most or (before == self._most and before not in self._by_count):
            self._most = after
