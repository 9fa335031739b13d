"""The commits of a consumer in a group: those that the application asks for, and the automatic ones.

Sans-IO: methods that wait for the coordinator take `turn`, which runs the consumer's event loop once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from holdfast_log.clients.errors import CommitFailedError, RequestTimeoutError, with_cause
from holdfast_log.clients.feedback.events import Events
from holdfast_log.clients.fetching.fetcher import Fetcher
from holdfast_log.clients.fetching.record_buffer import RecordBuffer
from holdfast_log.clients.groups.committed_offsets import CommittedOffsets, OffsetCommit, OffsetFetch
from holdfast_log.clients.groups.coordinator import GroupCoordinator
from holdfast_log.clients.groups.heartbeats import Heartbeats
from holdfast_log.clients.groups.membership import (
    NO_GENERATION,
    GroupIdentity,
    GroupMembership,
    OwnerTokens,
)
from holdfast_log.clients.message import OffsetAndMetadata
from holdfast_log.protocol.topic_partition import TopicPartition

Turn: TypeAlias = Callable[[int], None]
"""Runs the consumer's event loop once; takes the longest time to wait for a reply, in ms."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The settings of a group session. All times in ms."""

    group_id: str
    is_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    is_committed: bool = False
    """isolation.level=read_committed"""


class GroupCommits:
    """What is committed, and what is about to be. `is_subscribed` tells the topics that the group divides."""

    def __init__(
        self,
        settings: SessionSettings,
        now_ms: Callable[[], int],
        buffer: RecordBuffer,
        fetcher: Fetcher,
        coordinator: GroupCoordinator,
        membership: GroupMembership,
        heartbeats: Heartbeats,
        events: Events,
        is_subscribed: Callable[[str], bool],
        tokens: OwnerTokens | None = None,
    ) -> None:
        self.last_error: Exception | None = None
        """Why the last automatic commit failed; None after one that succeeded."""
        self.offsets = CommittedOffsets(coordinator, events)
        self.known: dict[TopicPartition, int] = {}
        """The last committed offset known for each partition; an automatic commit leaves these out."""
        self.has_joined = False
        """Whether the group has ever assigned partitions to this consumer."""
        self._settings = settings
        self._now_ms = now_ms
        self._buffer = buffer
        self._fetcher = fetcher
        self._coordinator = coordinator
        self._membership = membership
        self._heartbeats = heartbeats
        self._is_subscribed = is_subscribed
        self._tokens = tokens
        self._auto_commit: OffsetCommit | None = None
        self._auto_commit_due_ms = now_ms() + settings.auto_commit_interval_ms

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int, turn: Turn
    ) -> None:
        """Commit `offsets` and wait for the coordinator's answer.

        Raises CommitFailedError, RequestTimeoutError or the coordinator's error.
        """
        if not offsets:
            return
        self._check_membership(offsets)
        self._withdraw_auto_commit()
        deadline_ms = self._now_ms() + timeout_ms
        commit = self._new_commit(dict(offsets))
        while True:
            self.offsets.submit(commit)
            try:
                self.wait_for(commit, deadline_ms - self._now_ms(), turn)
                break
            except CommitFailedError:
                if not self._has_kept(commit):
                    self._check_membership(commit.offsets)  # It may know better why.
                    raise
                commit = self._new_commit(commit.offsets)
        for partition, stored in offsets.items():
            self.known[partition] = stored.offset

    def _check_membership(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise CommitFailedError for partitions of a membership that has ended.

        The coordinator cannot judge that: to a group without members it lets anybody commit.
        """
        has_ended = self.has_joined and self._membership.identity.generation == NO_GENERATION
        if not has_ended or not any(self._is_subscribed(partition.topic) for partition in partitions):
            return
        group_id = self._settings.group_id
        if not self._heartbeats.has_left_late:
            raise CommitFailedError(
                f"group {group_id} was rebalanced without this consumer, and its partitions may have other "
                "owners, which process the records again; the next poll() joins the group again"
            )
        raise CommitFailedError(
            f"this consumer has left group {group_id}, because poll() was not called for more than "
            f"max.poll.interval.ms={self._heartbeats.max_poll_interval_ms}; other members may have its "
            "partitions and process the records again. The next poll() joins the group again: poll fewer "
            "records at a time (max.poll.records), or raise max.poll.interval.ms"
        )

    @property
    def identity(self) -> GroupIdentity:
        """The identity under which offsets are committed now, with what proves the ownership."""
        identity = self._membership.identity
        if self._tokens is None:
            return identity
        tokens = tuple(self._tokens.incarnations.items())
        return replace(identity, owner_group=self._tokens.group, tokens=tokens)

    def _new_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> OffsetCommit:
        return OffsetCommit(
            self._membership.identity, offsets, self._membership.continued, tokens=self._tokens
        )

    def _has_kept(self, commit: OffsetCommit) -> bool:
        """Whether the commit's partitions are still this member's, in a later generation than the commit's.

        A cooperative member keeps its partitions while it rejoins.
        """
        now = self._membership.identity
        return (
            now.member_id == commit.identity.member_id
            and now.generation > commit.identity.generation
            and all(
                partition in self._membership.owned or not self._is_subscribed(partition.topic)
                for partition in commit.offsets
            )
        )

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int, turn: Turn
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None for a partition without one."""
        wanted = tuple(partitions)
        fetch = self.new_fetch(wanted)
        self.offsets.submit(fetch)
        self.wait_for(fetch, timeout_ms, turn)
        return {partition: fetch.found.get(partition) for partition in wanted}

    def new_fetch(self, partitions: tuple[TopicPartition, ...]) -> OffsetFetch:
        """A fetch of committed offsets, to be submitted."""
        settings = self._settings
        return OffsetFetch(settings.group_id, partitions, settings.is_committed, self._member)

    def _member(self) -> GroupIdentity | None:
        """Who asks for offsets, in a consumer group: others know no epochs."""
        identity = self._membership.identity
        return identity if identity.membership else None

    def wait_for(self, task: OffsetCommit | OffsetFetch, timeout_ms: int, turn: Turn) -> None:
        """Wait for the end of a task. Raises its error, or after `timeout_ms` why it has not ended."""
        deadline_ms = self._now_ms() + timeout_ms
        while not task.is_done:
            left_ms = deadline_ms - self._now_ms()
            if left_ms <= 0:
                self.offsets.withdraw(task)
                raise (
                    task.error
                    or self._coordinator.last_error
                    or RequestTimeoutError(
                        with_cause(
                            f"the coordinator of group {self._settings.group_id} did not answer within "
                            f"{timeout_ms} ms",
                            self._coordinator.standing(),
                        )
                    )
                )
            try:
                turn(left_ms)
            except BaseException:
                self.offsets.withdraw(task)  # A commit that is repeated later could replace a newer one.
                raise
        if task.error is not None:
            raise task.error

    def _is_automatic(self) -> bool:
        return self._settings.is_auto_commit and bool(self._fetcher.positions) and self._auto_commit is None

    def until_automatic_ms(self) -> int | None:
        """The time until `commit_automatically` may have something to do, in ms; None if only a reply can
        change that."""
        if not self._is_automatic():
            return None
        left_ms = self._auto_commit_due_ms - self._now_ms()
        if left_ms > 0:
            return left_ms
        return 0 if self._changed(self._fetcher.positions) else None

    def commit_automatically(self) -> None:
        """Begin an automatic commit if one is due, and record the outcome of the last one."""
        if self._auto_commit is not None and self._auto_commit.is_done:
            self.note(self._auto_commit)
            self._auto_commit = None
        now_ms = self._now_ms()
        if self._is_automatic() and now_ms >= self._auto_commit_due_ms:
            self._auto_commit_due_ms = now_ms + self._settings.auto_commit_interval_ms
            self._auto_commit = self.begin(self._fetcher.positions)

    def begin(self, partitions: Iterable[TopicPartition]) -> OffsetCommit | None:
        """Begin to commit those offsets of these partitions that differ from the committed ones.

        Replaces an automatic commit in progress: a retry of that one must not overwrite this one.
        """
        self._withdraw_auto_commit()
        changed = self._changed(partitions)
        if not changed:
            return None
        commit = self._new_commit(changed)
        self.offsets.submit(commit)
        return commit

    def _changed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Those offsets of these partitions that differ from the committed ones, and may be committed."""
        consumed = self._buffer.consumed()
        has_ended = self._membership.identity.generation == NO_GENERATION
        lost = self._membership.owned if has_ended else ()
        return {
            partition: consumed[partition]
            for partition in partitions
            if partition in consumed
            and partition not in lost
            and self.known.get(partition) != consumed[partition].offset
        }

    def _withdraw_auto_commit(self) -> None:
        if self._auto_commit is not None:
            self.offsets.withdraw(self._auto_commit)
            self._auto_commit = None

    def note(self, commit: OffsetCommit) -> None:
        """Record the outcome of an automatic commit."""
        self.offsets.withdraw(commit)
        self.last_error = commit.error
        if commit.error is None:
            for partition, stored in commit.committed.items():
                if partition in self._fetcher.positions:
                    self.known[partition] = stored.offset
