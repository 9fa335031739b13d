"""The requests of a managed group member (client rewrite)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.group_membership import (
    ConsumerHeartbeatRequest,
    CreateGroupRequest,
    ListConsumerGroupsRequest,
    NewOffset,
    RegisterConsumerRequest,
    RewindConsumerRequest,
)
from holdfast_log.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast_log.protocol.topic_partition import TopicPartition

_NO_SHORTER_SESSION = -1


@dataclass(frozen=True, slots=True)
class ManagedSettings:
    """The settings of a managed membership. All times in ms.

    `ephemeral` and `assignment_strategy` apply if this consumer creates the group.
    """

    group_id: str
    consumer_id: str
    is_static: bool
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    ephemeral: bool = False
    assignment_strategy: str = ""
    single_reader: bool = False

    def list_request(self) -> ListConsumerGroupsRequest:
        """The client rewrite's ListGroups, whose answer names the group's controller."""
        return ListConsumerGroupsRequest(consumer_groups=[self.group_id])

    def create_request(
        self, topics: Sequence[str], session_timeout_ms: int, *, single_reader: bool
    ) -> CreateGroupRequest:
        """CreateGroup: creates the group, or adds topics to it."""
        return CreateGroupRequest(
            consumer_group=self.group_id,
            session_timeout=session_timeout_ms,
            topics=list(topics),
            ephemeral=self.ephemeral,
            assignment_strategy=self.assignment_strategy,
            single_reader=single_reader,
        )

    def register_request(self) -> RegisterConsumerRequest:
        """RegisterConsumer."""
        return RegisterConsumerRequest(consumer_group=self.group_id, consumer_id=self.consumer_id)

    def heartbeat_request(self, generation: int, group_session_ms: int) -> ConsumerHeartbeatRequest:
        """The client rewrite's Heartbeat; asks for our session timeout if shorter than the group's."""
        is_shorter = self.session_timeout_ms < group_session_ms
        return ConsumerHeartbeatRequest(
            session_timeout=self.session_timeout_ms if is_shorter else _NO_SHORTER_SESSION,
            consumer_group=self.group_id,
            consumer_id=self.consumer_id,
            controller_generation=generation,
            rebalance_timeout=self.rebalance_timeout_ms,
        )

    def rewind_request(self, offsets: Mapping[TopicPartition, int], generation: int) -> RewindConsumerRequest:
        """RewindConsumer, as a member of the group."""
        return RewindConsumerRequest(
            consumer_group=self.group_id,
            new_offsets=new_offsets(offsets),
            consumer_id=self.consumer_id,
            controller_generation=generation,
        )

    def leave_request(self) -> LeaveGroupRequest:
        """LeaveGroup, which the coordinator understands for both kinds of groups."""
        return LeaveGroupRequest(
            group_id=self.group_id,
            member_id=self.consumer_id,
            members=[MemberIdentity(member_id=self.consumer_id)],
        )

    def readers_error(self) -> BrokerError:
        """The error of joining a group without single readers, when the properties require them."""
        return error_for(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {self.group_id} exists without single readers, but group.single.reader=true requires "
            "them: delete the group once it has no members, or use another group.id",
        )

    def why_not_created(self, error: BrokerError) -> str:
        """The error message for a CreateGroup that failed with `error`."""
        group_id = self.group_id
        if error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return (
                f"group {group_id} exists with another protocol, session timeout, strategy, ephemeral flag "
                "or number of readers than this consumer's properties require; make these agree: "
                "group.protocol, session.timeout.ms, group.remote.assignor, group.ephemeral, "
                "group.single.reader"
            )
        return f"group {group_id} cannot be created: {error.message}"


def new_offsets(offsets: Mapping[TopicPartition, int]) -> list[NewOffset]:
    """The offsets as rows of RewindConsumer."""
    return [
        NewOffset(topic=topic, partition=number, offset=offset) for (topic, number), offset in offsets.items()
    ]


@dataclass(slots=True, eq=False)
class RewindRequested:
    """A rewind in progress; `errors` has the partitions that the controller refused."""

    offsets: dict[TopicPartition, int]
    found: dict[TopicPartition, int] = field(default_factory=dict)
    errors: dict[TopicPartition, BrokerError] = field(default_factory=dict)
    is_done: bool = False
    last_error: Exception | None = None
    """Why the last attempt failed."""
    not_before_ms: int = 0
