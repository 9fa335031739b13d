"""What both kinds of membership have in common: what is owned, what the consumer is to do about it, what the
application must be told, and which requests are under way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection

from clients.connection.link import Call
from clients.groups.membership import NO_GENERATION, MembershipEvent, RevokePartitions
from protocol.topic_partition import TopicPartition


class Member(ABC):
    """The base of the memberships."""

    def __init__(self) -> None:
        self.owned: tuple[TopicPartition, ...] = ()
        self._topics: tuple[str, ...] = ()
        self._generation = NO_GENERATION
        self._events: deque[MembershipEvent] = deque()
        self._problem: Exception | None = None
        self._fenced: Exception | None = None
        self._call: Call | None = None
        """The step towards an assignment that is under way; at most one is."""
        self._heartbeat: Call | None = None
        self._heartbeat_due_ms = 0
        self._heard_at_ms = 0
        """When the request was sent whose answer last said that we are a member."""
        self._not_before_ms = 0
        self._must_leave = False
        self._farewell: Call | None = None

    @property
    @abstractmethod
    def session_timeout_ms(self) -> int:
        """How long the coordinator waits for a heartbeat."""

    @abstractmethod
    def leave_call(self) -> Call | None:
        """The request that takes leave of the group; None where there is nothing to leave."""

    @abstractmethod
    def _lose(self) -> None:
        """Our place has passed."""

    def is_certain(self, now_ms: int) -> bool:
        """Whether the session cannot have ended unnoticed: what is read may be handed out."""
        return not self.owned or now_ms - self._heard_at_ms < self.session_timeout_ms

    def give_up(self, now_ms: int) -> None:
        """The application was away for too long: its partitions count as lost, and it comes back anew."""
        self._farewell = self.leave_call()
        self._lose()

    def _farewells(self) -> list[Call]:
        """The leave that is to be taken now."""
        farewell, self._farewell = self._farewell, None
        return [] if farewell is None else [farewell]

    def take_event(self) -> MembershipEvent | None:
        """The next thing to do about partitions.

        After a `RevokePartitions` nothing comes until `revoked` was called.
        """
        if not self._events:
            return None
        if isinstance(self._events[0], RevokePartitions):
            return self._events[0]  # It stays the first until it is done.
        return self._events.popleft()

    def revoked(self) -> None:
        """What the last `RevokePartitions` asked for is done."""
        event = self._events.popleft()
        assert isinstance(event, RevokePartitions)
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
            self._events.append(RevokePartitions(gone))
        return bool(gone)

    def _lose_all(self) -> None:
        """What is owned is, or will be, somebody else's. What is being released is not asked for twice."""
        releasing = [event for event in self._events if isinstance(event, RevokePartitions)]
        under_way = {partition for event in releasing for partition in event.partitions}
        lost = tuple(partition for partition in self.owned if partition not in under_way)
        self._events = deque(releasing)
        if lost:
            self._events.append(RevokePartitions(lost, is_lost=True))
        self._generation = NO_GENERATION
