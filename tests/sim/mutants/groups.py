"""Bugs of the group coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.groups.partition_log import PartitionLog
from coordinator.groups import hosted_shard
from coordinator.groups.classic_group import ClassicGroup
from coordinator.groups.effects import ShardResult
from coordinator.groups.hosted_shard import HostedShard, HostState
from coordinator.groups.managed_group import ManagedGroup
from coordinator.groups.service import GroupService
from coordinator.groups.shard import GroupShard
from protocol.errors import BrokerError, ErrorCode
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


def _load_nothing() -> Sequence[Patch]:
    async def mutant(self: PartitionLog, replay: Any) -> None:
        self._leadership()

    return [(PartitionLog, "_read_all", mutant)]


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
        "groups-not-loaded",
        "a new coordinator serves its groups without having read their records",
        _load_nothing,
    ),
)
