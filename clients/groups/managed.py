"""Membership by the client rewrite's protocol: the coordinator assigns the partitions.

At startup the consumer asks any broker for the group's controller (ListGroups), creates the group if it does
not exist (CreateGroup), and registers at the controller. The answer has its partitions and their offsets.
From then on it sends heartbeats. After an error code in their answers it stops fetching, commits, locates the
controller and registers again. A member may also rewind partitions of the group, its own or others'.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.connection.connection import ANY_NODE, COORDINATOR
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.groups.coordinator import CoordinatorNode, GroupCoordinator
from holdfast_log.clients.groups.managed_requests import ManagedSettings, RewindRequested
from holdfast_log.clients.groups.member import Course, Member, MemberGoal
from holdfast_log.clients.groups.membership import NO_GENERATION, AssignPartitions, GroupIdentity
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.group_membership import (
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    CreateGroupResponse,
    ListConsumerGroupsResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    RewindConsumerRequest,
    RewindConsumerResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_TRANSIT_MS = 5_000
"""Added to the time that the other members may take: time for the answer to arrive."""


class ManagedState(enum.Enum):
    """Where a member stands in the protocol."""

    OUTSIDE = "outside"
    """Not registered, the group's controller unknown. It acts as `MemberGoal` says."""
    REVOKING = "revoking"
    """The registration ends, and the consumer is revoking its partitions."""
    LOCATING = "locating"
    """ListGroups is in flight."""
    LOCATED = "located"
    """ListGroups is answered: the controller is known, or the group does not exist. RegisterConsumer or
    CreateGroup is next."""
    CREATING = "creating"
    """CreateGroup is in flight."""
    REGISTERING = "registering"
    """RegisterConsumer is in flight."""
    STABLE = "stable"
    FENCED = "fenced"
    """Another member uses this member's group.instance.id. Terminal."""


class ManagedEvent(enum.Enum):
    """What moves a member from state to state."""

    REVOKE = "the registration ends, and partitions must be revoked first"
    REREGISTER = "the registration ends, and no partitions must be revoked"
    REVOKED = "the consumer has revoked partitions"
    LEFT = "LeaveGroup is due"
    LIST_SENT = "ListGroups is sent"
    LISTED = "ListGroups is answered"
    CREATE_SENT = "CreateGroup is sent"
    CREATED = "CreateGroup is answered"
    REGISTER_SENT = "RegisterConsumer is sent"
    ASSIGNED = "RegisterConsumer is answered with partitions"
    FAILED = "a request has failed, or its answer cannot be used"
    LOST = "the membership has ended"
    FENCED = "another member has taken over the group.instance.id"


_S, _E = ManagedState, ManagedEvent
TRANSITIONS: Mapping[ManagedState, Mapping[ManagedEvent, ManagedState]] = {
    _S.OUTSIDE: {
        _E.REVOKED: _S.OUTSIDE,
        _E.LEFT: _S.OUTSIDE,
        _E.LIST_SENT: _S.LOCATING,
        # Answers to requests that were in flight when the membership was lost:
        _E.LISTED: _S.LOCATED,
        _E.CREATED: _S.OUTSIDE,
        _E.FAILED: _S.OUTSIDE,
        _E.LOST: _S.OUTSIDE,
    },
    _S.REVOKING: {_E.REVOKED: _S.OUTSIDE, _E.LOST: _S.OUTSIDE},
    _S.LOCATING: {_E.LISTED: _S.LOCATED, _E.FAILED: _S.OUTSIDE, _E.LOST: _S.OUTSIDE},
    _S.LOCATED: {
        _E.REVOKED: _S.LOCATED,
        _E.LEFT: _S.LOCATED,
        _E.CREATE_SENT: _S.CREATING,
        _E.REGISTER_SENT: _S.REGISTERING,
        _E.LOST: _S.OUTSIDE,
    },
    _S.CREATING: {_E.CREATED: _S.OUTSIDE, _E.FAILED: _S.OUTSIDE, _E.LOST: _S.OUTSIDE},
    _S.REGISTERING: {_E.ASSIGNED: _S.STABLE, _E.FAILED: _S.OUTSIDE, _E.LOST: _S.OUTSIDE},
    _S.STABLE: {
        _E.REVOKE: _S.REVOKING,
        _E.REREGISTER: _S.OUTSIDE,
        _E.LOST: _S.OUTSIDE,
        _E.FENCED: _S.FENCED,
    },
    _S.FENCED: {_E.REVOKED: _S.FENCED, _E.LOST: _S.FENCED},
}
_UNREGISTERED = (ManagedState.OUTSIDE, ManagedState.LOCATED)
_COURSE = Course(
    transitions=TRANSITIONS,
    outside=_UNREGISTERED,
    stable=_S.STABLE,
    fenced=_S.FENCED,
    revoked=_E.REVOKED,
    left=_E.LEFT,
    failed=_E.FAILED,
    lost=_E.LOST,
)


class ManagedMembership(Member[ManagedState, ManagedEvent]):
    """A member of a managed group, as a machine; see `clients.groups.membership.GroupMembership`."""

    def __init__(self, settings: ManagedSettings, coordinator: GroupCoordinator, metadata: Metadata) -> None:
        super().__init__(_COURSE, settings, coordinator, metadata)
        self._settings = settings
        self._group_topics: frozenset[str] = frozenset()
        self._group_session_ms = settings.session_timeout_ms
        self._has_single_readers = settings.single_reader
        self._rewind: RewindRequested | None = None

    # For the session ----------------------------------------------------------------------------------

    @property
    def identity(self) -> GroupIdentity:
        group_id = self._settings.group_id
        if self._generation == NO_GENERATION:
            return GroupIdentity(group_id)
        return GroupIdentity(group_id, self._generation, self._settings.consumer_id)

    @property
    def session_timeout_ms(self) -> int:
        """How long the controller keeps this member without a heartbeat: its own timeout, or the group's
        where that is shorter."""
        return min(self._settings.session_timeout_ms, self._group_session_ms)

    def subscribe(self, topics: Collection[str]) -> None:
        self._want_topics(topics)
        if not self._topics:
            self._goal = MemberGoal.LEAVE
        elif self.state in _UNREGISTERED or not self._group_topics.issuperset(self._topics):
            self._goal = MemberGoal.JOIN
        elif self._goal is MemberGoal.LEAVE:
            self._goal = MemberGoal.NOTHING

    def leave_call(self) -> Call | None:
        if self._generation == NO_GENERATION and self.state is not ManagedState.REGISTERING:
            return None
        if self._settings.is_static:
            return None  # A static member stays in the group until its session expires.
        return Call(self._coordinator.quick_node, self._settings.leave_request())

    def doubt(self) -> None:
        """A leader has refused this member as a reader: ask the coordinator at once, by a heartbeat."""
        self._heartbeat_due_ms = 0

    def rewind(self, rewind: RewindRequested) -> None:
        """Begin to rewind partitions of the group; `rewind.is_done` is set at its end. One at a time."""
        assert self._rewind is None
        self._rewind = rewind

    def withdraw(self, rewind: RewindRequested) -> None:
        """Stop asking for this rewind; a request in flight may still be carried out."""
        if self._rewind is rewind:
            self._rewind = None

    # Out: calls ---------------------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        if self.state is ManagedState.FENCED:
            return []
        wants_change = self._goal is not MemberGoal.NOTHING
        if self.state is ManagedState.STABLE and wants_change and not self._events and self._call is None:
            self._stop()
        self._leave_if_wanted()
        calls = self._leaves()
        if self._can_begin() and now_ms >= self._not_before_ms:
            self._pace_joins(now_ms)
            calls.append(self._next_step(now_ms))
        if self._can_rewind() and self._rewind is not None and now_ms >= self._rewind.not_before_ms:
            calls.append(self._send_rewind(self._rewind, now_ms))
        return calls + self.beats(now_ms)

    def next_event_ms(self, now_ms: int) -> int | None:
        if self.state is ManagedState.FENCED:
            return None
        times = []
        if self._can_begin():
            times.append(self._not_before_ms)
        if self._can_rewind() and self._rewind is not None:
            times.append(self._rewind.not_before_ms)
        if self._beats() and self._coordinator.is_known:
            times.append(self._heartbeat_due_ms)
        return None if not times else max(now_ms, min(times))

    def _can_rewind(self) -> bool:
        return self.is_joined and self._call is None and self._heartbeat is None

    def _beats(self) -> bool:
        """Whether heartbeats are needed: a request in flight keeps the session alive too."""
        is_member = self.state in (ManagedState.STABLE, ManagedState.REVOKING)
        return (
            is_member and self._generation != NO_GENERATION and self._heartbeat is None and self._call is None
        )

    def _heartbeat_request(self) -> ConsumerHeartbeatRequest:
        return self._settings.heartbeat_request(self._generation, self._group_session_ms)

    def _stop(self) -> None:
        """End the registration and revoke every partition, before leaving or registering again."""
        self._advance(ManagedEvent.REVOKE if self._revoke() else ManagedEvent.REREGISTER)

    def _next_step(self, now_ms: int) -> Call:
        """The next request towards a registration: ListGroups, CreateGroup or RegisterConsumer."""
        settings = self._settings
        if self.state is ManagedState.OUTSIDE:
            self._advance(ManagedEvent.LIST_SENT)
            self._call = Call(ANY_NODE, settings.list_request())
        elif not self._group_topics.issuperset(self._topics):
            self._advance(ManagedEvent.CREATE_SENT)
            request = settings.create_request(
                self._topics, self._group_session_ms, single_reader=self._has_single_readers
            )
            self._call = Call(ANY_NODE, request)
        else:
            self._advance(ManagedEvent.REGISTER_SENT)
            self._goal = MemberGoal.NOTHING
            self._call = self._patient_call(settings.register_request(), now_ms)
        return self._call

    def _send_rewind(self, rewind: RewindRequested, now_ms: int) -> Call:
        request = self._settings.rewind_request(rewind.offsets, self._generation)
        self._call = self._patient_call(request, (rewind, now_ms))
        return self._call

    def _patient_call(
        self, request: RegisterConsumerRequest | RewindConsumerRequest, tag: tuple[RewindRequested, int] | int
    ) -> Call:
        """A request that the controller answers only after the other members have acted.

        They have one session timeout until their next heartbeat. Then they have as long as they ask for, say
        as long as this member, or one more session timeout, to stop and register.
        """
        settings, session_ms = self._settings, self._group_session_ms
        register_ms = settings.rebalance_timeout_ms + session_ms
        timeout_ms = max(settings.request_timeout_ms, session_ms + register_ms + _TRANSIT_MS)
        self._coordinator.is_line_taken = True
        return Call(COORDINATOR, request, timeout_ms, tag=tag)

    # In: replies --------------------------------------------------------------------------------------

    def _take_reply(self, reply: Reply, now_ms: int) -> None:
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

    def _take_list(self, response: ListConsumerGroupsResponse, now_ms: int) -> None:
        if response.error_code:
            self._retry(error_for(response.error_code), now_ms)
            return
        info = next((row for row in response.groups_info if row.group_name == self._settings.group_id), None)
        if info is None:
            self._advance(ManagedEvent.LISTED)
            self._group_topics = frozenset()  # The group does not exist: CreateGroup is next.
            self._group_session_ms = self._settings.session_timeout_ms
            self._has_single_readers = self._settings.single_reader
            return
        if self._settings.single_reader and not info.single_reader:
            self._retry(self._settings.readers_error(), now_ms)
            return
        self._advance(ManagedEvent.LISTED)
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
        self._advance(ManagedEvent.CREATED)  # The group exists now and has a controller: locate it.

    def _take_registration(self, response: RegisterConsumerResponse, sent_at_ms: int, now_ms: int) -> None:
        if self.state is not ManagedState.REGISTERING:
            return  # The membership was lost in the meantime.
        if response.error_code:
            self._retry(error_for(response.error_code), now_ms)
            return
        offsets = {TopicPartition(row.topic, row.partition): row.offset for row in response.partitions_to_own}
        self._advance(ManagedEvent.ASSIGNED)
        self._generation = response.controller_generation
        # The answer may have been read late, so the session counts from the request; a heartbeat renews it.
        self._heard_at_ms = sent_at_ms
        self._heartbeat_due_ms = now_ms
        self.owned = tuple(offsets)
        for topic in dict.fromkeys(partition.topic for partition in offsets):
            self._metadata.want(topic)
        self._events.append(AssignPartitions(self.owned, offsets, response.single_reader))

    def _take_heartbeat(self, reply: Reply, now_ms: int) -> None:
        generation, sent_at_ms = reply.call.tag
        if self.state is not ManagedState.STABLE or generation != self._generation:
            return
        if reply.error is not None:
            self._coordinator.forget()
            if self.is_certain(now_ms):
                self._want_join()
            else:
                self._lose()  # The session may have expired: other members may own the partitions.
            return
        assert isinstance(reply.response, ConsumerHeartbeatResponse)
        code = reply.response.error_code
        if code == ErrorCode.NONE:
            self._heard_at_ms = max(self._heard_at_ms, sent_at_ms)
            self._generation = reply.response.controller_generation
            return
        error = error_for(code)
        if error.code is ErrorCode.ILLEGAL_GENERATION and self._settings.is_static:
            self._fence(ManagedEvent.FENCED, self._settings.consumer_id)
        if error.retriable or error.code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._want_join()
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
                self._want_join()
            else:
                self._lose()
            return
        self._heard_at_ms = max(self._heard_at_ms, sent_at_ms)
        if self.state is ManagedState.STABLE:
            self._generation = response.controller_generation
            if not self._group_topics.issuperset(self._topics):
                self._want_join()
            elif self._goal is MemberGoal.JOIN:
                self._goal = MemberGoal.NOTHING  # The rewind has registered every member again.
        rewind.errors = refused
        rewind.found = {
            TopicPartition(row.topic, row.partition): row.offset
            for row in response.actual_offsets
            if not row.error_code
        }
        rewind.is_done = True
        self.withdraw(rewind)

    # Errors -------------------------------------------------------------------------------------------

    def _failed(self, call: Call, error: Exception, now_ms: int) -> None:
        """A request has failed without an answer."""
        if isinstance(call.request, RewindConsumerRequest):
            rewind, _ = call.tag
            rewind.last_error = error
            rewind.not_before_ms = now_ms + self._settings.retry_backoff_ms
            self._coordinator.forget()
            self._want_join()
        else:
            self._retry(error, now_ms)

    def _forget_coordinator(self, error: Exception) -> None:
        self._coordinator.forget()

    def _is_passing(self, error: Exception) -> bool:
        passes = isinstance(error, BrokerError) and error.code in _PASSES_BY_REGISTERING
        return passes or super()._is_passing(error)


_COMES_TOO_LATE = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
"""Errors after which a rewind is sent again, in the next generation."""
_PASSES_BY_REGISTERING = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
