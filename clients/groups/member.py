"""What all protocols share: a member's way into its group and out of it, the partitions that it owns, events
for the consumer, errors for the application, and the requests in flight."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from holdfast_log.clients.connection.backoff import RepeatPace
from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.connection.connection import COORDINATOR
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import is_retriable
from holdfast_log.clients.groups.coordinator import GroupCoordinator
from holdfast_log.clients.groups.membership import (
    NO_GENERATION,
    GroupIdentity,
    MembershipEvent,
    RevokePartitions,
)
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.topic_partition import TopicPartition

_FREE_JOINS = 20
"""How many joins, or other steps to an assignment, may follow each other at once."""

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


@dataclass(frozen=True, slots=True)
class Course(Generic[_State, _Event]):
    """A protocol's transition table, and those of its states and events that all protocols have.

    In a state of `outside` a member may begin to join, or leave. `stable`: it has its partitions. `fenced`:
    another member uses its group.instance.id; that is final.
    """

    transitions: Mapping[_State, Mapping[_Event, _State]]
    outside: tuple[_State, ...]
    stable: _State
    fenced: _State
    revoked: _Event
    left: _Event
    failed: _Event
    lost: _Event


class MemberSettings(Protocol):
    """The settings that a member needs in every protocol. All times in ms."""

    @property
    def group_id(self) -> str: ...
    @property
    def heartbeat_interval_ms(self) -> int: ...
    @property
    def request_timeout_ms(self) -> int: ...
    @property
    def retry_backoff_ms(self) -> int: ...


class Member(ABC, Generic[_State, _Event]):
    """The base of the memberships. A subclass starts in the first state that its course calls `outside`."""

    def __init__(
        self,
        course: Course[_State, _Event],
        settings: MemberSettings,
        coordinator: GroupCoordinator,
        metadata: Metadata,
    ) -> None:
        self.state: _State = course.outside[0]
        """Changed by `_advance` only."""
        self.owned: tuple[TopicPartition, ...] = ()
        self._course = course
        self._common = settings
        self._coordinator = coordinator
        self._metadata = metadata
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
        self._interval_ms = settings.heartbeat_interval_ms
        self._heard_at_ms = 0
        """When the last request was sent whose answer confirmed the membership."""
        self._not_before_ms = 0
        self._joins = RepeatPace(coordinator.backoff, _FREE_JOINS)
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
    def _heartbeat_request(self) -> Request[Any]:
        """The next heartbeat."""

    @abstractmethod
    def _take_heartbeat(self, reply: Reply, now_ms: int) -> None:
        """Process the reply to a heartbeat, whose tag is the generation and the time at which it was sent."""

    @abstractmethod
    def _take_reply(self, reply: Reply, now_ms: int) -> None:
        """Process the reply to the request that was in flight besides heartbeats and LeaveGroup."""

    @abstractmethod
    def _forget_coordinator(self, error: Exception) -> None:
        """A request has failed with `error`: look for the coordinator again if that may help."""

    def continued(self, identity: GroupIdentity) -> GroupIdentity | None:
        """The identity under which a commit may go on that has begun under another; None if it may not."""
        return None

    def _is_passing(self, error: Exception) -> bool:
        """Whether joining again can cure an error, so that the application need not see it."""
        return is_retriable(error)

    def _advance(self, event: _Event) -> None:
        self.state = next_state(self._course.transitions, self.state, event)

    # The way in and out -------------------------------------------------------------------------------

    @property
    def is_joined(self) -> bool:
        """Whether partitions are assigned, and no rebalance is in progress."""
        is_stable = self.state is self._course.stable
        return is_stable and self._goal is not MemberGoal.JOIN and not self._events

    def _want_topics(self, topics: Collection[str]) -> None:
        """Subscribe to these topics, and learn of their partitions."""
        self._topics = tuple(sorted(topics))
        for topic in self._topics:
            self._metadata.want(topic)

    def _can_begin(self) -> bool:
        """Whether the member is to join, and nothing has to happen before."""
        is_idle = self._call is None and not self._events
        return is_idle and self.state in self._course.outside and self._goal is MemberGoal.JOIN

    def _leave_if_wanted(self) -> None:
        """Have LeaveGroup sent once the partitions are revoked, if the subscription has ended."""
        if self.state in self._course.outside and self._goal is MemberGoal.LEAVE and not self._events:
            self._advance(self._course.left)
            self._goal = MemberGoal.NOTHING
            self._leave = self.leave_call()
            self._generation = NO_GENERATION

    def _retry(self, error: Exception, now_ms: int) -> None:
        """Join again after `retry.backoff.ms`. An error that this cannot cure reaches the application."""
        self._forget_coordinator(error)
        self._not_before_ms = max(self._not_before_ms, now_ms + self._common.retry_backoff_ms)
        self._advance(self._course.failed)
        self._want_join()
        if not self._is_passing(error):
            self._problem = error

    def _pace_joins(self, now_ms: int) -> None:
        """A join is being sent. A coordinator may refuse each in a way that calls for the next at once, or
        accept each and call for another: then the next ones wait, longer and longer."""
        self._not_before_ms = max(self._not_before_ms, now_ms + self._joins.step(now_ms))

    def _lose(self) -> None:
        """The membership has ended at the coordinator, or counts as ended."""
        self._lose_all()
        self._advance(self._course.lost)
        self._want_join()

    def _fence(self, event: _Event, instance_id: str | None, why: str = "") -> None:
        """Another member has taken this member's group.instance.id, which ends the membership for good."""
        self._fencing_error = error_for(
            ErrorCode.FENCED_INSTANCE_ID,
            f"another consumer of group {self._common.group_id} uses group.instance.id={instance_id} now; "
            f"give each consumer its own{why}",
        )
        self._advance(event)

    # Requests -----------------------------------------------------------------------------------------

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply; returns whether it answered one of this membership's calls."""
        if reply.call is self._heartbeat:
            self._heartbeat = None
            self._take_heartbeat(reply, now_ms)
            return True
        if reply.call is not self._call:
            return False
        self._call = None
        self._coordinator.is_line_taken = False
        self._take_reply(reply, now_ms)
        return True

    def _beat(self, now_ms: int) -> Call:
        self._heartbeat_due_ms = now_ms + self._interval_ms
        timeout_ms = min(self._common.request_timeout_ms, self.session_timeout_ms)
        tag = (self._generation, now_ms)
        self._heartbeat = Call(COORDINATOR, self._heartbeat_request(), timeout_ms, tag=tag)
        return self._heartbeat

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
        self._advance(self._course.revoked)

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
