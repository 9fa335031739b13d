"""Bugs of the group coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.reading import LogRead
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.shards.partition_log import PartitionLog
from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.effects import ShardResult
from holdfast_log.coordinator.groups.managed_group import ManagedGroup
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.coordinator.groups.shard import GroupShard
from holdfast_log.coordinator.shards import hosted_shard
from holdfast_log.coordinator.shards.effects import RecordsRefused
from holdfast_log.coordinator.shards.hosted_shard import HostedShard, HostState
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.sim.mutation import Mutation, Patch


def _reply_before_persisted() -> Sequence[Patch]:
    def mutant(self: HostedShard) -> bool:
        while self._unanswered:
            hosted_shard._answer(self._unanswered.popleft().replies)
        return True

    return [(HostedShard, "_settle", mutant)]


def _commit_in_any_generation() -> Sequence[Patch]:
    def mutant(self: Any, generation: int, member_id: str, instance_id: str | None) -> ErrorCode:
        return ErrorCode.NONE

    return [(ClassicGroup, "check_commit", mutant), (ManagedGroup, "check_commit", mutant)]


def _serve_while_loading() -> Sequence[Patch]:
    refusal = HostedShard.refusal

    def mutant(self: HostedShard) -> BrokerError | None:
        return None if self.state is HostState.LOADING else refusal(self)

    return [(HostedShard, "refusal", mutant)]


def _never_unload() -> Sequence[Patch]:
    return [(GroupService, "resign", lambda self, partition: None)]


def _keep_what_the_log_refused() -> Sequence[Patch]:
    def mutant(self: GroupShard, result: ShardResult, error: ErrorCode, now_ms: int) -> ShardResult:
        answers = ShardResult()
        for request, answer in result.replies:
            answers.reply(request, answer)
        return answers

    return [(GroupShard, "refused", mutant)]


def _answer_a_refusal_without_undoing() -> Sequence[Patch]:
    def mutant(self: GroupShard, result: ShardResult, error: ErrorCode, now_ms: int) -> ShardResult:
        answers = ShardResult()
        for request, _ in result.replies:
            answers.reply(request, RecordsRefused(error))
        return answers

    return [(GroupShard, "refused", mutant)]


def _load_nothing() -> Sequence[Patch]:
    async def mutant(self: PartitionLog, replay: Any, replay_open: Any) -> None:
        self._leadership()

    return [(PartitionLog, "_read_all", mutant)]


_HIGH_WATERMARKS: WeakKeyDictionary[Log, int] = WeakKeyDictionary()
"""The high watermark that this broker knew of each log when it began to lead."""


def _load_up_to_the_high_watermark() -> Sequence[Patch]:
    read, lead = Log.read, Partition.lead

    def mutant(self: Log, offset: int, max_bytes: int, *, upper_offset: int, **more: Any) -> LogRead:
        # Only a coordinator that loads its records reads without further arguments.
        if not more and self.topic_partition.topic == OFFSETS_TOPIC:
            upper_offset = min(upper_offset, _HIGH_WATERMARKS.get(self, 0))
        return read(self, offset, max_bytes, upper_offset=upper_offset, **more)

    def leading(self: Partition, *arguments: Any) -> bool:
        _HIGH_WATERMARKS[self.log] = self.high_watermark
        return lead(self, *arguments)

    return [(Log, "read", mutant), (Partition, "lead", leading)]


def _watch_no_loaded_members() -> Sequence[Patch]:
    return [(GroupShard, "loaded", lambda self, now_ms: ShardResult())]


def _answer_at_the_log_end() -> Sequence[Patch]:
    return [(PartitionLog, "committed_offset", property(lambda self: self._partition.log.log_end_offset))]


MUTATIONS = (
    Mutation(
        "reply-before-persisted",
        "commits and assignments are answered before the in-sync replicas have their records",
        _reply_before_persisted,
    ),
    Mutation(
        "commit-in-any-generation",
        "a member of an older generation may commit",
        _commit_in_any_generation,
    ),
    Mutation(
        "serve-while-loading",
        "a new coordinator answers before it has read its records",
        _serve_while_loading,
    ),
    Mutation(
        "never-unload",
        "a coordinator continues after its broker has lost leadership of the partition",
        _never_unload,
    ),
    Mutation(
        "keep-what-the-log-refused",
        "a result whose records the log refused is answered as a success and kept in memory",
        _keep_what_the_log_refused,
    ),
    Mutation(
        "refused-commit-stays",
        "a commit whose records the log refused is answered with the error, and stays in memory",
        _answer_a_refusal_without_undoing,
    ),
    Mutation(
        "groups-not-loaded",
        "a new coordinator serves its groups without having read their records",
        _load_nothing,
    ),
    Mutation(
        "groups-loaded-to-high-watermark",
        "a new coordinator reads its records up to a high watermark that lags behind",
        _load_up_to_the_high_watermark,
    ),
    Mutation(
        "group-answered-at-log-end",
        "a coordinator answers when its own log has the records, even if it no longer leads",
        _answer_at_the_log_end,
    ),
    Mutation(
        "loaded-members-not-watched",
        "a new coordinator sets no session timeout for the members that it has read from its records",
        _watch_no_loaded_members,
    ),
)
