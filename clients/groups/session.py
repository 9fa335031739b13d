"""A consumer's dealings with its group: what membership asks for is done to positions, and offsets are
committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients.connection.link import Call, Reply
from clients.errors import CommitFailedError, NoGroupError, RequestTimeoutError
from clients.feedback.events import Events
from clients.fetching.fetcher import Fetcher
from clients.fetching.positions import Position
from clients.groups.coordinator import GroupCoordinator
from clients.groups.listener import RebalanceListener
from clients.groups.membership import NO_GENERATION, GroupIdentity, GroupMembership, ReleasePartitions, TakeUp
from clients.groups.offsets import Commit, CommittedOffsets, Inquiry
from clients.groups.reader import ConsumerPort
from clients.groups.watch import RebalanceWatch
from clients.message import OffsetAndMetadata
from protocol.errors import error_for
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from clients.groups.attachments import Attachments
    from clients.groups.managed_requests import RewindRequested


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session needs to know of the settings. All times in ms."""

    group_id: str
    is_auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_interval_ms: int
    session_timeout_ms: int


class GroupSession:
    """Ties membership, committed offsets and the fetcher together. `settle` does what is due, `poll` of the
    consumer calls it; the rest waits for the answer of the coordinator."""

    def __init__(
        self,
        settings: SessionSettings,
        reader: ConsumerPort,
        fetcher: Fetcher,
        coordinator: GroupCoordinator,
        membership: GroupMembership,
        listener: RebalanceListener,
        events: Events,
        attachments: Attachments | None = None,
    ) -> None:
        self.last_commit_error: Exception | None = None
        """Why the last commit that nobody waited for failed; None after one that succeeded."""
        self.membership = membership
        self.watch = RebalanceWatch(membership, events)
        self.offsets = CommittedOffsets(coordinator, events)
        self._settings = settings
        self._reader = reader
        self._fetcher = fetcher
        self._coordinator = coordinator
        self._listener = listener
        self._attachments = attachments
        self._subscribed: dict[str, None] = {}
        self._inquiries: list[Inquiry] = []
        self._auto_commit: Commit | None = None
        self._auto_commit_due_ms = reader.now_ms() + settings.auto_commit_interval_ms
        self._stored: dict[TopicPartition, int] = {}
        """What is committed, as far as we know: it is not committed again unasked."""
        self._releasing: ReleasePartitions | None = None
        self._last_commit: Commit | None = None
        self._release_by_ms = 0
        self._is_calling_back = False
        self._polled_at_ms = reader.now_ms()
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
        """Take in a reply; whether it was one to these calls."""
        if self.offsets.handle(reply, now_ms):
            self._take_answers()
            return True
        if self._attachments is not None and self._attachments.handle(reply, now_ms):
            return True
        return self.membership.handle(reply, now_ms) or self._coordinator.handle(reply, now_ms)

    def next_event_ms(self, now_ms: int) -> int | None:
        """When `calls` or `settle` may have something new to do."""
        times = [
            self.membership.next_event_ms(now_ms),
            self.offsets.next_event_ms(now_ms),
            self._coordinator.next_event_ms(now_ms),
            self._attachments.next_event_ms(now_ms) if self._attachments is not None else None,
        ]
        if self._releasing is not None:
            times.append(self._release_by_ms)
        elif self._is_auto_committing():
            times.append(max(now_ms, self._auto_commit_due_ms))
        return min((time for time in times if time is not None), default=None)

    def may_deliver(self) -> bool:
        """Whether what has been read may be handed out: not, where the session may have ended unnoticed."""
        return self.membership.is_certain(self._reader.now_ms())

    def hold_back(self) -> None:
        """Let nothing through that a leader does not let this member read: before fetches are made, and
        before anything is handed out."""
        if self._attachments is not None:
            self._attachments.hold_back()

    def poll_begins(self) -> None:
        """The application is back. Where it was away for longer than the group waits, its partitions are
        lost."""
        now_ms = self._reader.now_ms()
        is_late = now_ms - self._polled_at_ms > self._settings.max_poll_interval_ms
        if is_late and self.membership.identity.generation != NO_GENERATION:
            self.membership.give_up(now_ms)

    def poll_ends(self) -> None:
        """The application goes to process what it got."""
        self._polled_at_ms = self._reader.now_ms()

    def settle(self) -> None:
        """Do what is due: let partitions go, take others up, commit. Raises what must be known."""
        if self._is_calling_back:
            return
        self._watch()
        while True:
            event = self._releasing or self.membership.take_event()
            if isinstance(event, ReleasePartitions):
                if not self._let_go(event):
                    return
            elif isinstance(event, TakeUp):
                self._take_up(event)
            else:
                break
        self._watch()
        self.membership.raise_problem()
        self._coordinator.raise_problem()
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
        self._commit_automatically()

    def _watch(self) -> None:
        self.watch.look(self._reader.now_ms(), is_subscribed=bool(self._subscribed))

    # Partitions ---------------------------------------------------------------------------------------

    def subscribe(self, topic: str) -> None:
        """Share a topic with the group."""
        self._subscribed[topic] = None
        self.membership.subscribe(self._subscribed)

    def unsubscribe(self, topic: str) -> bool:
        """Leave a topic to the others; whether it was shared."""
        if topic not in self._subscribed:
            return False
        del self._subscribed[topic]
        self.membership.subscribe(self._subscribed)
        return True

    def is_subscribed(self, topic: str) -> bool:
        """Whether this topic's partitions are shared with the group."""
        return topic in self._subscribed

    def begin_at_committed(self, position: Position) -> None:
        """Begin a partition where the group stands, once that is known."""
        position.is_pending = True
        self._inquire((position.key,))

    def _inquire(self, partitions: tuple[TopicPartition, ...]) -> None:
        inquiry = Inquiry(self._settings.group_id, partitions)
        self._inquiries.append(inquiry)
        self.offsets.submit(inquiry)

    def _take_answers(self) -> None:
        for inquiry in [inquiry for inquiry in self._inquiries if inquiry.is_done]:
            self._inquiries.remove(inquiry)
            pending = [
                position
                for partition in inquiry.partitions
                if (position := self._fetcher.positions.get(partition)) is not None and position.is_pending
            ]
            if inquiry.error is not None and pending:
                self._problem = inquiry.error
                self._inquire(tuple(position.key for position in pending))
                continue
            for position in pending:
                self._begin(position, inquiry.found.get(position.key))

    def _begin(self, position: Position, committed: OffsetAndMetadata | None) -> None:
        position.is_pending = False
        if committed is not None:
            position.go_to(committed.offset)
            self._stored[position.key] = committed.offset

    def _take_up(self, event: TakeUp) -> None:
        for partition in event.partitions:
            position = self._fetcher.add(partition)
            if event.offsets is None:
                position.is_pending = True
            elif event.offsets.get(partition, -1) >= 0:
                self._begin(position, OffsetAndMetadata(event.offsets[partition]))
        if event.offsets is None and event.partitions:
            self._inquire(event.partitions)
        if event.must_attach and self._attachments is not None:
            self._attachments.take_up(event.partitions)
        self._call_back(self._listener.on_partitions_assigned, event.partitions)

    def _let_go(self, event: ReleasePartitions) -> bool:
        """One step towards giving partitions up; whether that is done.

        They are read no more from the first step on. Then what was processed is committed, which may take
        several turns, and then the application is told.
        """
        now_ms = self._reader.now_ms()
        if self._releasing is not event:
            self._releasing = event
            # Not all of the session: the rest is for coming back in time.
            self._release_by_ms = now_ms + self._settings.session_timeout_ms // 2
            for partition in self._consumed_of(event):
                self._reader.put_back(partition)
                self._fetcher.positions[partition].is_held = True
            if not event.is_lost and self._settings.is_auto_commit:
                self._last_commit = self._submit_changed(event.partitions)
        commit = self._last_commit
        if commit is not None and not commit.is_done and now_ms < self._release_by_ms:
            return False
        self._last_commit = None
        if commit is not None:
            self._note(commit)
        is_lost = event.is_lost or (commit is not None and isinstance(commit.error, CommitFailedError))
        tell = self._listener.on_partitions_lost if is_lost else self._listener.on_partitions_revoked
        try:
            self._call_back(tell, event.partitions)
        finally:
            if self._attachments is not None:
                self._attachments.let_go(event.partitions)
            for partition in self._consumed_of(event):
                self._fetcher.remove(partition)
                self._stored.pop(partition, None)
            self._releasing = None
            self.membership.released()
        return True

    def _consumed_of(self, event: ReleasePartitions) -> list[TopicPartition]:
        return [partition for partition in event.partitions if partition in self._fetcher.positions]

    def _call_back(
        self, method: Callable[[tuple[TopicPartition, ...]], None], partitions: tuple[TopicPartition, ...]
    ) -> None:
        self._is_calling_back = True
        try:
            method(partitions)
        finally:
            self._is_calling_back = False

    # Commits ------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Commit, and wait until that is done. Raises CommitFailedError and others."""
        if not offsets:
            return
        self._withdraw_auto_commit()
        deadline_ms = self._reader.now_ms() + timeout_ms
        commit = Commit(self.membership.identity, dict(offsets))
        while True:
            self.offsets.submit(commit)
            try:
                self._wait_for(commit, deadline_ms - self._reader.now_ms())
                break
            except CommitFailedError:
                if not self._has_kept(commit):
                    raise
                commit = Commit(self.membership.identity, commit.offsets)
        for partition, stored in offsets.items():
            self._stored[partition] = stored.offset

    def _has_kept(self, commit: Commit) -> bool:
        """Whether a commit came too late for its generation only, and its partitions are ours in the next: a
        cooperative member keeps them while it joins."""
        now = self.membership.identity
        return (
            now.member_id == commit.identity.member_id
            and now.generation > commit.identity.generation
            and all(
                partition in self.membership.owned or not self.is_subscribed(partition.topic)
                for partition in commit.offsets
            )
        )

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where nothing is."""
        wanted = tuple(partitions)
        inquiry = Inquiry(self._settings.group_id, wanted)
        self.offsets.submit(inquiry)
        self._wait_for(inquiry, timeout_ms)
        return {partition: inquiry.found.get(partition) for partition in wanted}

    def _wait_for(self, task: Commit | Inquiry, timeout_ms: int) -> None:
        deadline_ms = self._reader.now_ms() + timeout_ms
        while not task.is_done:
            left_ms = deadline_ms - self._reader.now_ms()
            if left_ms <= 0:
                self.offsets.withdraw(task)
                raise (
                    task.error
                    or self._coordinator.last_error
                    or RequestTimeoutError(
                        f"group {self._settings.group_id}: no answer of its coordinator after {timeout_ms} ms"
                    )
                )
            self._reader.turn(left_ms)
        if task.error is not None:
            raise task.error

    def _is_auto_committing(self) -> bool:
        return self._settings.is_auto_commit and bool(self._fetcher.positions) and self._auto_commit is None

    def _commit_automatically(self) -> None:
        if self._auto_commit is not None and self._auto_commit.is_done:
            self._note(self._auto_commit)
            self._auto_commit = None
        now_ms = self._reader.now_ms()
        if self._is_auto_committing() and now_ms >= self._auto_commit_due_ms:
            self._auto_commit_due_ms = now_ms + self._settings.auto_commit_interval_ms
            self._auto_commit = self._submit_changed(self._fetcher.positions)

    def _submit_changed(self, partitions: Iterable[TopicPartition]) -> Commit | None:
        """Begin to commit what has changed of these partitions, in place of an automatic commit under way:
        tried again, that one must not come last."""
        self._withdraw_auto_commit()
        consumed = self._reader.consumed()
        changed = {
            partition: consumed[partition]
            for partition in partitions
            if partition in consumed and self._stored.get(partition) != consumed[partition].offset
        }
        if not changed:
            return None
        commit = Commit(self.membership.identity, changed)
        self.offsets.submit(commit)
        return commit

    def _withdraw_auto_commit(self) -> None:
        if self._auto_commit is not None:
            self.offsets.withdraw(self._auto_commit)
            self._auto_commit = None

    def _note(self, commit: Commit) -> None:
        """Look at how a commit ended for which nobody waited."""
        self.offsets.withdraw(commit)
        self.last_commit_error = commit.error
        if commit.error is None:
            for partition, stored in commit.committed.items():
                if partition in self._fetcher.positions:
                    self._stored[partition] = stored.offset

    # Rewinding ----------------------------------------------------------------------------------------

    def rewind(self, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, int]:
        """Have the group go on elsewhere, in partitions of any member (client rewrite, "Offset Rewind").

        Returns where they stand. Raises NoGroupError where the group's protocol knows no rewinding.
        """
        from clients.groups.managed import ManagedMembership  # Others do without.
        from clients.groups.managed_requests import RewindRequested

        membership = self.membership
        if not isinstance(membership, ManagedMembership):
            raise NoGroupError(
                "rewind() is for members of managed groups (group.protocol=managed), whose coordinator tells "
                "the owners; in a classic group seek() and commit() your own partitions"
            )
        if self._is_calling_back:
            raise RuntimeError(
                "rewind() waits for the group, which waits for its listeners: call it after poll()"
            )
        rewind = RewindRequested(dict(offsets))
        membership.rewind(rewind)
        held = [position for position in self._fetcher.positions.values() if not position.is_held]
        for position in held:
            self._reader.put_back(position.key)
            position.is_held = True
        try:
            self._wait_for_rewind(rewind, timeout_ms)
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

    def _wait_for_rewind(self, rewind: RewindRequested, timeout_ms: int) -> None:
        deadline_ms = self._reader.now_ms() + timeout_ms
        while not rewind.is_done:
            self.settle()
            left_ms = deadline_ms - self._reader.now_ms()
            if left_ms <= 0:
                raise rewind.last_error or RequestTimeoutError(
                    f"group {self._settings.group_id} has not been rewound in {timeout_ms} ms"
                )
            self._reader.turn(left_ms)

    # The end ------------------------------------------------------------------------------------------

    def close(self, timeout_ms: int, *, has_failed: bool) -> None:
        """Commit, and tell the application that its partitions go; `leave_call` comes next.

        `has_failed`: the application broke off, so that what it got last may not have been processed.
        """
        try:
            if self._settings.is_auto_commit and not has_failed:
                commit = self._submit_changed(self._fetcher.positions)
                if commit is not None:
                    self._wait_for(commit, timeout_ms)
        finally:
            owned = tuple(p for p in self.membership.owned if p in self._fetcher.positions)
            if owned:
                self._call_back(self._listener.on_partitions_revoked, owned)

    def leave_call(self) -> Call | None:
        """The request that takes leave of the group, where one is due."""
        return self.membership.leave_call()

    @property
    def identity(self) -> GroupIdentity:
        """This consumer's group, generation and member id."""
        return self.membership.identity
