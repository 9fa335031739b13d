"""Requests of consumer groups (KIP-848): look up the group, and handle the request or answer an error.

A group that only has offsets, or a classic group, becomes a consumer group with its first heartbeat: one
without members always, and one with members if `group.consumer.migration.policy` allows it (migration.py).
A consumer group without members becomes a classic one with its first JoinGroup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.consumer_group import (
    JOINS,
    LEAVES,
    LEAVES_FOR_NOW,
    ConsumerGroup,
    ConsumerHeartbeat,
    ConsumerMember,
)
from holdfast_log.coordinator.groups.consumer_kind import ConsumerKind
from holdfast_log.coordinator.groups.consumer_rebalance import ConsumerRebalancer, MemberRefused
from holdfast_log.coordinator.groups.effects import ConsumerGroupInfo, ConsumerHeartbeatAnswer, ShardResult
from holdfast_log.coordinator.groups.member_memory import consumer_group_bytes, topics_bytes
from holdfast_log.coordinator.groups.records import fits
from holdfast_log.coordinator.groups.store import GroupStore
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.errors import ErrorCode

_INSTANCE_ID_LENGTH_MAX = 249  # the limit of Kafka's own clients


class ConsumerRequests:
    """ConsumerGroupHeartbeat and ConsumerGroupDescribe of one shard. Each returns one `ShardResult`."""

    def __init__(self, store: GroupStore, new_id: Callable[[], str]) -> None:
        self._store = store
        self._rebalancer: ConsumerRebalancer = store.consumer_rebalancer
        self._kind = ConsumerKind(store.consumer_rebalancer, store.offsets)
        self._new_id = new_id

    def heartbeat(self, group_id: str, sent: ConsumerHeartbeat, now_ms: int) -> ShardResult:
        """ConsumerGroupHeartbeat."""
        result = ShardResult()
        try:
            self._check(group_id, sent)
            if sent.epoch in (LEAVES, LEAVES_FOR_NOW):
                self._rebalancer.leave(self._existing(group_id), result, sent, now_ms)
            elif sent.epoch == JOINS:
                self._join(group_id, result, sent, now_ms)
            else:
                group = self._existing(group_id, ErrorCode.UNKNOWN_MEMBER_ID)
                self._check_memory(group, sent)
                self._rebalancer.heartbeat(group, result, sent, now_ms)
        except MemberRefused as refused:
            answer = ConsumerHeartbeatAnswer(refused.error, str(refused))
            result.reply(sent.request, answer)
        self._store.settle(group_id, result, now_ms)
        return result

    def describe(self, request: RequestToken, group_id: str) -> ShardResult:
        """ConsumerGroupDescribe, one group at a time."""
        result = ShardResult()
        group = self._store.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            result.reply(request, self._kind.info(group))
        else:
            message = f"there is no consumer group {group_id[:200]}"
            result.reply(request, ConsumerGroupInfo(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message))
        return result

    def _join(self, group_id: str, result: ShardResult, sent: ConsumerHeartbeat, now_ms: int) -> None:
        found = self._store.groups.get(group_id)
        match found:
            case None:
                group = ConsumerGroup(group_id)
            case ConsumerGroup():
                group = found
            case ClassicGroup():
                group = self._store.migration.upgraded(found)
            case _:
                raise MemberRefused(ErrorCode.GROUP_ID_NOT_FOUND, "the group is one of the own protocol")
        self._check_memory(group, sent)
        if not sent.member_id:
            sent = replace(sent, member_id=self._new_id())
        self._rebalancer.heartbeat(group, result, sent, now_ms)
        if isinstance(found, ClassicGroup):
            self._store.migration.upgrade(found, group, result, now_ms)
        self._store.groups[group_id] = group

    def _existing(self, group_id: str, missing: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND) -> ConsumerGroup:
        """The group, or the error for one that is of another protocol or, `missing`, does not exist: its
        members have to join again."""
        group = self._store.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        error = missing if group is None else ErrorCode.GROUP_ID_NOT_FOUND
        raise MemberRefused(error, "there is no such consumer group")

    def _check(self, group_id: str, sent: ConsumerHeartbeat) -> None:
        """Raises MemberRefused for a request that is invalid for any group."""
        if not group_id or not fits(group_id):
            _refuse("the group id is empty or too long")
        names = (sent.member_id, sent.instance_id, sent.rack_id, sent.client_id, sent.client_host)
        if not fits(*names, sent.regex, sent.assignor) or not fits(*(sent.topics or ())):
            _refuse("a string of the request is too long")
        if sent.instance_id is not None and not 0 < len(sent.instance_id) <= _INSTANCE_ID_LENGTH_MAX:
            _refuse(f"a group instance id has 1 to {_INSTANCE_ID_LENGTH_MAX} characters")
        if sent.rack_id == "":
            _refuse("the rack id is empty: leave it out")
        if sent.epoch < LEAVES_FOR_NOW:
            _refuse(f"there is no member epoch {sent.epoch}")
        if not sent.member_id and (sent.names_itself or sent.epoch != JOINS):
            _refuse("the member id is empty")
        if sent.epoch == LEAVES_FOR_NOW and sent.instance_id is None:
            _refuse("only a static member, which has a group instance id, can leave with epoch -2")
        if sent.epoch == JOINS:
            _check_first(sent)
        if sent.assignor and sent.assignor not in self._rebalancer.assignors:
            known = ", ".join(self._rebalancer.assignors)
            raise MemberRefused(
                ErrorCode.UNSUPPORTED_ASSIGNOR, f"group.consumer.assignors has {known}, nothing else"
            )

    def _check_memory(self, group: ConsumerGroup, sent: ConsumerHeartbeat) -> None:
        """Raises MemberRefused if a new subscription is over the limit of a member, a group or all."""
        member = group.members.get(sent.member_id)
        topics = frozenset(sent.topics or ())
        if member is not None and _adds_nothing(member, topics, sent.regex):
            return
        config = self._store.config
        size = topics_bytes(topics) + len(sent.regex or "") + len(sent.member_id) + _MEMBER_BYTES
        if size > config.subscription_bytes_max:
            _too_large("the subscription", "group.subscription.max.bytes", config.subscription_bytes_max)
        held = consumer_group_bytes(group, without=sent.member_id)
        if held + size > config.group_bytes_max:
            _too_large("what the group holds", "group.members.max.bytes", config.group_bytes_max)
        if not self._store.memory.has_room(size):
            _too_large("what all groups hold", "groups.members.max.bytes", config.all_groups_bytes_max)


_MEMBER_BYTES = 1_000
"""At least what a member costs besides its subscription."""


def _adds_nothing(member: ConsumerMember, topics: frozenset[str], regex: str | None) -> bool:
    return topics.issubset(member.meta.topics) and (regex is None or regex == member.meta.regex)


def _check_first(sent: ConsumerHeartbeat) -> None:
    if sent.rebalance_timeout_ms < 0:
        _refuse("the first heartbeat needs a rebalance timeout")
    if sent.owned is None or sent.owned:
        _refuse("a member that joins has no partitions: the list has to be empty")
    if sent.topics is None and sent.regex is None:
        _refuse("the first heartbeat needs topics, or a regular expression for them")


def _refuse(message: str) -> None:
    raise MemberRefused(ErrorCode.INVALID_REQUEST, message)


def _too_large(what: str, setting: str, limit: int) -> None:
    raise MemberRefused(
        ErrorCode.GROUP_MAX_SIZE_REACHED, f"{what} would be larger than {setting}={limit} allows"
    )
