"""What a member of a classic group writes into its requests, and reads from the answer to JoinGroup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clients.groups.assignors import Assignor, MemberPartitions, Members, MemberSubscription
from protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    flat,
    grouped,
)
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class ClassicSettings:
    """What a classic membership needs to know of the settings. All times in ms."""

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
        """Whether partitions are kept while joining: all strategies must allow it, for any may be chosen."""
        return all(assignor.is_cooperative for assignor in self.assignors)

    def assignor(self, name: str) -> Assignor:
        """The assignor that the group has agreed on; it is one of ours."""
        return next(assignor for assignor in self.assignors if assignor.name == name)

    def join_request(
        self,
        topics: Sequence[str],
        member_id: str,
        owned: Sequence[TopicPartition],
        generation: int,
        given: Sequence[TopicPartition],
        given_in: int,
    ) -> JoinGroupRequest:
        """JoinGroup. `owned` is what the member holds on to, `given` what it was last given, and when."""
        protocols = []
        for assignor in self.assignors:
            subscription = Subscription(
                topics=list(topics),
                user_data=assignor.user_data(given, given_in) or None,
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
        self, generation: int, member_id: str, protocol_name: str, shares: MemberPartitions
    ) -> SyncGroupRequest:
        """SyncGroup; only a leader has `shares` to give."""
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(share))
                for member, share in shares.items()
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
    """What the answer to JoinGroup says. Only a leader knows the `members`."""

    protocol_name: str = ""
    is_leader: bool = False
    skips_assignment: bool = False
    members: Members = field(default_factory=dict)

    def topics(self) -> list[str]:
        """All topics that any member wants to read."""
        return sorted({topic for member in self.members.values() for topic in member.topics})


def joined(response: JoinGroupResponse) -> Joined:
    """Raises MalformedMessage where a member's subscription is none."""
    members: Mapping[str, MemberSubscription] = {}
    is_leader = response.leader == response.member_id
    if is_leader:
        members = {
            row.member_id: _subscription(row.metadata, row.group_instance_id) for row in response.members
        }
    return Joined(response.protocol_name or "", is_leader, response.skip_assignment, members)


def _subscription(metadata: bytes, instance_id: str | None) -> MemberSubscription:
    told = decode_subscription(metadata)
    return MemberSubscription(
        tuple(told.topics),
        tuple(TopicPartition(*each) for each in flat(told.owned_partitions)),
        told.generation_id,
        bytes(told.user_data or b""),
        instance_id,
    )
