"""Requests of the client rewrite's group protocol ("Consumer Group Membership APIs"): look up the group, and
handle the request or answer an error.

DeleteGroup is `GroupShard.delete_groups`, which serves groups of both types.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast_log.coordinator.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNMENT_STRATEGY
from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.effects import (
    ErrorAnswer,
    ManagedHeartbeatAnswer,
    ManagedListAnswer,
    RegisterAnswer,
    RewindAnswer,
    RewoundPartition,
    ShardResult,
)
from holdfast_log.coordinator.groups.managed_group import READER_NAME_MAX, ManagedGroup
from holdfast_log.coordinator.groups.member_memory import consumer_bytes, managed_bytes, topics_bytes
from holdfast_log.coordinator.groups.records import fits
from holdfast_log.coordinator.groups.states import GroupState
from holdfast_log.coordinator.groups.store import GroupStore
from holdfast_log.coordinator.groups.views import Group, managed_info
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition


class ManagedRequests:
    """CreateGroup, RegisterConsumer, Heartbeat, RewindConsumer and ListGroups of one shard.

    Each returns one `ShardResult`.
    """

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._rebalancer = store.managed_rebalancer

    def create_group(
        self,
        request: RequestToken,
        group_id: str,
        *,
        session_timeout_ms: int,
        topics: Sequence[str],
        now_ms: int,
        ephemeral: bool = False,
        assignment_strategy: str = "",
        single_reader: bool = False,
    ) -> ShardResult:
        """CreateGroup; idempotent, so every consumer of a group may send it at start.

        An existing group gains the missing ones of `topics`. If its other properties differ, or it is a
        classic group with members, the answer is INCONSISTENT_GROUP_PROTOCOL. An offsets-only group becomes a
        managed group and keeps its offsets.
        """
        result = ShardResult()
        strategy = assignment_strategy or DEFAULT_ASSIGNMENT_STRATEGY.value
        error = self._check_create(group_id, session_timeout_ms, topics, strategy, single_reader)
        group = self._store.groups.get(group_id)
        if error is not ErrorCode.NONE:
            result.reply(request, ErrorAnswer(error))
            return result
        known = group if isinstance(group, ManagedGroup) else None
        if not self._has_memory(known, topics_bytes([each for each in topics if not _has(known, each)])):
            result.reply(request, ErrorAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
            return result
        if isinstance(group, ManagedGroup):
            agrees = (
                group.session_timeout_ms == session_timeout_ms
                and group.ephemeral == ephemeral
                and group.assignment_strategy == strategy
                and group.single_reader == single_reader
            )
            if agrees:
                self._rebalancer.add_topics(group, result, request, topics, now_ms)
            else:
                result.reply(request, ErrorAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif group is not None and not _only_keeps_offsets(group):
            result.reply(request, ErrorAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        else:
            self._store.groups[group_id] = self._rebalancer.create(
                group_id,
                result,
                request,
                session_timeout_ms=session_timeout_ms,
                topics=topics,
                ephemeral=ephemeral,
                assignment_strategy=strategy,
                single_reader=single_reader,
                now_ms=now_ms,
            )
        return result

    def _has_memory(self, group: ManagedGroup | None, size: int) -> bool:
        """Whether `size` more bytes fit the limits of a group and of all groups."""
        held = 0 if group is None else managed_bytes(group)
        if size and held + size > self._store.config.group_bytes_max:
            return False
        return self._store.memory.has_room(size)

    def register_consumer(
        self,
        request: RequestToken,
        group_id: str,
        *,
        consumer_id: str,
        client_id: str,
        client_host: str,
        now_ms: int,
    ) -> ShardResult:
        """RegisterConsumer. The answer waits until all members that the rebalance concerns have
        registered."""
        result = ShardResult()
        group = self._find(group_id)
        if group is None:
            result.reply(request, RegisterAnswer(self._missing(group_id)))
            return result
        size = consumer_bytes(consumer_id, client_id, client_host)
        if consumer_id not in group.members and not self._has_memory(group, size):
            result.reply(request, RegisterAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
            return result
        self._rebalancer.register(
            group,
            result,
            request,
            consumer_id=consumer_id,
            client_id=client_id,
            client_host=client_host,
            now_ms=now_ms,
        )
        return result

    def heartbeat(
        self,
        request: RequestToken,
        group_id: str,
        *,
        consumer_id: str,
        generation: int,
        now_ms: int,
        session_timeout_ms: int = -1,
        rebalance_timeout_ms: int = -1,
    ) -> ShardResult:
        """Heartbeat."""
        result = ShardResult()
        group = self._find(group_id)
        if group is None:
            result.reply(request, ManagedHeartbeatAnswer(self._missing(group_id)))
            return result
        self._rebalancer.heartbeat(
            group,
            result,
            request,
            consumer_id=consumer_id,
            generation=generation,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            now_ms=now_ms,
        )
        return result

    def rewind_consumer(
        self,
        request: RequestToken,
        group_id: str,
        new_offsets: Sequence[tuple[TopicPartition, int]],
        *,
        now_ms: int,
        consumer_id: str = "",
        generation: int = -1,
    ) -> ShardResult:
        """RewindConsumer. `consumer_id` is empty if the caller is a tool and not a member.

        The caller checks that the offsets are within the log.
        """
        result = ShardResult()
        group = self._find(group_id)
        if group is None:
            error = self._missing(group_id)
            refused = [RewoundPartition(partition, -1, error) for partition, _ in new_offsets]
            result.reply(request, RewindAnswer(-1, refused))
            return result
        self._rebalancer.rewind(
            group,
            result,
            request,
            consumer_id=consumer_id,
            generation=generation,
            new_offsets=new_offsets,
            now_ms=now_ms,
        )
        return result

    def list_groups(self, request: RequestToken, group_ids: Collection[str] = ()) -> ShardResult:
        """The client rewrite's ListGroups: those named, or all. Groups that do not exist are left out."""
        result = ShardResult()
        infos = [
            managed_info(group)
            for group in self._store.groups.values()
            if isinstance(group, ManagedGroup) and (not group_ids or group.group_id in group_ids)
        ]
        result.reply(request, ManagedListAnswer(infos))
        return result

    def _find(self, group_id: str) -> ManagedGroup | None:
        group = self._store.groups.get(group_id)
        return group if isinstance(group, ManagedGroup) else None

    def _missing(self, group_id: str) -> ErrorCode:
        """The error to answer when `_find` returns None."""
        if group_id in self._store.groups:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.GROUP_ID_NOT_FOUND

    def _check_create(
        self,
        group_id: str,
        session_timeout_ms: int,
        topics: Sequence[str],
        strategy: str,
        single_reader: bool,
    ) -> ErrorCode:
        if not group_id or not fits(group_id) or (single_reader and len(group_id) > READER_NAME_MAX):
            return ErrorCode.INVALID_GROUP_ID
        if not self._store.config.allows_session_timeout(session_timeout_ms):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not all(topic and fits(topic) for topic in topics):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if strategy not in ASSIGNORS:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE


def _only_keeps_offsets(group: Group) -> bool:
    return isinstance(group, ClassicGroup) and group.is_simple and group.state is GroupState.EMPTY


def _has(group: ManagedGroup | None, topic: str) -> bool:
    """Whether the topic is one of the group's."""
    return group is not None and topic in group.partitions
