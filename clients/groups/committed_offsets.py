"""Commits and fetches a group's offsets at its coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import CommitFailedError, is_retriable
from holdfast_log.clients.feedback.events import CommitFailed, Events
from holdfast_log.clients.groups.coordinator import COORDINATOR_MOVED, GroupCoordinator
from holdfast_log.clients.groups.membership import GroupIdentity, OwnerTokens
from holdfast_log.clients.message import OffsetAndMetadata, by_topic
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from holdfast_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_PLACE_LOST = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
)
_LEARNT_SOON = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
"""Refusals of a member whose next heartbeat shows in which epoch it is, or that it is none (KIP-848)."""


def commit_request(
    identity: GroupIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    tokens: OwnerTokens | None = None,
) -> OffsetCommitRequest:
    """The request that stores `offsets`. `tokens` are those of a consumer that owns its partitions."""
    incarnations = {} if tokens is None else tokens.incarnations
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=stored.offset,
                    committed_leader_epoch=stored.leader_epoch,
                    committed_metadata=stored.metadata,
                    owner_token=incarnations.get(TopicPartition(topic, number), -1),
                )
                for number in numbers
                for stored in (offsets[TopicPartition(topic, number)],)
            ],
        )
        for topic, numbers in by_topic(offsets).items()
    ]
    return OffsetCommitRequest(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=topics,
        owner_group=None if tokens is None else tokens.group,
    )


def committed_in(response: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """The error code of each partition."""
    return {
        TopicPartition(topic.name, row.partition_index): row.error_code
        for topic in response.topics
        for row in topic.partitions
    }


def fetch_request(
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    is_stable: bool = False,
    member: GroupIdentity | None = None,
) -> OffsetFetchRequest:
    """The request for a group's committed offsets, of these partitions or of all. `is_stable`: one that an
    open transaction may replace is answered UNSTABLE_OFFSET_COMMIT (KIP-447). `member`: the member of a
    consumer group that asks, which is refused in another epoch than its own (KIP-848)."""
    topics = None if partitions is None else by_topic(partitions)
    return OffsetFetchRequest(
        group_id=group_id,
        topics=(
            None
            if topics is None
            else [OffsetFetchRequestTopic(name=t, partition_indexes=n) for t, n in topics.items()]
        ),
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                member_id=None if member is None else member.member_id,
                member_epoch=-1 if member is None else member.generation,
                topics=(
                    None
                    if topics is None
                    else [OffsetFetchRequestTopics(name=t, partition_indexes=n) for t, n in topics.items()]
                ),
            )
        ],
        require_stable=is_stable,
    )


def fetched_in(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed offsets in a response. Raises BrokerError for the first error in it."""
    answer = response.groups[0] if response.groups else response
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    if answer.error_code:
        raise error_for(answer.error_code)
    for topic in answer.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                plain = error_for(row.error_code)
                raise error_for(row.error_code, f"{partition}: {plain.message}")
            if row.committed_offset >= 0:
                found[partition] = OffsetAndMetadata(
                    row.committed_offset, row.metadata or "", row.committed_leader_epoch
                )
    return found


@dataclass(slots=True, eq=False)
class OffsetCommit:
    """A commit in progress, under the identity of its start, or under what `continued` makes of it: any other
    generation must not repeat it."""

    identity: GroupIdentity
    offsets: dict[TopicPartition, OffsetAndMetadata]
    """The offsets that the coordinator has not accepted yet."""
    continued: Callable[[GroupIdentity], GroupIdentity | None]
    tokens: OwnerTokens | None = None
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    is_done: bool = False
    error: Exception | None = None
    """Why it failed, or while it is in progress, why the last attempt failed."""
    call: Call | None = None
    not_before_ms: int = 0
    failures: int = 0

    def request(self) -> Request[Any]:
        self.identity = self.continued(self.identity) or self.identity
        return commit_request(self.identity, self.offsets, self.tokens)

    def is_passing(self, error: Exception) -> bool:
        """Whether another attempt may succeed."""
        is_stale = isinstance(error, BrokerError) and error.code is ErrorCode.STALE_MEMBER_EPOCH
        return is_stale or is_retriable(error)

    def take(self, response: Response) -> None:
        """Process the response. Raises BrokerError for the first error in it."""
        assert isinstance(response, OffsetCommitResponse)
        for partition, code in committed_in(response).items():
            if code == ErrorCode.NONE and partition in self.offsets:
                self.committed[partition] = self.offsets.pop(partition)
        may_go_on = self.continued(self.identity) is not None
        for partition, code in committed_in(response).items():
            if code in _PLACE_LOST and not (may_go_on and code == ErrorCode.STALE_MEMBER_EPOCH):
                raise CommitFailedError(
                    f"group {self.identity.group_id} was rebalanced after poll() returned these records; "
                    f"their new owner will process them again ({error_for(code)})"
                )
            if code:
                plain = error_for(code)
                raise error_for(code, f"{partition}: {plain.message}")


@dataclass(slots=True, eq=False)
class OffsetFetch:
    """A fetch of committed offsets in progress; `found` has the result."""

    group_id: str
    partitions: tuple[TopicPartition, ...]
    is_stable: bool = False
    """Whether to wait for transactions that may replace an offset."""
    member: Callable[[], GroupIdentity | None] = lambda: None
    """The member of a consumer group that asks."""
    found: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    is_done: bool = False
    error: Exception | None = None
    call: Call | None = None
    not_before_ms: int = 0
    failures: int = 0

    def request(self) -> Request[Any]:
        return fetch_request(self.group_id, self.partitions, is_stable=self.is_stable, member=self.member())

    def is_passing(self, error: Exception) -> bool:
        """Whether another attempt may succeed, under the identity that the member then has."""
        is_learnt_soon = isinstance(error, BrokerError) and error.code in _LEARNT_SOON
        return is_learnt_soon or is_retriable(error)

    def take(self, response: Response) -> None:
        """Process the response. Raises BrokerError for the first error in it."""
        assert isinstance(response, OffsetFetchResponse)
        self.found = fetched_in(response)


class CommittedOffsets:
    """Commits and fetches of offsets in progress. Retriable errors are retried until the caller withdraws."""

    def __init__(self, coordinator: GroupCoordinator, events: Events) -> None:
        self.commits = 0
        """Number of commits that succeeded."""
        self.commits_failed = 0
        self._events = events
        self._coordinator = coordinator
        self._open: list[OffsetCommit | OffsetFetch] = []

    def submit(self, task: OffsetCommit | OffsetFetch) -> None:
        """Begin a task; its `is_done` is set at its end."""
        self._open.append(task)
        self._coordinator.want()

    def withdraw(self, task: OffsetCommit | OffsetFetch) -> None:
        """Stop retrying a task. A request in flight may still be carried out."""
        if task in self._open:
            self._open.remove(task)

    def calls(self, now_ms: int) -> list[Call]:
        """The requests to send now."""
        calls = []
        if self._open and self._coordinator.want():
            for task in [*self._open]:
                if task.call is not None or task.not_before_ms > now_ms:
                    continue
                try:
                    task.call = Call(self._coordinator.quick_node, task.request())
                except Exception as error:  # Only this task fails, not every later turn of the loop.
                    self._end(task, error)
                else:
                    calls.append(task.call)
        return calls

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply; returns whether it answered one of these calls."""
        task = next((task for task in self._open if task.call is reply.call), None)
        if task is None:
            return False
        task.call = None
        try:
            if reply.error is not None:
                raise reply.error
            assert reply.response is not None
            task.take(reply.response)
        except Exception as error:
            self._failed(task, error, now_ms)
        else:
            self._end(task, None)
        return True

    def _failed(self, task: OffsetCommit | OffsetFetch, error: Exception, now_ms: int) -> None:
        if not task.is_passing(error):
            self._end(task, error)
            return
        if not isinstance(error, BrokerError) or error.code in COORDINATOR_MOVED:
            self._coordinator.forget()
        task.error = error
        task.failures += 1
        task.not_before_ms = now_ms + self._coordinator.backoff.after(task.failures)

    def _end(self, task: OffsetCommit | OffsetFetch, error: Exception | None) -> None:
        task.is_done = True
        task.error = error
        self._open.remove(task)
        if not isinstance(task, OffsetCommit):
            return
        if error is None:
            self.commits += 1
        else:
            self.commits_failed += 1
            self._events.note(CommitFailed(task.identity.group_id, tuple(task.offsets), error))

    def next_event_ms(self, now_ms: int) -> int | None:
        """When the next attempt is due; None if none is."""
        waiting = [task.not_before_ms for task in self._open if task.call is None]
        if not waiting or not self._coordinator.is_known:
            return None
        return max(now_ms, min(waiting))
