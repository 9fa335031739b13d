"""Membership by Kafka's classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A rebalance goes so: with eager assignors everything owned is released first (the consumer commits it), with
cooperative ones nothing; then JoinGroup, which is answered when all members have sent theirs; the leader
shares out the partitions; SyncGroup gives everybody his own. A cooperative member then releases what it has
lost and joins once more, so that the new owner gets it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

from clients.connection.connection import COORDINATOR
from clients.connection.link import Call, Reply
from clients.connection.metadata import Metadata
from clients.errors import is_retriable
from clients.groups.classic_requests import ClassicSettings, Joined, joined
from clients.groups.coordinator import COORDINATOR_MOVED, GroupCoordinator
from clients.groups.member import Member
from clients.groups.membership import NO_GENERATION, AssignPartitions, GroupIdentity, RevokePartitions
from protocol.consumer_protocol import decode_assignment
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.heartbeat import HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.schema import MalformedMessage
from protocol.topic_partition import TopicPartition

_TRANSIT_MS = 5_000
"""Added to what the other members may take, for the answer to come in time."""
_SHARING_MS = 5_000
"""How long a leader waits to know the topics of all members. Those that it does not know then are shared
out later."""


class ClassicState(enum.Enum):
    """Where a member stands in the protocol."""

    OUTSIDE = "outside"
    """It wants nothing of the group, or has to join."""
    RELEASING = "releasing"
    """It has to join or to leave, and the consumer is letting partitions go first."""
    JOINING = "joining"
    SHARING = "sharing"
    """It leads, and waits to know the topics that it has to share out."""
    SYNCING = "syncing"
    STABLE = "stable"


class ClassicMembership(Member):
    """A member of a classic group, as a machine; see `clients.groups.membership.GroupMembership`."""

    def __init__(self, settings: ClassicSettings, coordinator: GroupCoordinator, metadata: Metadata) -> None:
        super().__init__()
        self.state = ClassicState.OUTSIDE
        self._settings = settings
        self._coordinator = coordinator
        self._metadata = metadata
        self._joined_topics: tuple[str, ...] = ()
        self._member_id = ""
        self._given: tuple[TopicPartition, ...] = ()
        self._given_in = NO_GENERATION
        self._joined = Joined()
        self._must_join = False
        self._sharing_until_ms = 0
        self._seen_update = -1
        self._watched: Mapping[str, int] | None = None
        """The partition counts that this leader has shared out; others ask for a rebalance."""

    # What others ask ----------------------------------------------------------------------------------

    @property
    def identity(self) -> GroupIdentity:
        group_id = self._settings.group_id
        if self._generation == NO_GENERATION:
            return GroupIdentity(group_id)
        return GroupIdentity(group_id, self._generation, self._member_id, self._settings.instance_id)

    @property
    def is_joined(self) -> bool:
        return self.state is ClassicState.STABLE and not self._must_join and not self._events

    @property
    def session_timeout_ms(self) -> int:
        return self._settings.session_timeout_ms

    def subscribe(self, topics: Collection[str]) -> None:
        self._topics = tuple(sorted(topics))
        for topic in self._topics:
            self._metadata.want(topic)
        if self._topics:
            self._must_leave = False
            self._must_join = self._must_join or self._topics != self._joined_topics
        else:
            self._must_join = False
            self._must_leave = True
            self._joined_topics = ()

    def revoked(self) -> None:
        super().revoked()
        if self.state is ClassicState.RELEASING:
            self.state = ClassicState.OUTSIDE

    def leave_call(self) -> Call | None:
        member_id, self._member_id = self._member_id, ""
        if not member_id or self._settings.instance_id is not None:
            self._member_id = (
                member_id  # A static member keeps its place until its session is over (KIP-345).
            )
            return None
        return Call(self._coordinator.quick_node, self._settings.leave_request(member_id))

    # Out: calls ---------------------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        if self._fenced is not None:
            return []
        if self.state is ClassicState.STABLE and self._has_topic_changed():
            self._must_join = True
        if self.state is ClassicState.STABLE and (self._must_join or self._must_leave) and not self._events:
            self._begin_rebalance()
        if self.state is ClassicState.OUTSIDE and self._must_leave and not self._events:
            self._must_leave = False
            self._farewell = self.leave_call()
            self._generation = NO_GENERATION
        calls = self._farewells()
        if self._can_join() and now_ms >= self._not_before_ms and self._coordinator.want():
            calls.append(self._join())
        if self.state is ClassicState.SHARING and (self._knows_topics() or now_ms >= self._sharing_until_ms):
            calls.append(self._share(now_ms))
        if self._beats() and now_ms >= self._heartbeat_due_ms and self._coordinator.want():
            calls.append(self._beat(now_ms))
        return calls

    def next_event_ms(self, now_ms: int) -> int | None:
        if self._fenced is not None or not self._coordinator.is_known:
            return None
        times = []
        if self._can_join():
            times.append(self._not_before_ms)
        if self.state is ClassicState.SHARING:
            times.append(self._sharing_until_ms)
        if self._beats():
            times.append(self._heartbeat_due_ms)
        return None if not times else max(now_ms, min(times))

    def _can_join(self) -> bool:
        return (
            self.state is ClassicState.OUTSIDE and self._must_join and not self._events and self._call is None
        )

    def _beats(self) -> bool:
        """Whether there is a session to keep alive, and no answer of ours that others are waited for."""
        is_member = self.state in (ClassicState.STABLE, ClassicState.RELEASING, ClassicState.SHARING)
        return is_member and self._generation != NO_GENERATION and self._heartbeat is None

    def _beat(self, now_ms: int) -> Call:
        self._heartbeat_due_ms = now_ms + self._settings.heartbeat_interval_ms
        request = self._settings.heartbeat_request(self._generation, self._member_id)
        timeout_ms = min(self._settings.request_timeout_ms, self._settings.session_timeout_ms)
        self._heartbeat = Call(COORDINATOR, request, timeout_ms, tag=(self._generation, now_ms))
        return self._heartbeat

    def _begin_rebalance(self) -> None:
        """Let go of what may not be kept while joining."""
        kept = self._topics if self._settings.is_cooperative else ()
        self.state = ClassicState.RELEASING if self._release(kept) else ClassicState.OUTSIDE

    def _join(self) -> Call:
        request = self._settings.join_request(
            self._topics, self._member_id, self.owned, self._generation, self._given, self._given_in
        )
        self._joined_topics = self._topics
        self._must_join = False
        self.state = ClassicState.JOINING
        return self._send(request)

    def _send(self, request: JoinGroupRequest | SyncGroupRequest, sent_at_ms: int = 0) -> Call:
        """A request whose answer waits for the other members."""
        timeout_ms = max(self._settings.request_timeout_ms, self._settings.rebalance_timeout_ms + _TRANSIT_MS)
        self._call = Call(COORDINATOR, request, timeout_ms, tag=sent_at_ms)
        self._coordinator.is_line_taken = True
        return self._call

    # The leader ---------------------------------------------------------------------------------------

    def _knows_topics(self) -> bool:
        metadata = self._metadata
        return all(topic in metadata.topics or topic in metadata.errors for topic in self._joined.topics())

    def _share(self, now_ms: int) -> Call:
        """Ask for our share; the leader gives everybody theirs with that, of the topics that it knows."""
        shares = {}
        if self._joined.is_leader:
            self._watched = self._counts()
            known = {topic: count for topic, count in self._watched.items() if count}
            if not self._joined.skips_assignment:
                assignor = self._settings.assignor(self._joined.protocol_name)
                shares = assignor.assign(known, self._joined.members)
        self.state = ClassicState.SYNCING
        request = self._settings.sync_request(
            self._generation, self._member_id, self._joined.protocol_name, shares
        )
        return self._send(request, now_ms)

    def _counts(self) -> dict[str, int]:
        topics = self._metadata.topics
        return {
            topic: len(topics[topic].partitions) if topic in topics else 0 for topic in self._joined.topics()
        }

    def _has_topic_changed(self) -> bool:
        """Whether there is something else to share out than what this leader did share out."""
        if self._watched is None or self._seen_update == self._metadata.update_count:
            return False
        self._seen_update = self._metadata.update_count
        return self._watched != self._counts()

    # In: replies --------------------------------------------------------------------------------------

    def handle(self, reply: Reply, now_ms: int) -> bool:
        if reply.call is self._heartbeat:
            self._heartbeat = None
            self._take_heartbeat(reply, now_ms)
            return True
        if reply.call is not self._call:
            return False
        self._call = None
        self._coordinator.is_line_taken = False
        if reply.error is not None:
            self._retry(reply.error, now_ms)
        elif isinstance(reply.response, JoinGroupResponse):
            self._take_join(reply.response, now_ms)
        elif isinstance(reply.response, SyncGroupResponse):
            self._take_sync(reply.response, reply.call.tag, now_ms)
        return True

    def _take_join(self, response: JoinGroupResponse, now_ms: int) -> None:
        if self.state is not ClassicState.JOINING:
            return  # Given up meanwhile.
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            self.state = ClassicState.OUTSIDE
            self._must_join = True
            return
        if response.error_code:
            self._refused(error_for(response.error_code), now_ms)
            return
        self._member_id = response.member_id
        self._generation = response.generation_id
        self._heartbeat_due_ms = now_ms + self._settings.heartbeat_interval_ms
        self._watched = None
        self.state = ClassicState.SHARING
        self._sharing_until_ms = now_ms + _SHARING_MS
        try:
            self._joined = joined(response)
        except MalformedMessage as error:
            self._retry(error, now_ms)
            return
        for topic in self._joined.topics():
            self._metadata.want(topic)

    def _take_sync(self, response: SyncGroupResponse, sent_at_ms: int, now_ms: int) -> None:
        if self.state is not ClassicState.SYNCING:
            return  # Given up meanwhile.
        if response.error_code:
            self._refused(error_for(response.error_code), now_ms)
            return
        try:
            share = tuple(TopicPartition(*each) for each in decode_assignment(response.assignment))
        except MalformedMessage as error:
            self._retry(error, now_ms)
            return
        self.state = ClassicState.STABLE
        self._heard_at_ms = sent_at_ms  # The session may be as old as that.
        self._given, self._given_in = share, self._generation
        gone = tuple(partition for partition in self.owned if partition not in share)
        added = tuple(partition for partition in share if partition not in self.owned)
        self.owned = (*self.owned, *added)
        if gone:
            self._events.append(RevokePartitions(gone))
            self._must_join = True  # So that those who are to have them get them.
        self._events.append(AssignPartitions(added))

    def _take_heartbeat(self, reply: Reply, now_ms: int) -> None:
        generation, sent_at_ms = reply.call.tag
        if reply.error is not None:
            self._coordinator.forget()
            self._heartbeat_due_ms = now_ms + self._settings.retry_backoff_ms
            return
        assert isinstance(reply.response, HeartbeatResponse)
        code = reply.response.error_code
        if code == ErrorCode.NONE:
            self._heard_at_ms = max(self._heard_at_ms, sent_at_ms)
            return
        error = error_for(code)
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            self._refused(error, now_ms)
        elif error.retriable:
            self._look_again(error)
            self._heartbeat_due_ms = now_ms + self._settings.retry_backoff_ms
        elif self.state is not ClassicState.STABLE or generation != self._generation:
            pass  # We are on our way already, and the answer to JoinGroup will say the rest.
        elif error.code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
        else:
            self._refused(error, now_ms)

    # What goes wrong ----------------------------------------------------------------------------------

    def _refused(self, error: BrokerError, now_ms: int) -> None:
        """The coordinator has declined a request of ours."""
        match error.code:
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
                self._lose()
            case ErrorCode.ILLEGAL_GENERATION:
                self._lose()
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self.state = ClassicState.OUTSIDE
                self._must_join = True
            case ErrorCode.FENCED_INSTANCE_ID:
                group_id, instance_id = self._settings.group_id, self._settings.instance_id
                self._fenced = error_for(
                    error.code, f"another consumer of group {group_id} is {instance_id} now: {error.message}"
                )
                self._lose()
            case _:
                self._retry(error, now_ms)

    def _retry(self, error: Exception, now_ms: int) -> None:
        """Join again after a pause; what will not pass by itself is told to the application too."""
        self._look_again(error)
        self._not_before_ms = now_ms + self._settings.retry_backoff_ms
        self.state = ClassicState.OUTSIDE
        self._must_join = bool(self._topics)
        if not is_retriable(error):
            self._problem = error

    def _look_again(self, error: Exception) -> None:
        if not isinstance(error, BrokerError) or error.code in COORDINATOR_MOVED:
            self._coordinator.forget()

    def _lose(self) -> None:
        """Our place has passed: what we own is, or will be, somebody else's."""
        self._lose_all()
        self._watched = None
        self.state = ClassicState.OUTSIDE
        self._must_join = bool(self._topics)
