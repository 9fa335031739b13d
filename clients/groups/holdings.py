"""What both kinds of membership have in common: what is owned, what the consumer is to do about it, and what
the application must be told."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from clients.groups.membership import NO_GENERATION, Event, Release
from clients.message import TopicPartition


class Holdings:
    """The base of the memberships."""

    def __init__(self) -> None:
        self.owned: tuple[TopicPartition, ...] = ()
        self._topics: tuple[str, ...] = ()
        self._generation = NO_GENERATION
        self._events: deque[Event] = deque()
        self._problem: Exception | None = None
        self._fenced: Exception | None = None

    def take_event(self) -> Event | None:
        """The next thing to do about partitions. After a `Release` nothing comes until `released`."""
        if not self._events:
            return None
        if isinstance(self._events[0], Release):
            return self._events[0]  # It stays the first until it is done.
        return self._events.popleft()

    def released(self) -> None:
        """What the last `Release` asked for is done."""
        event = self._events.popleft()
        assert isinstance(event, Release)
        gone = frozenset(event.partitions)
        self.owned = tuple(partition for partition in self.owned if partition not in gone)

    def raise_problem(self) -> None:
        """Raise what the application must be told, if there is something; being fenced again and again."""
        if self._fenced is not None:
            raise self._fenced
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def _release(self, kept_topics: Collection[str] = ()) -> bool:
        """Ask that what is owned be let go, save for these topics; whether there is anything."""
        gone = tuple(partition for partition in self.owned if partition.topic not in kept_topics)
        if gone:
            self._events.append(Release(gone))
        return bool(gone)

    def _lose_all(self) -> None:
        """What is owned is, or will be, somebody else's. What is being released is not asked for twice."""
        releasing = [event for event in self._events if isinstance(event, Release)]
        under_way = {partition for event in releasing for partition in event.partitions}
        lost = tuple(partition for partition in self.owned if partition not in under_way)
        self._events = deque(releasing)
        if lost:
            self._events.append(Release(lost, is_lost=True))
        self._generation = NO_GENERATION
