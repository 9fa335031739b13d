"""A consumer's session with its group: moves positions as the membership asks, and commits offsets.

The session is sans-IO. Its methods that wait for the coordinator take `turn`, which runs the consumer's event
loop once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import CommitFailedError, NoGroupError, RequestTimeoutError, with_cause
from holdfast_log.clients.feedback.events import Events
from holdfast_log.clients.fetching.fetcher import Fetcher
from holdfast_log.clients.fetching.positions import Position
from holdfast_log.clients.fetching.record_buffer import RecordBuffer
from holdfast_log.clients.groups.commits import GroupCommits, SessionSettings, Turn
from holdfast_log.clients.groups.committed_offsets import OffsetCommit, OffsetFetch
from holdfast_log.clients.groups.coordinator import GroupCoordinator
from holdfast_log.clients.groups.early_seeks import EarlySeeks
from holdfast_log.clients.groups.heartbeats import Heartbeats
from holdfast_log.clients.groups.listener import RebalanceListener
from holdfast_log.clients.groups.membership import (
    AssignPartitions,
    GroupIdentity,
    GroupMembership,
    OwnerTokens,
    RevokePartitions,
)
from holdfast_log.clients.groups.partitions_beside import PartitionsBeside
from holdfast_log.clients.groups.rebalance_tracker import RebalanceTracker
from holdfast_log.clients.groups.subscription import GroupSubscription
from holdfast_log.clients.message import OffsetAndMetadata
from holdfast_log.protocol.errors import error_for
from holdfast_log.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from holdfast_log.clients.groups.attachments import Attachments
    from holdfast_log.clients.groups.managed_requests import RewindRequested


@dataclass(frozen=True, slots=True, eq=False)
class _Revocation:
    """A revocation in progress: it ends when `commit` has an outcome, at `deadline_ms` at the latest."""

    event: RevokePartitions
    commit: OffsetCommit | None
    deadline_ms: int


class GroupSession:
    """Ties membership, committed offsets and the fetcher together.

    `calls`, `handle` and `next_event_ms` belong to the event loop; `settle` does what is due and is called by
    the consumer's `poll`.
    """

    def __init__(
        self,
        settings: SessionSettings,
        now_ms: Callable[[], int],
        buffer: RecordBuffer,
        fetcher: Fetcher,
        coordinator: GroupCoordinator,
        membership: GroupMembership,
        heartbeats: Heartbeats,
        listener: RebalanceListener,
        events: Events,
        away: Callable[[], AbstractContextManager[None]],
        attachments: Attachments | None = None,
        tokens: OwnerTokens | None = None,
    ) -> None:
        self.membership = membership
        self.heartbeats = heartbeats
        self.rebalances = RebalanceTracker(membership, events)
        self.beside = PartitionsBeside()
        self._subscription = GroupSubscription()
        self.commits = GroupCommits(
            settings,
            now_ms,
            buffer,
            fetcher,
            coordinator,
            membership,
            heartbeats,
            events,
            self._subscription.__contains__,
            tokens,
        )
        self.offsets = self.commits.offsets
        self._settings = settings
        self._now_ms = now_ms
        self._buffer = buffer
        self._fetcher = fetcher
        self._coordinator = coordinator
        self._listener = listener
        self._away = away
        self._attachments = attachments
        self._offset_fetches: list[OffsetFetch] = []
        self._early_seeks = EarlySeeks(settings.group_id)
        self._revocation: _Revocation | None = None
        self._is_calling_back = False
        self._problem: Exception | None = None

    # The event loop -----------------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        """The requests to send now."""
        return [
            *self.membership.calls(now_ms),
            *self.offsets.calls(now_ms),
            *self._coordinator.calls(now_ms),
            *(self._attachments.calls(now_ms) if self._attachments is not None else ()),
        ]

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply; returns whether it answered one of the session's calls."""
        if self.offsets.handle(reply, now_ms):
            self._begin_fetched()
            return True
        if self._attachments is not None and self._attachments.handle(reply, now_ms):
            return True
        return self.membership.handle(reply, now_ms) or self._coordinator.handle(reply, now_ms)

    def next_event_ms(self, now_ms: int) -> int | None:
        """When `calls` may have something new; None if only a reply can change that."""
        times = [
            self.membership.next_event_ms(now_ms),
            self.offsets.next_event_ms(now_ms),
            self._coordinator.next_event_ms(now_ms),
            self._attachments.next_event_ms(now_ms) if self._attachments is not None else None,
        ]
        return min((time for time in times if time is not None), default=None)

    def may_deliver(self) -> bool:
        """Whether `poll` may return records; False while the session may have expired unnoticed."""
        return self.membership.is_certain(self._now_ms())

    def hold_back(self) -> None:
        """Suspend partitions whose leader does not accept this member as their reader.

        Called before fetches are made, and before records are returned to the application.
        """
        if self._attachments is not None:
            self._attachments.hold_back()

    # The application's calls --------------------------------------------------------------------------

    def settle(self) -> None:
        """Revoke and assign partitions and commit automatically, as due. Raises the membership's errors."""
        if self._is_calling_back:
            return
        self._track_rebalance()
        while True:
            event = self.membership.take_event() if self._revocation is None else self._revocation.event
            if isinstance(event, RevokePartitions):
                if not self._revoke(event):
                    return
            elif isinstance(event, AssignPartitions):
                self._assign(event)
            else:
                break
        self._track_rebalance()
        self.membership.raise_problem()
        self._coordinator.raise_problem()
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
        self.commits.commit_automatically()

    def until_settle_ms(self) -> int | None:
        """The time until `settle` may have something to do, in ms; None if only a reply can change that."""
        if self._revocation is not None:
            return max(0, self._revocation.deadline_ms - self._now_ms())
        return self.commits.until_automatic_ms()

    def _track_rebalance(self) -> None:
        self.rebalances.look(self._now_ms(), is_subscribed=bool(self._subscription))

    # Partitions ---------------------------------------------------------------------------------------

    def subscribe(self, topic: str) -> None:
        """Add a topic to this member's subscription."""
        self._subscription.topics[topic] = None
        self.beside.remove(topic)
        self.membership.subscribe(self._subscription.topics)

    def unsubscribe(self, topic: str) -> bool:
        """Remove a topic from this member's subscription; returns whether it was in it."""
        if topic not in self._subscription.topics:
            return False
        del self._subscription.topics[topic]
        self._early_seeks.forget(topic)
        self.membership.subscribe(self._subscription.topics)
        return True

    def subscribe_pattern(self, pattern: str | None) -> None:
        """Set the regular expression of this member's subscription; None for none. Raises NoGroupError unless
        the brokers match it."""
        from holdfast_log.clients.groups.consumer_member import (
            ConsumerMembership,  # Imported only where patterns are used.
        )

        if not isinstance(self.membership, ConsumerMembership):
            raise NoGroupError(
                "add_pattern() needs group.protocol=consumer, where the brokers match regular expressions; "
                "with another group.protocol, call add_topic() for each topic"
            )
        self._subscription.match(pattern)
        self.membership.subscribe_pattern(pattern)

    def is_subscribed(self, topic: str) -> bool:
        """Whether the topic is in this member's subscription."""
        return topic in self._subscription

    def seek_when_assigned(self, partition: TopicPartition, go: Callable[[Position], None]) -> bool:
        """Set a position, by `go`, once the group assigns the partition for the first time. Returns False,
        and does nothing, if the topic is not subscribed, or the group has assigned partitions already."""
        if self.commits.has_joined or not self.is_subscribed(partition.topic):
            return False
        self._early_seeks.add(partition, go)
        return True

    def begin_at_committed(self, position: Position) -> None:
        """Set the position to the group's committed offset, once the coordinator has answered."""
        position.is_pending = True
        self._fetch_offsets((position.key,))

    def _fetch_offsets(self, partitions: tuple[TopicPartition, ...]) -> None:
        fetch = self.commits.new_fetch(partitions)
        self._offset_fetches.append(fetch)
        self.offsets.submit(fetch)

    def _begin_fetched(self) -> None:
        """Set the positions whose committed offsets have been fetched."""
        for fetch in [fetch for fetch in self._offset_fetches if fetch.is_done]:
            self._offset_fetches.remove(fetch)
            pending = [
                position
                for partition in fetch.partitions
                if (position := self._fetcher.positions.get(partition)) is not None and position.is_pending
            ]
            if fetch.error is not None and pending:
                self._problem = fetch.error
                self._fetch_offsets(tuple(position.key for position in pending))
                continue
            for position in pending:
                self._begin(position, fetch.found.get(position.key))

    def _begin(self, position: Position, committed: OffsetAndMetadata | None) -> None:
        position.is_pending = False
        if committed is not None:
            position.go_to(committed.offset)
            self.commits.known[position.key] = committed.offset

    def _assign(self, event: AssignPartitions) -> None:
        self.commits.has_joined = True
        self._subscription.note(event.partitions)
        self.heartbeats.joined()
        partitions = tuple(partition for partition in event.partitions if partition not in self.beside)
        for partition in partitions:
            position = self._fetcher.add(partition)
            if event.offsets is None:
                position.is_pending = True
            elif event.offsets.get(partition, -1) >= 0:
                self._begin(position, OffsetAndMetadata(event.offsets[partition]))
        if event.offsets is None and partitions:
            self._fetch_offsets(partitions)
        error = self._early_seeks.carry_out([self._fetcher.positions[each] for each in partitions])
        self._problem = self._problem or error
        if event.must_attach and self._attachments is not None:
            self._attachments.add(event.partitions)
        self._call_back(self._listener.on_partitions_assigned, event.partitions)

    def _revoke(self, event: RevokePartitions) -> bool:
        """One step towards revoking partitions; returns whether the revocation is complete.

        The first step stops reading them and begins a commit of what was processed. The last step, once the
        commit has an outcome or its deadline has passed, calls the listener.
        """
        now_ms = self._now_ms()
        revocation = self._revocation
        if revocation is None:
            revocation = self._revocation = self._begin_revocation(event, now_ms)
        commit = revocation.commit
        if commit is not None:
            if not commit.is_done and now_ms < revocation.deadline_ms:
                return False
            self.commits.note(commit)
        is_lost = event.is_lost or (commit is not None and isinstance(commit.error, CommitFailedError))
        tell = self._listener.on_partitions_lost if is_lost else self._listener.on_partitions_revoked
        try:
            self._call_back(tell, event.partitions)
        finally:
            if self._attachments is not None:
                self._attachments.remove(event.partitions)
            for partition in self._consumed_of(event):
                self._fetcher.remove(partition)
                self.commits.known.pop(partition, None)
            self._revocation = None
            self.membership.revoked()
            for partition in self.beside.revoked(event.partitions):
                self.begin_at_committed(self._fetcher.add(partition))
        return True

    def _begin_revocation(self, event: RevokePartitions, now_ms: int) -> _Revocation:
        for partition in self._consumed_of(event):
            position = self._fetcher.positions[partition]
            self._buffer.put_back(position)
            position.is_held = True
        commit = None
        if not event.is_lost and self._settings.is_auto_commit:
            commit = self.commits.begin(event.partitions)
        # Half of the session timeout: the other half is for rejoining in time.
        return _Revocation(event, commit, now_ms + self._settings.session_timeout_ms // 2)

    def _consumed_of(self, event: RevokePartitions) -> list[TopicPartition]:
        return [
            partition
            for partition in event.partitions
            if partition in self._fetcher.positions and partition not in self.beside
        ]

    def _call_back(
        self, method: Callable[[tuple[TopicPartition, ...]], None], partitions: tuple[TopicPartition, ...]
    ) -> None:
        self._is_calling_back = True
        self.heartbeats.application_begins()
        try:
            with self._away():
                method(partitions)
        finally:
            self._is_calling_back = False

    # Rewinding ----------------------------------------------------------------------------------------

    def rewind(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int, turn: Turn
    ) -> dict[TopicPartition, int]:
        """Move the group to `offsets`, in partitions of any member (client rewrite, "Offset Rewind").

        Returns the group's new offsets. Raises NoGroupError in a group that is not managed,
        RequestTimeoutError, or the coordinator's error.
        """
        from holdfast_log.clients.groups.managed import (
            ManagedMembership,  # Imported only where rewind() is used.
        )
        from holdfast_log.clients.groups.managed_requests import RewindRequested

        membership = self.membership
        if not isinstance(membership, ManagedMembership):
            raise NoGroupError(
                "rewind() needs a managed group (group.protocol=managed); in other groups, use seek() and "
                "commit() on your own partitions"
            )
        if self._is_calling_back:
            raise RuntimeError(
                "rewind() cannot be called from a rebalance listener, because the group waits for the "
                "listener: call it after poll()"
            )
        rewind = RewindRequested(dict(offsets))
        membership.rewind(rewind)
        held = [position for position in self._fetcher.positions.values() if not position.is_held]
        for position in held:
            self._buffer.put_back(position)
            position.is_held = True
        try:
            self._wait_for_rewind(rewind, timeout_ms, turn)
        finally:
            membership.withdraw(rewind)
            for position in held:
                position.is_held = False
        for partition, offset in rewind.found.items():
            mine = self._fetcher.positions.get(partition)
            if mine is not None:
                self._begin(mine, OffsetAndMetadata(offset))
        for partition, error in rewind.errors.items():
            raise error_for(error.code, f"{partition}: {error.message}")
        return {partition: rewind.found[partition] for partition in offsets}

    def _wait_for_rewind(self, rewind: RewindRequested, timeout_ms: int, turn: Turn) -> None:
        deadline_ms = self._now_ms() + timeout_ms
        while not rewind.is_done:
            self.settle()
            left_ms = deadline_ms - self._now_ms()
            if left_ms <= 0:
                raise rewind.last_error or RequestTimeoutError(
                    with_cause(
                        f"group {self._settings.group_id} was not rewound within {timeout_ms} ms",
                        self._coordinator.standing(),
                    )
                )
            settle_ms = self.until_settle_ms()
            turn(left_ms if settle_ms is None else min(left_ms, settle_ms))

    # The end ------------------------------------------------------------------------------------------

    def close(self, timeout_ms: int, turn: Turn, *, has_failed: bool) -> None:
        """Commit, and call the listener for the partitions owned; `leave_call` comes next.

        `has_failed` skips the commit: the application may not have processed the last records.
        """
        try:
            if self._settings.is_auto_commit and not has_failed:
                commit = self.commits.begin(self._fetcher.positions)
                if commit is not None:
                    self.commits.wait_for(commit, timeout_ms, turn)
        finally:
            owned = tuple(p for p in self.membership.owned if p in self._fetcher.positions)
            if owned:
                self._call_back(self._listener.on_partitions_revoked, owned)

    def leave_call(self) -> Call | None:
        """The LeaveGroup request; None if there is no membership to end."""
        return self.membership.leave_call()

    @property
    def identity(self) -> GroupIdentity:
        """This consumer's group, generation and member id."""
        return self.membership.identity
