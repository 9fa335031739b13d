"""Keeps the offsets of a transaction that has ended out of a group.

A coordinator of groups asks the coordinator of transactions before it stores offsets of a transaction. While
it asks, the transaction may end, and the partition of the group get the marker: offsets that are stored after
it would wait for a marker for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

MarkerListener: TypeAlias = Callable[[int, int, int, bool], None]
"""Called with partition, producer id and epoch, and whether the marker commits."""


@dataclass(slots=True, eq=False)
class OpenCheck:
    """A question under way. `has_ended`: the partition has got a marker of the producer since it began."""

    partition_index: int
    producer_id: int
    has_ended: bool = False


class GroupGuards:
    """The questions under way, by partition of `__consumer_offsets` and producer."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], set[OpenCheck]] = {}
        self._listeners: list[MarkerListener] = []

    def begin(self, partition_index: int, producer_id: int) -> OpenCheck:
        """Begin to ask about a producer's transaction. Pass the check to `end` in any case."""
        check = OpenCheck(partition_index, producer_id)
        self._open.setdefault((partition_index, producer_id), set()).add(check)
        return check

    def end(self, check: OpenCheck) -> bool:
        """The answer has come; whether the transaction it was about may still be open."""
        key = (check.partition_index, check.producer_id)
        checks = self._open.get(key, set())
        checks.discard(check)
        if not checks:
            self._open.pop(key, None)
        return not check.has_ended

    def add_marker_listener(self, listener: MarkerListener) -> None:
        """Call `listener` after each marker, as `markers_applied` is called."""
        self._listeners.append(listener)

    def markers_applied(
        self, partition_index: int, producer_id: int, producer_epoch: int, is_commit: bool
    ) -> None:
        """The partition of `__consumer_offsets` has got the end marker of a producer's transaction."""
        for check in self._open.get((partition_index, producer_id), ()):
            check.has_ended = True
        for listener in self._listeners:
            listener(partition_index, producer_id, producer_epoch, is_commit)
