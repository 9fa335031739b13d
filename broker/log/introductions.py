"""Who introduced the producers of a log: decides which producer is forgotten when a log has too many.

A producer id costs a client nothing, so one client could introduce as many as a log remembers, and the log
would no longer recognise the retries of all others. Therefore a source (a principal, or the address of a
client that has not proved who it is) takes places from itself first, and from others only if they have more.

The sources are known to the leader that appended, and only in memory. Producers that came from a snapshot or
from a leader count together as those of `UNKNOWN_SOURCE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

UNKNOWN_SOURCE = ""
_LOOKED_AT_MAX = 1000
"""Most producers that one eviction looks at: the turn that appends stays short."""


class Introductions:
    """The sources of the producers of one log."""

    __slots__ = ("_by_count", "_count_max", "_of_source", "_source_of")

    def __init__(self) -> None:
        self._source_of: dict[int, str] = {}
        self._of_source: dict[str, dict[int, int]] = {}
        """The producers of each source and the last write of each in ms, as it was when it was placed here:
        the longest unused first, except those that have written since."""
        self._by_count: dict[int, dict[str, None]] = {}
        """The sources by the number of their producers."""
        self._count_max = 0
        """The largest key of `_by_count`."""

    def source_of(self, producer_id: int) -> str:
        """The source that introduced a producer; `UNKNOWN_SOURCE` if this broker did not see that."""
        return self._source_of.get(producer_id, UNKNOWN_SOURCE)

    def __len__(self) -> int:
        """Number of producers."""
        return len(self._source_of)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._source_of

    def sources(self) -> Iterable[str]:
        """The sources that have introduced producers."""
        return self._of_source

    def count(self, source: str) -> int:
        """How many producers of the log this source has introduced."""
        return len(self._of_source.get(source, ()))

    def add(self, producer_id: int, source: str, now_ms: int) -> None:
        """Note that a source has introduced a producer, unless the producer's source is known."""
        if producer_id in self._source_of:
            return
        self._source_of[producer_id] = source
        producers = self._of_source.setdefault(source, {})
        producers[producer_id] = now_ms
        self._move(source, len(producers) - 1, len(producers))

    def discard(self, producer_id: int) -> None:
        """Forget a producer, if it is known."""
        source = self._source_of.pop(producer_id, None)
        if source is None:
            return
        producers = self._of_source[source]
        del producers[producer_id]
        self._move(source, len(producers) + 1, len(producers))
        if not producers:
            del self._of_source[source]

    def clear(self) -> None:
        """Forget all producers."""
        self._source_of.clear()
        self._of_source.clear()
        self._by_count.clear()
        self._count_max = 0

    def largest(self) -> str:
        """The source with the most producers."""
        return next(iter(self._by_count[self._count_max]))

    def longest_unused(self, source: str, last_write_ms: Callable[[int], int]) -> int:
        """The producer of a source that has not written for the longest time; roughly, if the source has
        thousands that have written since they were last looked at."""
        producers = self._of_source[source]
        for _ in range(min(len(producers), _LOOKED_AT_MAX)):
            producer_id, placed_ms = next(iter(producers.items()))
            written_ms = last_write_ms(producer_id)
            if written_ms <= placed_ms:
                return producer_id
            del producers[producer_id]
            producers[producer_id] = written_ms
        return next(iter(producers))

    def _move(self, source: str, before: int, after: int) -> None:
        """Move a source whose number of producers has changed by one."""
        if before:
            same = self._by_count[before]
            del same[source]
            if not same:
                del self._by_count[before]
        if after:
            self._by_count.setdefault(after, {})[source] = None
        if after > self._count_max or (before == self._count_max and before not in self._by_count):
            self._count_max = after
