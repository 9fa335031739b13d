"""The requests of a classic group member, and the answer to JoinGroup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_log.clients.groups.assignors import Assignor, MemberPartitions, Members, MemberSubscription
from holdfast_log.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    flat,
    grouped,
)
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest
from holdfast_log.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from holdfast_log.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast_log.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class ClassicSettings:
    """The settings of a classic membership. All times in ms."""

    group_id: str
    instance_id: str | None
    rack: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    assignors: tuple[Assignor, ...]

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are kept while joining: only if all assignors allow it."""
        return all(assignor.is_cooperative for assignor in self.assignors)

    def assignor(self, name: str) -> Assignor:
        """The assignor that the group has agreed on."""
        return next(assignor for assignor in self.assignors if assignor.name == name)

    def join_request(
        self,
        topics: Sequence[str],
        member_id: str,
        owned: Sequence[TopicPartition],
        generation: int,
        assigned: Sequence[TopicPartition],
        assigned_in: int,
    ) -> JoinGroupRequest:
        """JoinGroup. The member keeps `owned`; `assigned` is its assignment in generation `assigned_in`."""
        protocols = []
        for assignor in self.assignors:
            subscription = Subscription(
                topics=list(topics),
                user_data=assignor.user_data(assigned, assigned_in) or None,
                owned_partitions=grouped(sorted(owned)),
                generation_id=generation,
                rack_id=self.rack,
            )
            protocols.append(
                JoinGroupRequestProtocol(name=assignor.name, metadata=encode_subscription(subscription))
            )
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=protocols,
        )

    def sync_request(
        self, generation: int, member_id: str, protocol_name: str, assignments: MemberPartitions
    ) -> SyncGroupRequest:
        """SyncGroup; only a leader's has `assignments`."""
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
                for member, partitions in assignments.items()
            ],
        )

    def heartbeat_request(self, generation: int, member_id: str) -> HeartbeatRequest:
        """Heartbeat."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self.instance_id,
        )

    def leave_request(self, member_id: str) -> LeaveGroupRequest:
        """LeaveGroup."""
        return LeaveGroupRequest(
            group_id=self.group_id,
            member_id=member_id,
            members=[MemberIdentity(member_id=member_id, group_instance_id=self.instance_id)],
        )


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to JoinGroup. Only a leader gets the `members`."""

    protocol_name: str = ""
    is_leader: bool = False
    skips_assignment: bool = False
    members: Members = field(default_factory=dict)

    def topics(self) -> list[str]:
        """All topics that any member subscribes to, sorted."""
        return sorted({topic for member in self.members.values() for topic in member.topics})


def joined(response: JoinGroupResponse) -> Joined:
    """The contents of a response. Raises MalformedMessage if a subscription cannot be decoded."""
    members: Mapping[str, MemberSubscription] = {}
    is_leader = response.leader == response.member_id
    if is_leader:
        members = {
            row.member_id: _subscription(row.metadata, row.group_instance_id) for row in response.members
        }
    return Joined(response.protocol_name or "", is_leader, response.skip_assignment, members)


def _subscription(metadata: bytes, instance_id: str | None) -> MemberSubscription:
    decoded = decode_subscription(metadata)
    return MemberSubscription(
        tuple(decoded.topics),
        tuple(TopicPartition(*each) for each in flat(decoded.owned_partitions)),
        decoded.generation_id,
        bytes(decoded.user_data or b""),
        instance_id,
    )
