"""What both kinds of membership share: owned partitions, events for the consumer, errors for the application,
and the requests in flight."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping
from typing import TypeVar

from holdfast_log.clients.connection.link import Call
from holdfast_log.clients.groups.coordinator import GroupCoordinator
from holdfast_log.clients.groups.membership import NO_GENERATION, MembershipEvent, RevokePartitions
from holdfast_log.protocol.topic_partition import TopicPartition

_State = TypeVar("_State", bound=enum.Enum)
_Event = TypeVar("_Event", bound=enum.Enum)


def next_state(transitions: Mapping[_State, Mapping[_Event, _State]], state: _State, event: _Event) -> _State:
    """The state after an event. Raises RuntimeError for a pair that the table lacks: a programming error."""
    following = transitions[state].get(event)
    if following is None:
        raise RuntimeError(f"a group member in the state {state.value} does not expect: {event.value}")
    return following


class MemberGoal(enum.Enum):
    """What a member has to do next in its group, as soon as its state allows."""

    NOTHING = enum.auto()
    JOIN = enum.auto()
    LEAVE = enum.auto()


class Member(ABC):
    """The base of the memberships."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self.owned: tuple[TopicPartition, ...] = ()
        self._coordinator = coordinator
        self._topics: tuple[str, ...] = ()
        self._generation = NO_GENERATION
        self._events: deque[MembershipEvent] = deque()
        self._goal = MemberGoal.NOTHING
        self._problem: Exception | None = None
        self._fencing_error: Exception | None = None
        """Why the member is fenced for good; `raise_problem` raises it every time."""
        self._call: Call | None = None
        """The request in flight besides heartbeats and LeaveGroup; at most one is."""
        self._heartbeat: Call | None = None
        self._heartbeat_due_ms = 0
        self._heard_at_ms = 0
        """When the last request was sent whose answer confirmed the membership."""
        self._not_before_ms = 0
        self._leave: Call | None = None
        """The LeaveGroup request to send next."""

    @property
    @abstractmethod
    def session_timeout_ms(self) -> int:
        """How long the coordinator keeps a member without a heartbeat."""

    @abstractmethod
    def leave_call(self) -> Call | None:
        """The LeaveGroup request; None if there is no membership to end."""

    @abstractmethod
    def _beats(self) -> bool:
        """Whether heartbeats are needed now, and none is in flight."""

    @abstractmethod
    def _beat(self, now_ms: int) -> Call:
        """The next heartbeat."""

    @abstractmethod
    def _lose(self) -> None:
        """The membership has ended at the coordinator, or counts as ended."""

    def beats(self, now_ms: int) -> list[Call]:
        """Those requests to send now that begin no rebalance: heartbeats, and LeaveGroup after `give_up`."""
        calls = self._leaves()
        if self._beats() and now_ms >= self._heartbeat_due_ms and self._coordinator.want():
            calls.append(self._beat(now_ms))
        return calls

    def next_beat_ms(self) -> int | None:
        """When the next heartbeat is due; None if none is needed or one is in flight."""
        return self._heartbeat_due_ms if self._beats() else None

    @property
    def is_waiting(self) -> bool:
        """Whether a request is in flight."""
        return self._heartbeat is not None or self._call is not None

    def is_certain(self, now_ms: int) -> bool:
        """Whether the session cannot have expired unnoticed, so that records may be returned."""
        return not self.owned or now_ms - self._heard_at_ms < self.session_timeout_ms

    def give_up(self, now_ms: int) -> None:
        """End the membership because the application polled too late; the owned partitions are lost."""
        self._leave = self.leave_call()
        self._lose()

    def _want_join(self) -> None:
        """Join again soon. A member without topics does not: it has left, or leaves next."""
        if self._topics:
            self._goal = MemberGoal.JOIN

    def _leaves(self) -> list[Call]:
        """The LeaveGroup request that is due, once."""
        leave, self._leave = self._leave, None
        return [] if leave is None else [leave]

    def take_event(self) -> MembershipEvent | None:
        """The next thing for the consumer to do.

        Repeats a `RevokePartitions` until `revoked` is called.
        """
        if not self._events:
            return None
        if isinstance(self._events[0], RevokePartitions):
            return self._events[0]
        return self._events.popleft()

    def revoked(self) -> None:
        """The consumer has revoked the partitions of the last `RevokePartitions`."""
        event = self._events.popleft()
        assert isinstance(event, RevokePartitions)
        gone = frozenset(event.partitions)
        self.owned = tuple(partition for partition in self.owned if partition not in gone)

    def raise_problem(self) -> None:
        """Raise an error that the application has not seen yet; the error of a fenced member every time."""
        if self._fencing_error is not None:
            raise self._fencing_error
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def _revoke(self, kept_topics: Collection[str] = ()) -> bool:
        """Ask the consumer to revoke partitions outside `kept_topics`; returns whether there are any."""
        gone = tuple(partition for partition in self.owned if partition.topic not in kept_topics)
        if gone:
            self._events.append(RevokePartitions(gone))
        return bool(gone)

    def _lose_all(self) -> None:
        """Ask the consumer to drop every partition as lost, except those that it is already revoking."""
        pending = [event for event in self._events if isinstance(event, RevokePartitions)]
        in_progress = {partition for event in pending for partition in event.partitions}
        lost = tuple(partition for partition in self.owned if partition not in in_progress)
        self._events = deque(pending)
        if lost:
            self._events.append(RevokePartitions(lost, is_lost=True))
        self._generation = NO_GENERATION
