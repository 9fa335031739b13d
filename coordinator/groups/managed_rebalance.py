"""The membership protocol of the client rewrite: registrations, heartbeats, changes and rewinds.

A *rebalance* concerns the whole group: a new or lost member, a new topic or partition. Every member gets an
error code in its next heartbeat, stops fetching, commits and registers again; when all have registered, each
is answered with its partitions and start offsets. A *rewind* works the same way, but only for the owners of
the rewound partitions; the other members keep their partitions and their generation.

The group waits for a member at most two session timeouts: one until its next heartbeat, and one from then on
until it registers (further heartbeats do not extend its session). A member whose application may take longer
for its records asks for a rebalance timeout, and its heartbeats extend its session for so long (KIP-62).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from holdfast_log.coordinator.groups.assignors import ASSIGNORS
from holdfast_log.coordinator.groups.deadlines import TimerKey, TimerKind
from holdfast_log.coordinator.groups.effects import (
    ErrorAnswer,
    LeaveAnswer,
    LeftMember,
    ManagedHeartbeatAnswer,
    OwnedPartition,
    RegisterAnswer,
    RewindAnswer,
    RewoundPartition,
    ShardResult,
)
from holdfast_log.coordinator.groups.managed_claims import claim_owned, clear_readers
from holdfast_log.coordinator.groups.managed_group import (
    READER_NAME_MAX,
    ManagedGroup,
    ManagedMember,
    PendingRewind,
)
from holdfast_log.coordinator.groups.managed_topics import NO_OFFSET, ManagedTopics
from holdfast_log.coordinator.groups.offsets import GroupOffsets
from holdfast_log.coordinator.groups.records import fits, managed_group_record
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.states import GroupState
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.coordinator.timers import Timers
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition


class ManagedRebalancer:
    """Handles the events of managed groups. `partition_count(topic)` is a topic's number of partitions."""

    def __init__(
        self,
        config: GroupSettings,
        timers: Timers[TimerKey],
        offsets: GroupOffsets,
        partition_count: Callable[[str], int],
    ) -> None:
        self._config = config
        self._timers = timers
        self._topics = ManagedTopics(offsets, partition_count)

    # Requests

    def create(
        self,
        group_id: str,
        result: ShardResult,
        request: RequestToken,
        *,
        session_timeout_ms: int,
        topics: Sequence[str],
        ephemeral: bool,
        assignment_strategy: str,
        single_reader: bool,
        now_ms: int,
    ) -> ManagedGroup:
        """CreateGroup with checked arguments. Partitions that exist now do not count as new to the group."""
        group = ManagedGroup(
            group_id,
            session_timeout_ms,
            ephemeral,
            assignment_strategy,
            self._topics.counts(topics),
            single_reader=single_reader,
        )
        self._persist(group, result)
        self.expire_if_unused(group, now_ms)
        result.reply(request, ErrorAnswer(ErrorCode.NONE))
        return group

    def add_topics(
        self,
        group: ManagedGroup,
        result: ShardResult,
        request: RequestToken,
        topics: Iterable[str],
        now_ms: int,
    ) -> None:
        """CreateGroup of an existing group: add its missing topics, which starts a rebalance."""
        added = [topic for topic in topics if topic not in group.partitions]
        if added:
            group.partitions.update(self._topics.counts(added))
            self._persist(group, result)
            if group.members:
                self._begin_rebalance(group, result, now_ms)
        result.reply(request, ErrorAnswer(ErrorCode.NONE))

    def register(
        self,
        group: ManagedGroup,
        result: ShardResult,
        request: RequestToken,
        *,
        consumer_id: str,
        client_id: str,
        client_host: str,
        now_ms: int,
    ) -> None:
        """RegisterConsumer: answered when all members that the rebalance concerns have registered."""
        member = group.members.get(consumer_id)
        if member is not None:
            self._register_again(group, result, request, member, now_ms)
            return
        is_too_long = group.single_reader and len(consumer_id) > READER_NAME_MAX
        if not consumer_id or is_too_long or not fits(consumer_id, client_id, client_host):
            result.reply(request, RegisterAnswer(ErrorCode.INVALID_REQUEST))
            return
        if len(group.members) >= self._config.max_size:
            result.reply(request, RegisterAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
            return
        member = ManagedMember(
            consumer_id, client_id, client_host, group.session_timeout_ms, registering=request
        )
        group.members[consumer_id] = member
        self._timers.cancel(TimerKey(group.group_id, TimerKind.UNUSED))
        self.keep_alive(group, member, now_ms)
        self._begin_rebalance(group, result, now_ms)

    def heartbeat(
        self,
        group: ManagedGroup,
        result: ShardResult,
        request: RequestToken,
        *,
        consumer_id: str,
        generation: int,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        now_ms: int,
    ) -> None:
        """Heartbeat: on any error the consumer has to stop fetching, commit and register.

        A positive `session_timeout_ms` requests a session timeout up to the group's. Heartbeats extend the
        session until `rebalance_timeout_ms` after the first error.
        """
        error = group.check_generation(consumer_id, generation)
        if error is ErrorCode.NONE:
            member = group.members[consumer_id]
            if session_timeout_ms > 0:
                shortest_ms = min(self._config.min_session_timeout_ms, group.session_timeout_ms)
                longest_ms = group.session_timeout_ms
                member.session_timeout_ms = max(shortest_ms, min(session_timeout_ms, longest_ms))
            if not member.notified or now_ms < member.notified_at_ms + rebalance_timeout_ms:
                self.keep_alive(group, member, now_ms)
            if member.must_register:
                if not member.notified:
                    member.notified_at_ms = now_ms
                member.notified = True
                error = ErrorCode.REBALANCE_IN_PROGRESS
        result.reply(request, ManagedHeartbeatAnswer(error, group.generation))

    def rewind(
        self,
        group: ManagedGroup,
        result: ShardResult,
        request: RequestToken,
        *,
        consumer_id: str,
        generation: int,
        new_offsets: Sequence[tuple[TopicPartition, int]],
        now_ms: int,
    ) -> None:
        """RewindConsumer: answered when the owners have stopped fetching and the offsets are committed.

        A member that sends it has stopped fetching, so the group does not wait for it; its answer has the
        offsets of all its rewound partitions. During a rebalance a member has to register first.
        """
        error = ErrorCode.NONE
        if consumer_id:
            error = group.check_generation(consumer_id, generation)
            if error is ErrorCode.NONE and group.is_rebalancing:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            refused = [RewoundPartition(partition, NO_OFFSET, error) for partition, _ in new_offsets]
            result.reply(request, RewindAnswer(group.generation, refused))
            return
        accepted: dict[TopicPartition, int] = {}
        refused = []
        for partition, offset in new_offsets:
            error = self._check_rewind(group, partition, offset)
            if error is ErrorCode.NONE:
                accepted[partition] = offset
            else:
                refused.append(RewoundPartition(partition, NO_OFFSET, error))
        group.rewinds.append(PendingRewind(request, consumer_id, accepted, refused))
        if consumer_id:
            requester = group.members[consumer_id]
            requester.must_register = requester.notified = False
            self.keep_alive(group, requester, now_ms)
        for owner in group.owners_of(accepted):
            if not group.is_rewinding(owner.consumer_id):
                owner.must_register = True
        self._complete_if_all_registered(group, result, now_ms)

    def leave(
        self,
        group: ManagedGroup,
        result: ShardResult,
        request: RequestToken,
        members: Iterable[tuple[str, str | None]],
        now_ms: int,
    ) -> None:
        """LeaveGroup also works for managed groups, so that the group need not wait for a consumer that
        closes."""
        left: list[LeftMember] = []
        for consumer_id, instance_id in members:
            known = consumer_id in group.members
            left.append(
                LeftMember(consumer_id, instance_id, ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID)
            )
            if known:
                self._remove(group, result, consumer_id, now_ms)
        result.reply(request, LeaveAnswer(left))

    # Other events

    def resume(self, group: ManagedGroup, result: ShardResult, now_ms: int) -> None:
        """Set the deadlines of a restored group, make its claims, and rebalance if its topics have changed.

        This writes no records: after a refused append the log may still refuse. Claims are made again because
        the previous coordinator may have failed before making them.
        """
        for member in group.members.values():
            self.keep_alive(group, member, now_ms)
            claim_owned(group, result, member)
        if not group.members:
            clear_readers(group, result)
        self.expire_if_unused(group, now_ms)
        self._topics.forget_lost_partitions(group, group.partitions)
        # Partitions were added or removed, or a rebalance for a new topic was interrupted
        if group.members and not self._topics.is_fully_owned(group):
            self._begin_rebalance(group, result, now_ms)

    def topics_changed(
        self, group: ManagedGroup, result: ShardResult, topics: Collection[str], now_ms: int
    ) -> None:
        """Some of `topics` may have been created, deleted or given more partitions."""
        if not any(topic in group.partitions for topic in topics):
            return
        if self._topics.forget_lost_partitions(group, topics):
            self._persist(group, result)
        if group.members and not self._topics.is_fully_owned(group):
            self._begin_rebalance(group, result, now_ms)

    def session_expired(
        self, group: ManagedGroup, result: ShardResult, consumer_id: str, now_ms: int
    ) -> None:
        member = group.members.get(consumer_id)
        if member is None:
            return
        if member.registering is not None or group.is_rewinding(consumer_id):
            self.keep_alive(group, member, now_ms)  # it cannot send heartbeats while it waits for our answer
        else:
            self._remove(group, result, consumer_id, now_ms)

    def offsets_settled(self, group: ManagedGroup, result: ShardResult, now_ms: int) -> None:
        """An open transaction that had offsets of the group has ended, or others count instead of them: a
        rebalance may have waited for that. Its members begin at the group's offsets, and read nothing twice
        that a transaction has committed."""
        if group.is_rebalancing:
            self._complete_if_all_registered(group, result, now_ms)

    def unused_expired(self, group: ManagedGroup, result: ShardResult) -> None:
        if group.ephemeral and group.state is GroupState.EMPTY:
            self.delete(group, result)

    def delete(self, group: ManagedGroup, result: ShardResult) -> None:
        """Delete an empty group with its offsets."""
        group.transition_to(GroupState.DEAD)
        self._timers.cancel(TimerKey(group.group_id, TimerKind.UNUSED))
        self._topics.delete_offsets(group, result)
        result.groups_before.setdefault(group.group_id, group.durable)
        group.durable = None
        result.records.append(managed_group_record(group.group_id, None))

    def expire_if_unused(self, group: ManagedGroup, now_ms: int) -> None:
        """Set the deadline after which an ephemeral group without members is deleted."""
        if group.ephemeral and group.state is GroupState.EMPTY:
            key = TimerKey(group.group_id, TimerKind.UNUSED)
            self._timers.set(key, now_ms + group.session_timeout_ms)

    def keep_alive(self, group: ManagedGroup, member: ManagedMember, now_ms: int) -> None:
        key = TimerKey(group.group_id, TimerKind.SESSION, member.consumer_id)
        self._timers.set(key, now_ms + member.session_timeout_ms)

    def forget_timers(self, group: ManagedGroup) -> None:
        self._timers.cancel(TimerKey(group.group_id, TimerKind.UNUSED))
        for consumer_id in group.members:
            self._timers.cancel(TimerKey(group.group_id, TimerKind.SESSION, consumer_id))

    # Changes and rewinds

    def _register_again(
        self,
        group: ManagedGroup,
        result: ShardResult,
        request: RequestToken,
        member: ManagedMember,
        now_ms: int,
    ) -> None:
        if member.registering is not None:  # it gave up on an earlier request and sent a new one
            result.reply(member.registering, RegisterAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        member.registering = request
        self.keep_alive(group, member, now_ms)
        if group.is_rebalancing or member.must_register:
            self._complete_if_all_registered(group, result, now_ms)
        elif self._topics.may_be_replaced(group):
            # Its former process may have left a transaction open: it begins where that ends.
            self._begin_rebalance(group, result, now_ms)
        else:
            # No rebalance is in progress: the consumer has restarted, or lost the answer. It keeps its
            # partitions under a new generation, which fences its former process.
            group.generation += 1
            self._grant(group, result, (member,), now_ms)
            self._persist(group, result)

    def _begin_rebalance(self, group: ManagedGroup, result: ShardResult, now_ms: int) -> None:
        if not group.is_rebalancing:
            group.transition_to(GroupState.PREPARING_REBALANCE)
        for rewind in group.rewinds:
            if rewind.consumer_id:  # it waits for this answer before it registers
                actual = [
                    RewoundPartition(partition, NO_OFFSET, ErrorCode.REBALANCE_IN_PROGRESS)
                    for partition in rewind.new_offsets
                ]
                result.reply(rewind.request, RewindAnswer(group.generation, [*actual, *rewind.refused]))
        group.rewinds = [rewind for rewind in group.rewinds if not rewind.consumer_id]
        for member in group.members.values():
            member.must_register = True
        self._complete_if_all_registered(group, result, now_ms)

    def _complete_if_all_registered(self, group: ManagedGroup, result: ShardResult, now_ms: int) -> None:
        if not group.all_registered():
            return
        if group.is_rebalancing:
            if not group.members or not self._topics.may_be_replaced(group):
                self._complete_rebalance(group, result, now_ms)
        elif group.rewinds:
            self._complete_rewinds(group, result, now_ms)

    def _complete_rebalance(self, group: ManagedGroup, result: ShardResult, now_ms: int) -> None:
        counts = self._topics.counts(group.partitions)
        rewinds, group.rewinds = group.rewinds, []
        self._record_rewinds(group, result, rewinds, now_ms)
        self._topics.begin_new_partitions(group, result, counts, now_ms)
        group.partitions = counts
        group.generation += 1
        if group.members:
            group.transition_to(GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
            owned = {member.consumer_id: member.owned for member in group.members.values()}
            assignment = ASSIGNORS[group.assignment_strategy](list(group.members), counts, owned)
            for member in group.members.values():
                member.owned = assignment[member.consumer_id]
            self._grant(group, result, group.members.values(), now_ms)
        else:
            group.transition_to(GroupState.EMPTY)
            clear_readers(group, result)
        self._answer_rewinds(group, result, rewinds)
        self._persist(group, result)
        if group.ephemeral and not group.members:
            self.delete(group, result)

    def _complete_rewinds(self, group: ManagedGroup, result: ShardResult, now_ms: int) -> None:
        rewinds, group.rewinds = group.rewinds, []
        self._record_rewinds(group, result, rewinds, now_ms)
        affected = group.owners_of(partition for rewind in rewinds for partition in rewind.new_offsets)
        if affected:
            group.generation += 1
            self._grant(group, result, affected, now_ms)
            self._persist(group, result)
        self._answer_rewinds(group, result, rewinds)

    def _grant(
        self, group: ManagedGroup, result: ShardResult, members: Iterable[ManagedMember], now_ms: int
    ) -> None:
        """Confirm the partitions of `members` under the current generation, and answer those that wait."""
        for member in members:
            member.generation = group.generation
            member.must_register = member.notified = False
            self.keep_alive(group, member, now_ms)
            claim_owned(group, result, member)
            request, member.registering = member.registering, None
            if request is not None:
                owned = [
                    OwnedPartition(partition, self._topics.offset(group, partition))
                    for partition in member.owned
                ]
                answer = RegisterAnswer(ErrorCode.NONE, group.generation, owned, group.single_reader)
                result.reply(request, answer)

    def _record_rewinds(
        self, group: ManagedGroup, result: ShardResult, rewinds: Iterable[PendingRewind], now_ms: int
    ) -> None:
        for rewind in rewinds:
            for partition, offset in rewind.new_offsets.items():
                self._topics.commit(group, result, partition, offset, now_ms)

    def _answer_rewinds(
        self, group: ManagedGroup, result: ShardResult, rewinds: Sequence[PendingRewind]
    ) -> None:
        rewound = dict.fromkeys(partition for rewind in rewinds for partition in rewind.new_offsets)
        for rewind in rewinds:
            requester = group.members.get(rewind.consumer_id)
            owned = () if requester is None else requester.owned
            to_tell = [p for p in rewound if p in rewind.new_offsets or p in owned]
            actual = [RewoundPartition(p, self._topics.offset(group, p), ErrorCode.NONE) for p in to_tell]
            result.reply(rewind.request, RewindAnswer(group.generation, [*actual, *rewind.refused]))

    def _check_rewind(self, group: ManagedGroup, partition: TopicPartition, offset: int) -> ErrorCode:
        if not self._topics.has(group, partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if offset >= 0 else ErrorCode.OFFSET_OUT_OF_RANGE

    def _remove(self, group: ManagedGroup, result: ShardResult, consumer_id: str, now_ms: int) -> None:
        member = group.members.pop(consumer_id)
        self._timers.cancel(TimerKey(group.group_id, TimerKind.SESSION, consumer_id))
        if member.registering is not None:
            result.reply(member.registering, RegisterAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        self._begin_rebalance(group, result, now_ms)

    def _persist(self, group: ManagedGroup, result: ShardResult) -> None:
        result.groups_before.setdefault(group.group_id, group.durable)
        group.durable = group.to_value()
        result.records.append(managed_group_record(group.group_id, group.durable))
