"""Membership by the client rewrite's protocol: the coordinator shares out the partitions.

On startup the consumer asks any broker for the group's controller (ListGroups), makes the group where there
is none (CreateGroup), and registers there; the answer says what to own and where to start. From then on it
sends heartbeats. Any error code in their answers makes it stop fetching, commit, look for the controller
again and register anew. A member may also ask for partitions of the group to be rewound, anybody's.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

from clients.connection.connection import ANY_NODE, COORDINATOR
from clients.connection.link import Call, Reply
from clients.connection.metadata import Metadata
from clients.errors import is_retriable
from clients.groups.coordinator import CoordinatorNode, GroupCoordinator
from clients.groups.managed_requests import ManagedSettings, RewindRequested
from clients.groups.member import Member
from clients.groups.membership import NO_GENERATION, AssignPartitions, GroupIdentity
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.group_membership import (
    ConsumerHeartbeatResponse,
    CreateGroupResponse,
    ListConsumerGroupsResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    RewindConsumerRequest,
    RewindConsumerResponse,
)
from protocol.topic_partition import TopicPartition

_TRANSIT_MS = 5_000
"""Added to what the other members may take, for the answer to come in time."""


class ManagedState(enum.Enum):
    """Where a member stands in the protocol."""

    OUTSIDE = "outside"
    """It wants nothing of the group, or has to register."""
    RELEASING = "releasing"
    """It has to register or to leave, and the consumer is letting its partitions go first."""
    LOCATING = "locating"
    CREATING = "creating"
    REGISTERING = "registering"
    STABLE = "stable"


class ManagedMembership(Member):
    """A member of a managed group, as a machine; see `clients.groups.membership.GroupMembership`."""

    def __init__(self, settings: ManagedSettings, coordinator: GroupCoordinator, metadata: Metadata) -> None:
        super().__init__()
        self.state = ManagedState.OUTSIDE
        self._settings = settings
        self._coordinator = coordinator
        self._metadata = metadata
        self._group_topics: frozenset[str] = frozenset()
        self._group_session_ms = settings.session_timeout_ms
        self._has_single_readers = settings.single_reader
        self._must_register = False
        self._is_located = False
        self._rewind: RewindRequested | None = None

    # What others ask ----------------------------------------------------------------------------------

    @property
    def identity(self) -> GroupIdentity:
        group_id = self._settings.group_id
        if self._generation == NO_GENERATION:
            return GroupIdentity(group_id)
        return GroupIdentity(group_id, self._generation, self._settings.consumer_id)

    @property
    def is_joined(self) -> bool:
        return self.state is ManagedState.STABLE and not self._must_register and not self._events

    @property
    def session_timeout_ms(self) -> int:
        """How long the controller waits for a heartbeat: the group's timeout, or our own shorter one."""
        return min(self._settings.session_timeout_ms, self._group_session_ms)

    def subscribe(self, topics: Collection[str]) -> None:
        self._topics = tuple(sorted(topics))
        for topic in self._topics:
            self._metadata.want(topic)
        self._must_leave = not self._topics
        if not self._topics:
            self._must_register = False
        elif self.state is ManagedState.OUTSIDE or not self._group_topics.issuperset(self._topics):
            self._must_register = True

    def revoked(self) -> None:
        super().revoked()
        if self.state is ManagedState.RELEASING:
            self.state = ManagedState.OUTSIDE

    def leave_call(self) -> Call | None:
        if self._generation == NO_GENERATION and self.state is not ManagedState.REGISTERING:
            return None
        if self._settings.is_static:
            return None  # It keeps its place until its session is over.
        return Call(self._coordinator.quick_node, self._settings.leave_request())

    def doubt(self) -> None:
        """A leader takes another for the reader of what is owned here: the coordinator is asked at once."""
        self._heartbeat_due_ms = 0

    def rewind(self, rewind: RewindRequested) -> None:
        """Have partitions of the group rewound; `rewind` says when that is done. One at a time."""
        assert self._rewind is None
        self._rewind = rewind

    def withdraw(self, rewind: RewindRequested) -> None:
        """Nobody waits for this rewind any more."""
        if self._rewind is rewind:
            self._rewind = None

    # Out: calls ---------------------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        if self._fenced is not None:
            return []
        wants_change = self._must_register or self._must_leave
        if self.state is ManagedState.STABLE and wants_change and not self._events and self._call is None:
            self._stop()
        if self.state is ManagedState.OUTSIDE and self._must_leave and not self._events:
            self._must_leave = False
            self._farewell = self.leave_call()
            self._generation = NO_GENERATION
        calls = self._farewells()
        if self._can_proceed() and now_ms >= self._not_before_ms:
            calls.append(self._next_step(now_ms))
        if self._can_rewind() and self._rewind is not None and now_ms >= self._rewind.not_before_ms:
            calls.append(self._send_rewind(self._rewind, now_ms))
        if self._beats() and now_ms >= self._heartbeat_due_ms and self._coordinator.want():
            calls.append(self._beat(now_ms))
        return calls

    def next_event_ms(self, now_ms: int) -> int | None:
        if self._fenced is not None:
            return None
        times = []
        if self._can_proceed():
            times.append(self._not_before_ms)
        if self._can_rewind() and self._rewind is not None:
            times.append(self._rewind.not_before_ms)
        if self._beats() and self._coordinator.is_known:
            times.append(self._heartbeat_due_ms)
        return None if not times else max(now_ms, min(times))

    def _can_proceed(self) -> bool:
        is_idle = self._call is None and not self._events
        return is_idle and self.state is ManagedState.OUTSIDE and self._must_register

    def _can_rewind(self) -> bool:
        return self.is_joined and self._call is None and self._heartbeat is None

    def _beats(self) -> bool:
        """Whether there is a session to keep alive, and no answer of ours that others are waited for."""
        is_member = self.state in (ManagedState.STABLE, ManagedState.RELEASING)
        return (
            is_member and self._generation != NO_GENERATION and self._heartbeat is None and self._call is None
        )

    def _beat(self, now_ms: int) -> Call:
        settings = self._settings
        self._heartbeat_due_ms = now_ms + settings.heartbeat_interval_ms
        request = settings.heartbeat_request(self._generation, self._group_session_ms)
        timeout_ms = min(settings.request_timeout_ms, self.session_timeout_ms)
        self._heartbeat = Call(COORDINATOR, request, timeout_ms, tag=(self._generation, now_ms))
        return self._heartbeat

    def _stop(self) -> None:
        """Let go of everything: the group is about to be shared out anew."""
        self.state = ManagedState.RELEASING if self._release() else ManagedState.OUTSIDE
        self._is_located = False

    def _next_step(self, now_ms: int) -> Call:
        """Towards the group: where is it, make it where it lacks something, register."""
        settings = self._settings
        if not self._is_located:
            self.state = ManagedState.LOCATING
            self._call = Call(ANY_NODE, settings.list_request())
        elif not self._group_topics.issuperset(self._topics):
            self.state = ManagedState.CREATING
            request = settings.create_request(
                self._topics, self._group_session_ms, single_reader=self._has_single_readers
            )
            self._call = Call(ANY_NODE, request)
        else:
            self.state = ManagedState.REGISTERING
            self._must_register = False
            self._call = self._patient_call(settings.register_request(), now_ms)
        return self._call

    def _send_rewind(self, rewind: RewindRequested, now_ms: int) -> Call:
        request = self._settings.rewind_request(rewind.offsets, self._generation)
        self._call = self._patient_call(request, (rewind, now_ms))
        return self._call

    def _patient_call(
        self, request: RegisterConsumerRequest | RewindConsumerRequest, tag: tuple[RewindRequested, int] | int
    ) -> Call:
        """A request whose answer waits for the other members.

        They have one session to hear of it, and one from then on to stop and to register.
        """
        timeout_ms = max(self._settings.request_timeout_ms, 2 * self._group_session_ms + _TRANSIT_MS)
        self._coordinator.is_line_taken = True
        return Call(COORDINATOR, request, timeout_ms, tag=tag)

    # In: replies --------------------------------------------------------------------------------------

    def handle(self, reply: Reply, now_ms: int) -> bool:
        if reply.call is self._heartbeat:
            self._heartbeat = None
            self._take_heartbeat(reply)
            return True
        if reply.call is not self._call:
            return False
        self._call = None
        self._coordinator.is_line_taken = False
        match reply.response:
            case ListConsumerGroupsResponse() as response:
                self._take_list(response, now_ms)
            case CreateGroupResponse() as response:
                self._take_creation(response, now_ms)
            case RegisterConsumerResponse() as response:
                self._take_registration(response, reply.call.tag, now_ms)
            case RewindConsumerResponse() as response:
                self._take_rewind(response, reply.call.tag[0], reply.call.tag[1], now_ms)
            case _:
                assert reply.error is not None
                self._failed(reply.call, reply.error, now_ms)
        return True

    def _take_list(self, response: ListConsumerGroupsResponse, now_ms: int) -> None:
        if response.error_code:
            self._retry(error_for(response.error_code), now_ms)
            return
        self.state = ManagedState.OUTSIDE
        info = next((row for row in response.groups_info if row.group_name == self._settings.group_id), None)
        self._is_located = True
        if info is None:
            self._group_topics = frozenset()  # There is no such group: it is made next.
            self._group_session_ms = self._settings.session_timeout_ms
            self._has_single_readers = self._settings.single_reader
            return
        if self._settings.single_reader and not info.single_reader:
            self._retry(self._settings.readers_error(), now_ms)
            return
        broker = info.controller_broker
        self._coordinator.found(CoordinatorNode(broker.broker_id, broker.host, broker.port))
        self._group_topics = frozenset(info.topics)
        self._group_session_ms = info.session_timeout
        self._has_single_readers = info.single_reader

    def _take_creation(self, response: CreateGroupResponse, now_ms: int) -> None:
        if response.error_code:
            plain = error_for(response.error_code)
            self._retry(error_for(plain.code, self._settings.why_not_created(plain)), now_ms)
            return
        self.state = ManagedState.OUTSIDE
        self._is_located = False  # It exists now, and has a controller.

    def _take_registration(self, response: RegisterConsumerResponse, sent_at_ms: int, now_ms: int) -> None:
        if self.state is not ManagedState.REGISTERING:
            return  # Given up meanwhile.
        if response.error_code:
            self._retry(error_for(response.error_code), now_ms)
            return
        offsets = {TopicPartition(row.topic, row.partition): row.offset for row in response.partitions_to_own}
        self.state = ManagedState.STABLE
        self._generation = response.controller_generation
        # The session may be as old as the request, if the answer has lain about: a heartbeat says more.
        self._heard_at_ms = sent_at_ms
        self._heartbeat_due_ms = now_ms
        self.owned = tuple(offsets)
        for topic in dict.fromkeys(partition.topic for partition in offsets):
            self._metadata.want(topic)
        self._events.append(AssignPartitions(self.owned, offsets, response.single_reader))

    def _take_heartbeat(self, reply: Reply) -> None:
        generation, sent_at_ms = reply.call.tag
        if self.state is not ManagedState.STABLE or generation != self._generation:
            return
        if reply.error is not None:
            self._coordinator.forget()
            self._must_register = True
            return
        assert isinstance(reply.response, ConsumerHeartbeatResponse)
        code = reply.response.error_code
        if code == ErrorCode.NONE:
            self._heard_at_ms = max(self._heard_at_ms, sent_at_ms)
            self._generation = reply.response.controller_generation
            return
        error = error_for(code)
        if error.code is ErrorCode.ILLEGAL_GENERATION and self._settings.is_static:
            self._fenced = error_for(
                ErrorCode.FENCED_INSTANCE_ID,
                f"another consumer of group {self._settings.group_id} is {self._settings.consumer_id} now",
            )
        if error.retriable or error.code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_register = True
        else:
            self._lose()

    def _take_rewind(
        self, response: RewindConsumerResponse, rewind: RewindRequested, sent_at_ms: int, now_ms: int
    ) -> None:
        refused = {
            TopicPartition(row.topic, row.partition): error_for(row.error_code)
            for row in response.actual_offsets
            if row.error_code
        }
        if any(error.code in _COMES_TOO_LATE for error in refused.values()):
            error = next(iter(refused.values()))
            rewind.last_error = error
            rewind.not_before_ms = now_ms + self._settings.retry_backoff_ms
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._must_register = True
            else:
                self._lose()
            return
        self._heard_at_ms = max(self._heard_at_ms, sent_at_ms)
        if self.state is ManagedState.STABLE:
            self._generation = response.controller_generation
            self._must_register = not self._group_topics.issuperset(self._topics)
        rewind.errors = refused
        rewind.found = {
            TopicPartition(row.topic, row.partition): row.offset
            for row in response.actual_offsets
            if not row.error_code
        }
        rewind.is_done = True
        self.withdraw(rewind)

    # What goes wrong ----------------------------------------------------------------------------------

    def _failed(self, call: Call, error: Exception, now_ms: int) -> None:
        """There was no answer."""
        if isinstance(call.request, RewindConsumerRequest):
            rewind, _ = call.tag
            rewind.last_error = error
            rewind.not_before_ms = now_ms + self._settings.retry_backoff_ms
            self._coordinator.forget()
            self._must_register = True
        else:
            self._retry(error, now_ms)

    def _retry(self, error: Exception, now_ms: int) -> None:
        """Begin anew after a pause; what will not pass by itself is told to the application too."""
        self._is_located = False
        self._coordinator.forget()
        self._not_before_ms = now_ms + self._settings.retry_backoff_ms
        self.state = ManagedState.OUTSIDE
        self._must_register = bool(self._topics)
        is_passing = isinstance(error, BrokerError) and error.code in _PASSES_BY_REGISTERING
        if not is_passing and not is_retriable(error):
            self._problem = error

    def _lose(self) -> None:
        """Our place has passed: what we own is, or will be, somebody else's."""
        self._lose_all()
        self._is_located = False
        self.state = ManagedState.OUTSIDE
        self._must_register = bool(self._topics)


_COMES_TOO_LATE = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
"""Errors after which a rewind is asked for once more, under the next generation."""
_PASSES_BY_REGISTERING = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
