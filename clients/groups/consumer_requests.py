"""The heartbeats of a member of a consumer group (KIP-848), and what they tell the coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from holdfast_log.clients.errors import UnsupportedRequestError
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from holdfast_log.protocol.wire import UnsupportedField

JOINS = 0
_LEAVES = -1
_LEAVES_FOR_NOW = -2


class PartitionOfId(NamedTuple):
    """A partition of a topic named by its id: one that is deleted and created again is another topic."""

    topic_id: UUID
    number: int


@dataclass(frozen=True, slots=True)
class MemberNews:
    """What a member tells the coordinator of itself. Each heartbeat repeats what has changed since."""

    topics: tuple[str, ...]
    pattern: str | None
    owned: frozenset[PartitionOfId]


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """The settings of a membership in a consumer group. All times in ms.

    `session_timeout_ms` is how long the member believes itself to be one without an answer: the coordinator
    has a time of its own. So it has for `heartbeat_interval_ms`, which applies until its first answer.
    """

    group_id: str
    instance_id: str | None
    rack: str | None
    assignor: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int

    def heartbeat_request(
        self, member_id: str, epoch: int, news: MemberNews, told: MemberNews | None
    ) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat with what the coordinator does not know: all, if nothing is certain to have been
        `told`, as when the last answer is missing."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        if told is None:
            request.rack_id = self.rack
            request.rebalance_timeout_ms = self.rebalance_timeout_ms
            request.server_assignor = self.assignor
        if told is None or told.topics != news.topics:
            request.subscribed_topic_names = [*news.topics]
        if told is None or told.pattern != news.pattern:
            # Empty takes an expression back; None, as the first one, says that there is none.
            request.subscribed_topic_regex = news.pattern if told is None else news.pattern or ""
        if told is None or told.owned != news.owned:
            request.topic_partitions = _rows(news.owned)
        return request

    def leave_request(self, member_id: str) -> ConsumerGroupHeartbeatRequest:
        """The last heartbeat. A static member keeps its partitions for a session, for when it comes back."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=_LEAVES if self.instance_id is None else _LEAVES_FOR_NOW,
            instance_id=self.instance_id,
        )

    def explained(self, error: Exception, message: str | None = None) -> Exception:
        """Why a heartbeat was refused, with what can be done about it. `message` is the coordinator's."""
        group_id = self.group_id
        if isinstance(error, UnsupportedRequestError):
            return UnsupportedRequestError(
                f"group {group_id}: {error}. group.protocol=consumer needs brokers that serve consumer "
                "groups (KIP-848), with group.coordinator.rebalance.protocols=classic,consumer where they "
                "have that setting. Until then set group.protocol=classic, in all members"
            )
        if isinstance(error, UnsupportedField):
            return UnsupportedRequestError(
                f"group {group_id}: the coordinator matches no regular expressions, because it does not know "
                "version 1 of ConsumerGroupHeartbeat: call add_topic() for each topic"
            )
        if not isinstance(error, BrokerError):
            return error
        advice = _ADVICE.get(error.code)
        said = message or error.message
        return error_for(error.code, f"group {group_id}: {said}" + (f"; {advice}" if advice else ""))


_ADVICE = {
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "it may have members of another protocol that cannot become a group of this one (managed; classic "
        "where brokers have group.consumer.migration.policy=disabled): set the same group.protocol in all "
        "members"
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "give each consumer a group.instance.id of its own; one that was killed is forgotten when its "
        "session ends, and until then poll() tries again"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: (
        "set group.remote.assignor to one of the brokers' group.consumer.assignors, or leave it out"
    ),
    ErrorCode.UNSUPPORTED_VERSION: "the broker serves no consumer groups: set group.protocol=classic",
}


def assigned_in(assignment: HeartbeatAssignment) -> frozenset[PartitionOfId]:
    """The partitions that an answer assigns."""
    return frozenset(
        PartitionOfId(topic.topic_id, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def _rows(partitions: frozenset[PartitionOfId]) -> list[HeartbeatTopicPartitions]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(number)
    return [HeartbeatTopicPartitions(topic_id=each, partitions=topics[each]) for each in topics]
