"""Membership by Kafka's classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

In a rebalance a member first revokes its partitions (with eager assignors) or keeps them (with cooperative
ones). It sends JoinGroup, which the coordinator answers once every member has joined. The leader assigns the
partitions, and SyncGroup gives each member its own. A cooperative member then revokes the partitions that it
lost and joins once more, so that their new owners get them.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.connection.connection import COORDINATOR
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.groups.classic_requests import ClassicSettings, Joined, joined
from holdfast_log.clients.groups.coordinator import COORDINATOR_MOVED, GroupCoordinator
from holdfast_log.clients.groups.member import Course, Member, MemberGoal
from holdfast_log.clients.groups.membership import (
    NO_GENERATION,
    AssignPartitions,
    GroupIdentity,
    RevokePartitions,
)
from holdfast_log.protocol.consumer_protocol import decode_assignment
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast_log.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from holdfast_log.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from holdfast_log.protocol.schema import MalformedMessage
from holdfast_log.protocol.topic_partition import TopicPartition

_TRANSIT_MS = 5_000
"""Added to the rebalance timeout: time for the answer to arrive."""
_METADATA_WAIT_MS = 5_000
"""How long a leader waits for the partition counts of all members' topics. It then assigns those it knows."""


class ClassicState(enum.Enum):
    """Where a member stands in the protocol."""

    OUTSIDE = "outside"
    """Not in a generation. It joins, leaves or does nothing, as `MemberGoal` says."""
    REVOKING = "revoking"
    """A rebalance has begun, and the consumer is revoking partitions."""
    JOINING = "joining"
    """JoinGroup is in flight."""
    ASSIGNING = "assigning"
    """Joined. A leader waits for the partition counts of the members' topics; others sync at once."""
    SYNCING = "syncing"
    """SyncGroup is in flight."""
    STABLE = "stable"
    FENCED = "fenced"
    """Another member uses this member's group.instance.id. Terminal."""


class ClassicEvent(enum.Enum):
    """What moves a member from state to state."""

    REVOKE = "a rebalance begins, and partitions must be revoked first"
    REJOIN = "a rebalance begins, and no partitions must be revoked"
    REVOKED = "the consumer has revoked partitions"
    LEFT = "LeaveGroup is due"
    JOIN_SENT = "JoinGroup is sent"
    MEMBER_ID_REQUIRED = "the coordinator has given a member id to join with"
    JOINED = "JoinGroup is answered with a generation"
    SYNC_SENT = "SyncGroup is sent"
    ASSIGNED = "SyncGroup is answered with partitions"
    REBALANCED = "the coordinator has begun another rebalance"
    FAILED = "a request has failed, or its answer cannot be used"
    LOST = "the membership has ended"
    FENCED = "another member has taken over the group.instance.id"


_S, _E = ClassicState, ClassicEvent
TRANSITIONS: Mapping[ClassicState, Mapping[ClassicEvent, ClassicState]] = {
    _S.OUTSIDE: {
        _E.REVOKED: _S.OUTSIDE,
        _E.LEFT: _S.OUTSIDE,
        _E.JOIN_SENT: _S.JOINING,
        _E.FAILED: _S.OUTSIDE,  # A request in flight when the membership was lost.
        _E.LOST: _S.OUTSIDE,
        _E.FENCED: _S.FENCED,
    },
    _S.REVOKING: {_E.REVOKED: _S.OUTSIDE, _E.LOST: _S.OUTSIDE, _E.FENCED: _S.FENCED},
    _S.JOINING: {
        _E.MEMBER_ID_REQUIRED: _S.OUTSIDE,
        _E.JOINED: _S.ASSIGNING,
        _E.REBALANCED: _S.OUTSIDE,
        _E.FAILED: _S.OUTSIDE,
        _E.LOST: _S.OUTSIDE,
        _E.FENCED: _S.FENCED,
    },
    _S.ASSIGNING: {
        _E.SYNC_SENT: _S.SYNCING,
        _E.FAILED: _S.OUTSIDE,
        _E.LOST: _S.OUTSIDE,
        _E.FENCED: _S.FENCED,
    },
    _S.SYNCING: {
        _E.ASSIGNED: _S.STABLE,
        _E.REBALANCED: _S.OUTSIDE,
        _E.FAILED: _S.OUTSIDE,
        _E.LOST: _S.OUTSIDE,
        _E.FENCED: _S.FENCED,
    },
    _S.STABLE: {
        _E.REVOKE: _S.REVOKING,
        _E.REJOIN: _S.OUTSIDE,
        _E.REVOKED: _S.STABLE,  # A cooperative member has revoked what the last assignment took.
        _E.FAILED: _S.OUTSIDE,
        _E.LOST: _S.OUTSIDE,
        _E.FENCED: _S.FENCED,
    },
    _S.FENCED: {
        _E.REVOKED: _S.FENCED,
        _E.FAILED: _S.FENCED,
        _E.LOST: _S.FENCED,
        _E.FENCED: _S.FENCED,
    },
}
_COURSE = Course(
    transitions=TRANSITIONS,
    outside=(_S.OUTSIDE,),
    stable=_S.STABLE,
    fenced=_S.FENCED,
    revoked=_E.REVOKED,
    left=_E.LEFT,
    failed=_E.FAILED,
    lost=_E.LOST,
)


class ClassicMembership(Member[ClassicState, ClassicEvent]):
    """A member of a classic group, as a machine; see `clients.groups.membership.GroupMembership`."""

    def __init__(self, settings: ClassicSettings, coordinator: GroupCoordinator, metadata: Metadata) -> None:
        super().__init__(_COURSE, settings, coordinator, metadata)
        self._settings = settings
        self._joined_topics: tuple[str, ...] = ()
        self._member_id = ""
        self._assigned: tuple[TopicPartition, ...] = ()
        """The partitions of the last assignment, and its generation: sticky assignors report them."""
        self._assigned_in = NO_GENERATION
        self._joined = Joined()
        self._assign_by_ms = 0
        self._seen_update = -1
        self._assigned_counts: Mapping[str, int] | None = None
        """The partition counts that this leader has assigned; a change of them calls for a rebalance."""

    # For the session ----------------------------------------------------------------------------------

    @property
    def identity(self) -> GroupIdentity:
        group_id = self._settings.group_id
        if self._generation == NO_GENERATION:
            return GroupIdentity(group_id)
        return GroupIdentity(group_id, self._generation, self._member_id, self._settings.instance_id)

    @property
    def session_timeout_ms(self) -> int:
        return self._settings.session_timeout_ms

    def subscribe(self, topics: Collection[str]) -> None:
        self._want_topics(topics)
        if not self._topics:
            self._goal = MemberGoal.LEAVE
            self._joined_topics = ()
        elif self._topics != self._joined_topics:
            self._goal = MemberGoal.JOIN

    def leave_call(self) -> Call | None:
        if not self._member_id or self._settings.instance_id is not None:
            return None  # A static member stays in the group until its session expires (KIP-345).
        member_id, self._member_id = self._member_id, ""
        return Call(self._coordinator.quick_node, self._settings.leave_request(member_id))

    # Out: calls ---------------------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        if self.state is ClassicState.FENCED:
            return []
        if self.state is ClassicState.STABLE and self._has_topic_changed():
            self._want_join()
        if self.state is ClassicState.STABLE and self._goal is not MemberGoal.NOTHING and not self._events:
            self._begin_rebalance()
        self._leave_if_wanted()
        calls = self._leaves()
        if self._can_begin() and now_ms >= self._not_before_ms and self._coordinator.want():
            self._pace_joins(now_ms)
            calls.append(self._join())
        if self.state is ClassicState.ASSIGNING and (self._knows_topics() or now_ms >= self._assign_by_ms):
            calls.append(self._sync(now_ms))
        return calls + self.beats(now_ms)

    def next_event_ms(self, now_ms: int) -> int | None:
        if self.state is ClassicState.FENCED or not self._coordinator.is_known:
            return None
        times = []
        if self._can_begin():
            times.append(self._not_before_ms)
        if self.state is ClassicState.ASSIGNING:
            times.append(self._assign_by_ms)
        if self._beats():
            times.append(self._heartbeat_due_ms)
        return None if not times else max(now_ms, min(times))

    def _beats(self) -> bool:
        """Whether heartbeats are needed: JoinGroup and SyncGroup in flight keep the session alive too."""
        is_member = self.state in (ClassicState.STABLE, ClassicState.REVOKING, ClassicState.ASSIGNING)
        return is_member and self._generation != NO_GENERATION and self._heartbeat is None

    def _heartbeat_request(self) -> HeartbeatRequest:
        return self._settings.heartbeat_request(self._generation, self._member_id)

    def _begin_rebalance(self) -> None:
        """Revoke the partitions that a joining member may not keep."""
        kept = self._topics if self._settings.is_cooperative else ()
        self._advance(ClassicEvent.REVOKE if self._revoke(kept) else ClassicEvent.REJOIN)

    def _join(self) -> Call:
        request = self._settings.join_request(
            self._topics, self._member_id, self.owned, self._generation, self._assigned, self._assigned_in
        )
        self._joined_topics = self._topics
        self._goal = MemberGoal.NOTHING
        self._advance(ClassicEvent.JOIN_SENT)
        return self._send(request)

    def _send(self, request: JoinGroupRequest | SyncGroupRequest, sent_at_ms: int = 0) -> Call:
        """A request that the coordinator answers only after the other members have acted."""
        timeout_ms = max(self._settings.request_timeout_ms, self._settings.rebalance_timeout_ms + _TRANSIT_MS)
        self._call = Call(COORDINATOR, request, timeout_ms, tag=sent_at_ms)
        self._coordinator.is_line_taken = True
        return self._call

    # The leader ---------------------------------------------------------------------------------------

    def _knows_topics(self) -> bool:
        metadata = self._metadata
        return all(topic in metadata.topics or topic in metadata.errors for topic in self._joined.topics())

    def _sync(self, now_ms: int) -> Call:
        """SyncGroup; a leader's carries the assignment of the topics that it knows."""
        assignments = {}
        if self._joined.is_leader:
            self._assigned_counts = self._counts()
            known = {topic: count for topic, count in self._assigned_counts.items() if count}
            if not self._joined.skips_assignment:
                assignor = self._settings.assignor(self._joined.protocol_name)
                assignments = assignor.assign(known, self._joined.members)
        self._advance(ClassicEvent.SYNC_SENT)
        request = self._settings.sync_request(
            self._generation, self._member_id, self._joined.protocol_name, assignments
        )
        return self._send(request, now_ms)

    def _counts(self) -> dict[str, int]:
        topics = self._metadata.topics
        return {
            topic: len(topics[topic].partitions) if topic in topics else 0 for topic in self._joined.topics()
        }

    def _has_topic_changed(self) -> bool:
        """Whether the members' topics have other partition counts than this leader has assigned."""
        if self._assigned_counts is None or self._seen_update == self._metadata.update_count:
            return False
        self._seen_update = self._metadata.update_count
        return self._assigned_counts != self._counts()

    # In: replies --------------------------------------------------------------------------------------

    def _take_reply(self, reply: Reply, now_ms: int) -> None:
        if reply.error is not None:
            self._retry(reply.error, now_ms)
        elif isinstance(reply.response, JoinGroupResponse):
            self._take_join(reply.response, now_ms)
        elif isinstance(reply.response, SyncGroupResponse):
            self._take_sync(reply.response, reply.call.tag, now_ms)

    def _take_join(self, response: JoinGroupResponse, now_ms: int) -> None:
        if self.state is not ClassicState.JOINING:
            return  # The membership was lost in the meantime.
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            self._advance(ClassicEvent.MEMBER_ID_REQUIRED)
            self._want_join()
            return
        if response.error_code:
            self._refused(error_for(response.error_code), now_ms)
            return
        self._member_id = response.member_id
        self._generation = response.generation_id
        self._heartbeat_due_ms = now_ms + self._settings.heartbeat_interval_ms
        self._assigned_counts = None
        self._advance(ClassicEvent.JOINED)
        self._assign_by_ms = now_ms + _METADATA_WAIT_MS
        try:
            self._joined = joined(response)
        except MalformedMessage as error:
            self._retry(error, now_ms)
            return
        for topic in self._joined.topics():
            self._metadata.want(topic)

    def _take_sync(self, response: SyncGroupResponse, sent_at_ms: int, now_ms: int) -> None:
        if self.state is not ClassicState.SYNCING:
            return  # The membership was lost in the meantime.
        if response.error_code:
            self._refused(error_for(response.error_code), now_ms)
            return
        try:
            assigned = tuple(TopicPartition(*each) for each in decode_assignment(response.assignment))
        except MalformedMessage as error:
            self._retry(error, now_ms)
            return
        self._advance(ClassicEvent.ASSIGNED)
        self._heard_at_ms = sent_at_ms  # The coordinator may have renewed the session as early as that.
        self._assigned, self._assigned_in = assigned, self._generation
        gone = tuple(partition for partition in self.owned if partition not in assigned)
        added = tuple(partition for partition in assigned if partition not in self.owned)
        self.owned = (*self.owned, *added)
        if gone:
            self._events.append(RevokePartitions(gone))
            self._want_join()  # The coordinator assigns them to other members in the next generation.
        self._events.append(AssignPartitions(added))

    def _take_heartbeat(self, reply: Reply, now_ms: int) -> None:
        generation, sent_at_ms = reply.call.tag
        if reply.error is not None:
            self._coordinator.forget()
            self._heartbeat_due_ms = now_ms + self._settings.retry_backoff_ms
            return
        assert isinstance(reply.response, HeartbeatResponse)
        code = reply.response.error_code
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._heard_at_ms = max(self._heard_at_ms, sent_at_ms)  # Both answers extend the session.
        if code == ErrorCode.NONE:
            return
        error = error_for(code)
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            self._refused(error, now_ms)
        elif error.retriable:
            self._forget_coordinator(error)
            self._heartbeat_due_ms = now_ms + self._settings.retry_backoff_ms
        elif self.state is not ClassicState.STABLE or generation != self._generation:
            pass  # The member is rejoining already; the answer to JoinGroup decides.
        elif error.code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._want_join()
        else:
            self._refused(error, now_ms)

    # Errors -------------------------------------------------------------------------------------------

    def _refused(self, error: BrokerError, now_ms: int) -> None:
        """The coordinator has refused a request."""
        match error.code:
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
                self._lose()
            case ErrorCode.ILLEGAL_GENERATION:
                self._lose()
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._advance(ClassicEvent.REBALANCED)
                self._want_join()
            case ErrorCode.FENCED_INSTANCE_ID:
                self._fence(ClassicEvent.FENCED, self._settings.instance_id, f": {error.message}")
                self._lose()
            case _:
                self._retry(error, now_ms)

    def _forget_coordinator(self, error: Exception) -> None:
        if not isinstance(error, BrokerError) or error.code in COORDINATOR_MOVED:
            self._coordinator.forget()

    def _lose(self) -> None:
        self._assigned_counts = None
        super()._lose()
