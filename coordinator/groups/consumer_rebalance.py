"""The events of consumer groups (KIP-848): heartbeats, departures, deadlines, and changes of topics.

A heartbeat is answered at once, never by what another member does. What a member says of itself may raise
the group's epoch; a higher epoch needs a new target assignment, which the next heartbeat of any member makes;
and each member moves towards its target with its own heartbeats (consumer_assignment.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from holdfast_log.coordinator.groups.consumer_assignment import (
    NO_PARTITIONS,
    CurrentAssignment,
    IdPartition,
    MemberEvent,
    MemberState,
    Partitions,
    reconciled,
)
from holdfast_log.coordinator.groups.consumer_assignors import load_assignors
from holdfast_log.coordinator.groups.consumer_group import (
    JOINS,
    LEAVES_FOR_NOW,
    ConsumerGroup,
    ConsumerHeartbeat,
    ConsumerMember,
)
from holdfast_log.coordinator.groups.consumer_records import ConsumerMeta, changes
from holdfast_log.coordinator.groups.consumer_topics import (
    ClusterTopics,
    RegexRefused,
    topics_matching,
    topics_named,
)
from holdfast_log.coordinator.groups.deadlines import TimerKey, TimerKind
from holdfast_log.coordinator.groups.effects import ConsumerHeartbeatAnswer, ShardResult
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.timers import Timers
from holdfast_log.protocol.errors import ErrorCode


class MemberRefused(Exception):
    """A member's request is answered with an error, and changes nothing."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


class ConsumerRebalancer:
    """Handles the events of consumer groups."""

    def __init__(self, config: GroupSettings, timers: Timers[TimerKey], cluster: ClusterTopics) -> None:
        self.config = config
        self._timers = timers
        self._cluster = cluster
        self.assignors = load_assignors(config.consumer_assignors)

    # Requests

    def heartbeat(
        self, group: ConsumerGroup, result: ShardResult, sent: ConsumerHeartbeat, now_ms: int
    ) -> None:
        """A heartbeat of a member that joins or stays. Raises MemberRefused."""
        seen = self._matched(group, sent)
        member, is_new = self._member(group, sent, now_ms)
        had, meta = member.current, _told(member.meta, sent)
        self.advance(group, result, member, meta, sent.owned, now_ms, is_new=is_new, seen=seen)
        is_told = sent.is_full or sent.epoch != had.epoch or member.current.assigned != had.assigned
        answer = ConsumerHeartbeatAnswer(
            ErrorCode.NONE,
            None,
            member.member_id,
            member.current.epoch,
            self.config.consumer_heartbeat_interval_ms,
            tuple(sorted(member.current.assigned)) if is_told else None,
        )
        result.reply(sent.request, answer)

    def advance(
        self,
        group: ConsumerGroup,
        result: ShardResult,
        member: ConsumerMember,
        meta: ConsumerMeta,
        owned: Partitions | None,
        now_ms: int,
        *,
        is_new: bool,
        seen: frozenset[str] | None = None,
    ) -> None:
        """Take what a member says of itself, `meta`, and of its partitions, `owned`: the group may change by
        it, and the member moves towards its target. `seen` is what its regular expression matches, if that
        was looked for."""
        had = member.current
        was_subscribed = None if is_new else member.subscribed()
        member.meta = meta
        if seen is not None:
            member.seen = seen
            group.unmatched.discard(member.member_id)
        if member.subscribed() != was_subscribed or group.is_restored:
            topics = topics_named(self._cluster, group.subscribed())
            if member.subscribed() != was_subscribed or topics != group.topics:
                group.epoch += 1
            group.topics, group.is_restored = topics, False
        if group.epoch > group.assignment_epoch:
            self._assign(group)
        group.give(
            member,
            reconciled(
                member.current,
                member.target,
                group.assignment_epoch,
                owned,
                lambda partition: group.is_free_for(member, partition),
            ),
        )
        self.keep_alive(group, member, now_ms)
        self._await_revocation(group, member, had, now_ms)
        self.persist(group, result)

    def leave(self, group: ConsumerGroup, result: ShardResult, sent: ConsumerHeartbeat, now_ms: int) -> None:
        """A heartbeat of a member that leaves. A static member that leaves for now keeps its partitions until
        its session ends. Raises MemberRefused."""
        member = self.known(group, sent.member_id, sent.instance_id)
        if sent.epoch == LEAVES_FOR_NOW and member.meta.instance_id is None:
            raise MemberRefused(ErrorCode.INVALID_REQUEST, "only a static member can leave with epoch -2")
        if sent.epoch != LEAVES_FOR_NOW:
            self.remove(group, result, member.member_id, now_ms)
        elif member.current.state is not MemberState.AWAY:
            away = member.current.after(MemberEvent.GOES_AWAY, revoking=frozenset())
            group.give(member, away)
            self._timers.cancel(TimerKey(group.group_id, TimerKind.REVOKE, member.member_id))
            self.persist(group, result)
        answer = ConsumerHeartbeatAnswer(ErrorCode.NONE, None, sent.member_id, sent.epoch)
        result.reply(sent.request, answer)

    # Other events

    def resume(self, group: ConsumerGroup, now_ms: int) -> None:
        """Set the deadlines of a restored group."""
        for member in group.members.values():
            self.keep_alive(group, member, now_ms)
            if member.current.state is MemberState.UNREVOKED and member.meta.classic is None:
                self._set_revocation(group, member, now_ms)
        if not group.members:
            group.empty_since_ms = now_ms

    def topics_changed(
        self, group: ConsumerGroup, result: ShardResult, topics: Collection[str], now_ms: int
    ) -> None:
        """Some of `topics` may have been created, deleted or given more partitions. Regular expressions are
        matched again at their members' next heartbeats."""
        group.unmatched.update(each.member_id for each in group.members.values() if each.meta.regex)
        subscribed = group.subscribed()
        if subscribed.isdisjoint(topics):
            return
        now = topics_named(self._cluster, subscribed)
        if now != group.topics:
            group.topics = now
            group.epoch += 1
            self.persist(group, result)

    def remove(self, group: ConsumerGroup, result: ShardResult, member_id: str, now_ms: int) -> None:
        """Remove a member. The others get its partitions with their next heartbeats."""
        member = group.members[member_id]
        member.current.after(MemberEvent.ENDS)
        group.remove(member_id, now_ms)
        self._forget_timers_of(group, member_id)
        group.epoch += 1
        group.topics = topics_named(self._cluster, group.subscribed())
        self.persist(group, result)

    def keep_alive(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        """Set the end of a member's session: a member of the classic protocol has its own timeout."""
        classic = member.meta.classic
        session_ms = (
            self.config.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
        )
        key = TimerKey(group.group_id, TimerKind.SESSION, member.member_id)
        self._timers.set(key, now_ms + session_ms)

    def forget_timers(self, group: ConsumerGroup) -> None:
        for member_id in group.members:
            self._forget_timers_of(group, member_id)

    def persist(self, group: ConsumerGroup, result: ShardResult) -> None:
        """Write what the log does not have of the group."""
        before, after = group.durable, group.to_value()
        records = list(changes(group.group_id, before, after))
        if records:
            result.groups_before.setdefault(group.group_id, before)
            result.records += records
            group.durable = after

    def delete(self, group: ConsumerGroup, result: ShardResult) -> None:
        """Delete an empty group's records."""
        group.is_dead = True
        self.forget_timers(group)
        result.groups_before.setdefault(group.group_id, group.durable)
        result.records += changes(group.group_id, group.durable, None)
        group.durable = None

    # Who sends a heartbeat

    def _member(
        self, group: ConsumerGroup, sent: ConsumerHeartbeat, now_ms: int
    ) -> tuple[ConsumerMember, bool]:
        """The member that sends a heartbeat, and whether it is new."""
        if sent.epoch != JOINS:
            member = self.known(group, sent.member_id, sent.instance_id)
            _check_epoch(member, sent)
            return member, False
        former = group.members.get(sent.member_id)
        if sent.instance_id is not None:
            current_id = group.static_members.get(sent.instance_id)
            if current_id is not None and current_id != sent.member_id:
                _check_released(group.members[current_id])
                return self.replaced(group, group.members[current_id], sent.member_id, now_ms), False
            if current_id is None and former is not None:
                raise MemberRefused(ErrorCode.INVALID_REQUEST, "a member cannot become another instance")
        if former is not None:
            self._join_again(group, former)
            return former, False
        return self.added(group, sent.member_id, sent.instance_id), True

    def added(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        """A new member. Raises MemberRefused if the group is full."""
        if len(group.members) >= self.config.consumer_max_size:
            raise MemberRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the group has group.consumer.max.size={self.config.consumer_max_size} members",
            )
        member = ConsumerMember(member_id, ConsumerMeta(instance_id, None, "", "", (), "", -1, ""))
        group.add(member)
        return member

    def known(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member that sends a request. Raises MemberRefused if the group has no such member, or another
        one under this instance id."""
        if instance_id is not None:
            current_id = group.static_members.get(instance_id)
            if current_id is None:
                raise MemberRefused(ErrorCode.UNKNOWN_MEMBER_ID, "no member has this group instance id")
            if current_id != member_id:
                raise MemberRefused(
                    ErrorCode.FENCED_INSTANCE_ID, "another member has joined with this group instance id"
                )
        member = group.members.get(member_id)
        if member is None:
            raise MemberRefused(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no such member: join again")
        return member

    def _join_again(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A member begins anew: its answer was lost, or it was fenced. It says that it has nothing; a static
        one that was away gets what it had."""
        kept = member.current.assigned if member.current.state is MemberState.AWAY else frozenset()
        self._forget_timers_of(group, member.member_id)
        group.give(member, CurrentAssignment(assigned=kept))

    def replaced(
        self, group: ConsumerGroup, former: ConsumerMember, member_id: str, now_ms: int
    ) -> ConsumerMember:
        """A static member comes back under another id, and gets what it had."""
        back = former.current.after(
            MemberEvent.COMES_BACK, epoch=JOINS, previous_epoch=JOINS, revoking=NO_PARTITIONS
        )
        group.remove(former.member_id, now_ms)
        self._forget_timers_of(group, former.member_id)
        member = ConsumerMember(member_id, former.meta, former.target, seen=former.seen)
        group.add(member)
        group.give(member, back)
        return member

    def _matched(self, group: ConsumerGroup, sent: ConsumerHeartbeat) -> frozenset[str] | None:
        """The topics that a member's regular expression matches; None if they need not be looked for."""
        member = group.members.get(sent.member_id)
        regex = sent.regex
        if regex is None and member is not None and sent.member_id in group.unmatched:
            regex = member.meta.regex
        if not regex:
            return None
        try:
            return topics_matching(self._cluster, regex, sent.may_see)
        except RegexRefused as refused:
            raise MemberRefused(ErrorCode.INVALID_REGULAR_EXPRESSION, str(refused)) from None

    # Targets

    def _assign(self, group: ConsumerGroup) -> None:
        """Make the target assignment of the group's epoch."""
        ids = {topic.name: topic.topic_id for topic in group.topics}
        had = {member.member_id: group.named(member.target) for member in group.members.values()}
        assigned = self.assignors[self.assignor_name(group)](
            {member.member_id: member.subscribed() for member in group.members.values()},
            {topic.name: topic.partitions for topic in group.topics},
            had,
        )
        for member in group.members.values():
            share = frozenset(
                IdPartition(ids[topic], number) for topic, number in assigned.get(member.member_id, ())
            )
            if share != member.target:
                member.target = share
        group.assignment_epoch = group.epoch

    def assignor_name(self, group: ConsumerGroup) -> str:
        """The assignor that most members ask for; the first of the broker's if none does."""
        asked = Counter(each.meta.assignor for each in group.members.values() if each.meta.assignor)
        known = [name for name, _ in asked.most_common() if name in self.assignors]
        return known[0] if known else next(iter(self.assignors))

    # Deadlines

    def _await_revocation(
        self, group: ConsumerGroup, member: ConsumerMember, had: CurrentAssignment, now_ms: int
    ) -> None:
        """A member that has to give up partitions has its rebalance timeout for that; one of the classic
        protocol has it for its next JoinGroup."""
        if member.current.state is not MemberState.UNREVOKED or member.meta.classic is not None:
            self._timers.cancel(TimerKey(group.group_id, TimerKind.REVOKE, member.member_id))
        elif member.current is not had:
            self._set_revocation(group, member, now_ms)

    def _set_revocation(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        key = TimerKey(group.group_id, TimerKind.REVOKE, member.member_id)
        self._timers.set(key, now_ms + max(0, member.meta.rebalance_timeout_ms))

    def _forget_timers_of(self, group: ConsumerGroup, member_id: str) -> None:
        for kind in (TimerKind.SESSION, TimerKind.REVOKE, TimerKind.JOIN, TimerKind.SYNC):
            self._timers.cancel(TimerKey(group.group_id, kind, member_id))


def _check_epoch(member: ConsumerMember, sent: ConsumerHeartbeat) -> None:
    """A member may come with its previous epoch, if the answer with the new one was lost: then it has nothing
    beyond what it may have."""
    current = member.current
    if sent.epoch == current.epoch and current.state is not MemberState.AWAY:
        return
    is_behind = sent.epoch == current.previous_epoch and sent.epoch < current.epoch
    is_harmless = sent.owned is not None and sent.owned <= current.assigned
    if not (is_behind and is_harmless and current.state is not MemberState.AWAY):
        raise MemberRefused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member's epoch is {current.epoch}, not {sent.epoch}: give up all partitions and join again",
        )


def _check_released(former: ConsumerMember) -> None:
    """An instance id is free once its member is away. A member of the classic protocol does not say that it
    goes away: one that joins under its instance id fences it."""
    if former.current.state is not MemberState.AWAY and former.meta.classic is None:
        raise MemberRefused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            "another member has this group instance id: it has to leave first, or its session to end",
        )


def _told(meta: ConsumerMeta, sent: ConsumerHeartbeat) -> ConsumerMeta:
    """What the member has said of itself, with what it says now."""
    told = replace(
        meta,
        instance_id=meta.instance_id if sent.instance_id is None else sent.instance_id,
        rack_id=meta.rack_id if sent.rack_id is None else sent.rack_id,
        client_id=sent.client_id,
        client_host=sent.client_host,
        topics=meta.topics if sent.topics is None else tuple(sorted(set(sent.topics))),
        regex=meta.regex if sent.regex is None else sent.regex,
        rebalance_timeout_ms=(
            meta.rebalance_timeout_ms if sent.rebalance_timeout_ms == -1 else sent.rebalance_timeout_ms
        ),
        assignor=meta.assignor if sent.assignor is None else sent.assignor,
        classic=None,
    )
    return meta if told == meta else told
