"""Members of the classic protocol in a consumer group: how the two protocols meet while a group migrates.

Such a member sends JoinGroup, SyncGroup and Heartbeat, and is otherwise a member like the others: it has a
target, and moves towards it. Its generation is its epoch. JoinGroup says what it has and moves it, SyncGroup
tells it what it may read, and Heartbeat tells it to join again whenever that would move it. No request waits
for other members, and nobody leads. Behaviour follows Kafka's coordinator (KIP-848, section on migration).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from holdfast_log.coordinator.groups.classic_group import ClassicCaller
from holdfast_log.coordinator.groups.classic_join import Join
from holdfast_log.coordinator.groups.classic_rebalance import Sync
from holdfast_log.coordinator.groups.consumer_assignment import MemberState
from holdfast_log.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from holdfast_log.coordinator.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE, encode_assignment
from holdfast_log.coordinator.groups.consumer_rebalance import ConsumerRebalancer, MemberRefused
from holdfast_log.coordinator.groups.consumer_records import ClassicMetadata, ConsumerMeta
from holdfast_log.coordinator.groups.consumer_topics import ClusterTopics, partitions_named
from holdfast_log.coordinator.groups.deadlines import TimerKey, TimerKind
from holdfast_log.coordinator.groups.effects import ErrorAnswer, JoinAnswer, ShardResult, SyncAnswer
from holdfast_log.coordinator.groups.records import fits
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.coordinator.timers import Timers
from holdfast_log.protocol.consumer_protocol import Subscription, decode_subscription, flat
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.schema import MalformedMessage


class ClassicMembers:
    """Handles the requests of classic members of consumer groups. `new_id` makes the random part of member
    ids."""

    def __init__(
        self,
        rebalancer: ConsumerRebalancer,
        timers: Timers[TimerKey],
        cluster: ClusterTopics,
        new_id: Callable[[], str],
    ) -> None:
        self._rebalancer = rebalancer
        self._timers = timers
        self._cluster = cluster
        self._new_id = new_id

    def join(self, group: ConsumerGroup, result: ShardResult, join: Join, now_ms: int) -> None:
        """JoinGroup: the member joins, or moves towards its target. It is answered at once."""
        try:
            self._join(group, result, join, now_ms)
        except MemberRefused as refused:
            result.reply(join.request, JoinAnswer(refused.error, join.member_id))

    def sync(self, group: ConsumerGroup, result: ShardResult, sync: Sync, now_ms: int) -> None:
        """SyncGroup: the member is told what it may read."""
        try:
            member, classic = self._checked(group, sync.caller)
            name = classic.protocols[0][0]
            is_type = sync.protocol_type in (None, CONSUMER_PROTOCOL_TYPE)
            if not is_type or sync.protocol_name not in (None, name):
                raise MemberRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "its JoinGroup named another one")
            # One that is giving up partitions has joined, and is told to join again once it has.
            if group.epoch > member.current.epoch and member.current.state is not MemberState.UNREVOKED:
                self._await_join(group, member, now_ms)
                raise MemberRefused(ErrorCode.REBALANCE_IN_PROGRESS, "the group has changed")
        except MemberRefused as refused:
            result.reply(sync.request, SyncAnswer(refused.error))
            return
        self._timers.cancel(TimerKey(group.group_id, TimerKind.SYNC, member.member_id))
        self._rebalancer.keep_alive(group, member, now_ms)
        assignment = encode_assignment(group.named(member.current.assigned))
        result.reply(sync.request, SyncAnswer(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, name, assignment))

    def heartbeat(
        self,
        group: ConsumerGroup,
        result: ShardResult,
        request: RequestToken,
        caller: ClassicCaller,
        now_ms: int,
    ) -> None:
        """Heartbeat: REBALANCE_IN_PROGRESS asks the member to join again."""
        try:
            member, _ = self._checked(group, caller)
        except MemberRefused as refused:
            result.reply(request, ErrorAnswer(refused.error))
            return
        self._rebalancer.keep_alive(group, member, now_ms)
        error = ErrorCode.NONE
        if _would_move(group, member):
            self._await_join(group, member, now_ms)
            error = ErrorCode.REBALANCE_IN_PROGRESS
        result.reply(request, ErrorAnswer(error))

    def _join(self, group: ConsumerGroup, result: ShardResult, join: Join, now_ms: int) -> None:
        member_id = join.member_id or join.new_member_id(self._new_id())
        if not fits(member_id):
            raise MemberRefused(ErrorCode.INVALID_REQUEST, "its client id or instance id is too long")
        subscription = _subscription(group, join)
        if join.asks_member_id and join.instance_id is None and not join.member_id:
            result.reply(join.request, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return
        member, is_new = self._member(group, join, member_id, now_ms)
        meta = joined_meta(member.meta, join, subscription)
        owned = partitions_named(self._cluster, flat(subscription.owned_partitions))
        self._rebalancer.advance(group, result, member, meta, owned, now_ms, is_new=is_new, seen=frozenset())
        self._timers.cancel(TimerKey(group.group_id, TimerKind.JOIN, member_id))
        self._timers.set(
            TimerKey(group.group_id, TimerKind.SYNC, member_id), now_ms + join.rebalance_timeout_ms
        )
        answer = JoinAnswer(
            ErrorCode.NONE, member_id, member.current.epoch, CONSUMER_PROTOCOL_TYPE, join.protocols[0][0]
        )
        result.reply(join.request, answer)

    def _member(
        self, group: ConsumerGroup, join: Join, member_id: str, now_ms: int
    ) -> tuple[ConsumerMember, bool]:
        """The member that joins, and whether it is new. A dynamic one that names itself is believed: it may
        have got its id while the group was a classic one."""
        if join.instance_id is not None and join.member_id:
            return self._rebalancer.known(group, member_id, join.instance_id), False
        if join.instance_id is not None and join.instance_id in group.static_members:
            former = group.members[group.static_members[join.instance_id]]
            return self._rebalancer.replaced(group, former, member_id, now_ms), False
        if member_id in group.members:
            return group.members[member_id], False
        return self._rebalancer.added(group, member_id, join.instance_id), True

    def _checked(self, group: ConsumerGroup, caller: ClassicCaller) -> tuple[ConsumerMember, ClassicMetadata]:
        """The member that sends SyncGroup or Heartbeat. Raises MemberRefused."""
        member = self._rebalancer.known(group, caller.member_id, caller.instance_id)
        if member.meta.classic is None:
            raise MemberRefused(ErrorCode.UNKNOWN_MEMBER_ID, "the member does not use the classic protocol")
        if caller.generation != member.current.epoch:
            raise MemberRefused(ErrorCode.ILLEGAL_GENERATION, f"its generation is {member.current.epoch}")
        return member, member.meta.classic

    def _await_join(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        """A member that has been told to join again has its rebalance timeout for that."""
        key = TimerKey(group.group_id, TimerKind.JOIN, member.member_id)
        if self._timers.deadline_ms(key) is None:
            self._timers.set(key, now_ms + max(0, member.meta.rebalance_timeout_ms))


def joined_meta(meta: ConsumerMeta, join: Join, subscription: Subscription) -> ConsumerMeta:
    """What a member has said of itself, with what its JoinGroup says."""
    joined = replace(
        meta,
        instance_id=meta.instance_id if join.instance_id is None else join.instance_id,
        rack_id=meta.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=join.client_id,
        client_host=join.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        regex="",
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        assignor="",
        classic=ClassicMetadata(join.session_timeout_ms, join.protocols),
    )
    return meta if joined == meta else joined


def _would_move(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a JoinGroup would give the member another epoch, or partitions that have become free."""
    current = member.current
    if current.epoch < group.epoch or current.state is MemberState.UNREVOKED:
        return True
    return current.state is MemberState.UNRELEASED and all(
        group.is_free_for(member, partition) for partition in member.target - current.assigned
    )


def _subscription(group: ConsumerGroup, join: Join) -> Subscription:
    """The subscription in a JoinGroup. Raises MemberRefused unless the member supports a protocol that all
    classic members of the group do, and its bytes are those of a consumer."""
    names = {name for name, _ in join.protocols}
    for member in group.members.values():
        if member.meta.classic is not None and member.member_id != join.member_id:
            names.intersection_update(name for name, _ in member.meta.classic.protocols)
    if join.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
        raise MemberRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol that all members support")
    try:
        subscription = decode_subscription(join.protocols[0][1])
    except MalformedMessage as error:
        raise MemberRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None
    if not fits(subscription.rack_id, *subscription.topics):
        raise MemberRefused(ErrorCode.INVALID_REQUEST, "a string of its subscription is too long")
    return subscription
