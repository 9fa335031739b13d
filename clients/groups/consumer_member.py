"""Membership by Kafka's newer protocol (KIP-848): ConsumerGroupHeartbeat, and nothing else.

A member joins with a heartbeat of epoch 0. The coordinator assigns the partitions, and answers every
heartbeat at once. When an answer assigns others, the member gives up what it is to lose, reads what it has
got, and says so by the next heartbeat, without delay: so it moves to its new partitions by itself, and what
stays is read on. The coordinator gives a partition to nobody before the member that had it has said that it
has given it up.

A member that the coordinator does not know any more, or knows in another epoch, has lost its partitions. It
joins again, with epoch 0 and the same id (KIP-1082).
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.connection.connection import COORDINATOR
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.groups.consumer_requests import (
    JOINS,
    ConsumerGroupSettings,
    MemberNews,
    PartitionOfId,
    assigned_in,
)
from holdfast_log.clients.groups.coordinator import COORDINATOR_MOVED, GroupCoordinator
from holdfast_log.clients.groups.member import Course, Member, MemberGoal
from holdfast_log.clients.groups.membership import (
    NO_GENERATION,
    AssignPartitions,
    GroupIdentity,
    RevokePartitions,
)
from holdfast_log.clients.groups.target import TargetAssignment
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_SHORTEST_INTERVAL_MS = 50


class ConsumerMemberState(enum.Enum):
    """Where a member stands in the protocol."""

    OUTSIDE = "outside"
    """Not a member. It joins, leaves or does nothing, as `MemberGoal` says."""
    JOINING = "joining"
    """The heartbeat with epoch 0 is in flight."""
    STABLE = "stable"
    """It has what it knows to be assigned to it."""
    RECONCILING = "reconciling"
    """It has been assigned other partitions, and the consumer is revoking those that it loses."""
    LEAVING = "leaving"
    """The subscription has ended, and the consumer is revoking all partitions."""
    FENCED = "fenced"
    """Another member uses this member's group.instance.id. Terminal."""


class ConsumerMemberEvent(enum.Enum):
    """What moves a member from state to state."""

    JOIN_SENT = "the heartbeat with epoch 0 is sent"
    JOINED = "the coordinator has given an epoch"
    RECONCILE = "partitions must be revoked, because others have been assigned"
    STOP = "partitions must be revoked, because the subscription has ended"
    REVOKED = "the consumer has revoked partitions"
    LEFT = "the heartbeat that leaves is due"
    FAILED = "the heartbeat with epoch 0 has failed"
    LOST = "the membership has ended"
    FENCED = "another member has taken over the group.instance.id"


_S, _E = ConsumerMemberState, ConsumerMemberEvent
TRANSITIONS: Mapping[ConsumerMemberState, Mapping[ConsumerMemberEvent, ConsumerMemberState]] = {
    _S.OUTSIDE: {
        _E.JOIN_SENT: _S.JOINING,
        _E.REVOKED: _S.OUTSIDE,  # Partitions that were lost.
        _E.LEFT: _S.OUTSIDE,
        _E.FAILED: _S.OUTSIDE,  # In flight when the membership was given up.
        _E.LOST: _S.OUTSIDE,
    },
    _S.JOINING: {
        _E.JOINED: _S.STABLE,
        _E.FAILED: _S.OUTSIDE,
        _E.LOST: _S.OUTSIDE,
        _E.FENCED: _S.FENCED,
    },
    _S.STABLE: {
        _E.RECONCILE: _S.RECONCILING,
        _E.STOP: _S.LEAVING,
        _E.LEFT: _S.OUTSIDE,
        _E.LOST: _S.OUTSIDE,
        _E.FENCED: _S.FENCED,
    },
    _S.RECONCILING: {_E.REVOKED: _S.STABLE, _E.LOST: _S.OUTSIDE, _E.FENCED: _S.FENCED},
    _S.LEAVING: {_E.REVOKED: _S.OUTSIDE, _E.LOST: _S.OUTSIDE, _E.FENCED: _S.FENCED},
    _S.FENCED: {_E.REVOKED: _S.FENCED, _E.LOST: _S.FENCED},
}
_MEMBERS = (_S.STABLE, _S.RECONCILING, _S.LEAVING)
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


class ConsumerMembership(Member[ConsumerMemberState, ConsumerMemberEvent]):
    """A member of a consumer group, as a machine; see `clients.groups.membership.GroupMembership`."""

    def __init__(
        self,
        settings: ConsumerGroupSettings,
        member_id: str,
        coordinator: GroupCoordinator,
        metadata: Metadata,
    ) -> None:
        super().__init__(_COURSE, settings, coordinator, metadata)
        self._settings = settings
        self._member_id = member_id
        self._pattern: str | None = None
        self._target = TargetAssignment(metadata)
        self._held: dict[TopicPartition, PartitionOfId] = {}
        """The partitions that are owned, as the coordinator knows them."""
        self._told: MemberNews | None = None
        """What the coordinator knows; None if that is not certain."""
        self._telling = MemberNews((), None, frozenset())
        """What the heartbeat in flight tells it."""
        self._memberships = 0
        self._is_settled = True
        """Whether nothing has changed since the last comparison of what is owned with the target."""
        self._is_known = False
        """Whether the coordinator knows all that the member has to tell."""
        self._has_event_now = False
        """Whether `calls` has found something for the consumer to do, which must not wait for a reply."""

    # For the session ----------------------------------------------------------------------------------

    @property
    def identity(self) -> GroupIdentity:
        group_id = self._settings.group_id
        if self._generation == NO_GENERATION:
            return GroupIdentity(group_id)
        return GroupIdentity(
            group_id,
            self._generation,
            self._member_id,
            self._settings.instance_id,
            membership=self._memberships,
        )

    def continued(self, identity: GroupIdentity) -> GroupIdentity | None:
        """As long as this is one membership: the coordinator gives no partition away before this member has
        said that it has revoked it, and it does not revoke one while it is being committed."""
        now = self.identity
        is_same = now.generation != NO_GENERATION and now.membership == identity.membership
        return now if is_same else None

    @property
    def session_timeout_ms(self) -> int:
        return self._settings.session_timeout_ms

    def subscribe(self, topics: Collection[str]) -> None:
        self._want_topics(topics)
        self._subscription_changed()

    def subscribe_pattern(self, pattern: str | None) -> None:
        """Subscribe to the topics whose whole names match a regular expression in RE2's syntax, beside those
        that are named; None to no such topics."""
        self._pattern = pattern
        self._subscription_changed()

    def _subscription_changed(self) -> None:
        if not self._wants_something():
            self._goal = MemberGoal.LEAVE
        elif self.state is _S.OUTSIDE or self.state is _S.LEAVING:
            self._goal = MemberGoal.JOIN
        elif self._goal is MemberGoal.LEAVE:
            self._goal = MemberGoal.NOTHING
        self._is_settled = False
        self._tell_soon()
        self._move()

    def _tell_soon(self) -> None:
        self._is_known = False
        self._heartbeat_due_ms = self._not_before_ms

    def _wants_something(self) -> bool:
        return bool(self._topics) or self._pattern is not None

    @property
    def is_joined(self) -> bool:
        """Whether the coordinator knows that this member has what it has been assigned."""
        return super().is_joined and self._is_known and self._is_settled and not self._target.unnamed

    def leave_call(self) -> Call | None:
        if self._generation == NO_GENERATION and self.state is not _S.JOINING:
            return None
        return Call(self._coordinator.quick_node, self._settings.leave_request(self._member_id))

    def revoked(self) -> None:
        super().revoked()
        self._held = {partition: self._held[partition] for partition in self.owned}
        self._tell_soon()  # Others wait for these partitions.
        self._is_settled = False
        self._move()

    # Out: calls ---------------------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        if self.state is _S.FENCED:
            return []
        self._has_event_now = self._move()
        self._leave_if_wanted()
        calls = self._leaves()
        if self._can_begin() and now_ms >= self._not_before_ms and self._coordinator.want():
            self._pace_joins(now_ms)
            calls.append(self._join(now_ms))
        return calls + self.beats(now_ms)

    def next_event_ms(self, now_ms: int) -> int | None:
        if self._has_event_now:
            self._has_event_now = False  # Once: the consumer may be busy with another call.
            return now_ms
        if self.state is _S.FENCED or not self._coordinator.is_known:
            return None
        times = []
        if self._can_begin():
            times.append(self._not_before_ms)
        if self._beats():
            times.append(self._heartbeat_due_ms)
        return None if not times else max(now_ms, min(times))

    def _beats(self) -> bool:
        return self.state in _MEMBERS and self._generation != NO_GENERATION and self._heartbeat is None

    def _heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        self._telling = self._news()
        return self._settings.heartbeat_request(self._member_id, self._generation, self._telling, self._told)

    def _join(self, now_ms: int) -> Call:
        self._goal = MemberGoal.NOTHING
        self._advance(_E.JOIN_SENT)
        self._telling = self._news()
        request = self._settings.heartbeat_request(self._member_id, JOINS, self._telling, None)
        self._call = Call(COORDINATOR, request, tag=now_ms)
        return self._call

    def _news(self) -> MemberNews:
        return MemberNews(self._topics, self._pattern, frozenset(self._held.values()))

    def _leave_if_wanted(self) -> None:
        """Leave once nothing is owned: for good, or to join anew if there is a subscription again."""
        is_member = self._generation != NO_GENERATION
        is_due = is_member or self._goal is MemberGoal.LEAVE
        if self.state is _S.OUTSIDE and not self._events and is_due:
            self._advance(_E.LEFT)
            self._leave = self.leave_call()
            self._forget()
            if self._goal is MemberGoal.LEAVE:
                self._goal = MemberGoal.NOTHING

    # Towards the target -------------------------------------------------------------------------------

    def _move(self) -> bool:
        """One step: revoke what is not assigned any more, or read what is assigned in addition. What stays is
        not touched. Returns whether that gives the consumer something to do."""
        if self.state is not _S.STABLE or self._events:
            return False
        if self._goal is MemberGoal.LEAVE:
            self._advance(_E.STOP if self._revoke() else _E.LEFT)
        elif not self._is_settled or self._target.has_learnt():
            self._is_settled = True
            self._approach(self._wanted())
        return bool(self._events)

    def _wanted(self) -> dict[TopicPartition, PartitionOfId]:
        """The target without topics to which the member does not subscribe any more. Which topics a pattern
        matches, only the coordinator knows."""
        named = self._target.named()
        if self._pattern is not None:
            return named
        return {partition: each for partition, each in named.items() if partition.topic in self._topics}

    def _approach(self, wanted: Mapping[TopicPartition, PartitionOfId]) -> None:
        gone = tuple(each for each in self.owned if wanted.get(each) != self._held[each])
        if gone:
            self._events.append(RevokePartitions(gone))
            self._advance(_E.RECONCILE)
            return
        added = {partition: each for partition, each in wanted.items() if partition not in self._held}
        if added:
            self._held |= added
            self.owned = tuple(self._held)
            self._events.append(AssignPartitions(tuple(added)))
            self._tell_soon()

    # In: replies --------------------------------------------------------------------------------------

    def _take_reply(self, reply: Reply, now_ms: int) -> None:
        """The answer to the heartbeat that joins."""
        if self.state is not _S.JOINING:
            return  # The membership was given up in the meantime.
        if reply.error is not None:
            self._retry(self._settings.explained(reply.error), now_ms)
            return
        assert isinstance(reply.response, ConsumerGroupHeartbeatResponse)
        if reply.response.error_code:
            self._refused(reply.response, now_ms)
            return
        self._memberships += 1
        self._is_settled = False
        self._heard_at_ms = reply.call.tag
        self._advance(_E.JOINED)
        self._accepted(reply.response)
        # The subscription may have changed meanwhile.
        self._heartbeat_due_ms = now_ms + self._interval_ms if self._is_known else now_ms
        self._move()

    def _take_heartbeat(self, reply: Reply, now_ms: int) -> None:
        _, sent_at_ms = reply.call.tag
        if reply.error is not None:
            self._doubt(self._settings.explained(reply.error), now_ms)
            return
        assert isinstance(reply.response, ConsumerGroupHeartbeatResponse)
        if reply.response.error_code:
            self._refused(reply.response, now_ms)
            return
        self._heard_at_ms = max(self._heard_at_ms, sent_at_ms)
        if reply.response.assignment is not None:
            self._pace_joins(now_ms)  # A coordinator may assign others with every answer.
        self._accepted(reply.response)
        self._move()

    def _accepted(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self._told = self._telling
        self._is_known = self._told == self._news()
        self._generation = response.member_epoch
        # So that several fit into the time after which the member doubts that it is one.
        longest_ms = max(_SHORTEST_INTERVAL_MS, self.session_timeout_ms // 3)
        self._interval_ms = min(max(response.heartbeat_interval_ms, _SHORTEST_INTERVAL_MS), longest_ms)
        if response.assignment is not None:
            self._target.replace(assigned_in(response.assignment))
            self._is_settled = False

    # Errors -------------------------------------------------------------------------------------------

    def _refused(self, response: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        """The coordinator has refused a heartbeat."""
        plain = error_for(response.error_code)
        error = self._settings.explained(plain, response.error_message)
        if plain.code is ErrorCode.FENCED_INSTANCE_ID:
            self._fence(_E.FENCED, self._settings.instance_id, f": {response.error_message or plain.message}")
            self._lose()
        elif self.state is _S.JOINING:
            self._retry(error, now_ms)
        elif plain.code in _MEMBERSHIP_ENDED:
            self._lose()
        else:
            self._doubt(error, now_ms)

    def _doubt(self, error: Exception, now_ms: int) -> None:
        """A heartbeat has failed: the next one tells the coordinator everything again, and its answer has the
        whole assignment."""
        self._told = None
        self._forget_coordinator(error)
        if self._is_passing(error):
            self._heartbeat_due_ms = now_ms + self._settings.retry_backoff_ms
        else:
            self._heartbeat_due_ms = now_ms + self._interval_ms
            self._problem = error

    def _forget_coordinator(self, error: Exception) -> None:
        if not isinstance(error, BrokerError) or error.code in COORDINATOR_MOVED:
            self._coordinator.forget()

    def _is_passing(self, error: Exception) -> bool:
        passes = isinstance(error, BrokerError) and error.code in _PASSES_BY_JOINING
        return passes or super()._is_passing(error)

    def _want_join(self) -> None:
        if self._wants_something():
            self._goal = MemberGoal.JOIN

    def _lose(self) -> None:
        self._forget()
        super()._lose()

    def _forget(self) -> None:
        """The membership ends: the answer to a heartbeat in flight is none to the next one."""
        self._generation = NO_GENERATION
        self._told = self._heartbeat = None
        self._target.replace(frozenset())


_MEMBERSHIP_ENDED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
_PASSES_BY_JOINING = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
