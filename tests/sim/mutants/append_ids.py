"""Bugs of the ids of conditional appends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast_log.broker.log.append_ids import AppendIds
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.replication import following
from holdfast_log.broker.replication.appends import Append
from tests.sim.mutation import Mutation, Patch


def _forget_at_failover() -> Sequence[Patch]:
    append = following.append_as_follower

    def mutant(log: Log, *arguments: Any, **keywords: Any) -> Any:
        producers = log.producers
        append_ids, producers.append_ids = producers.append_ids, AppendIds()
        try:
            return append(log, *arguments, **keywords)
        finally:
            producers.append_ids = append_ids

    return [(following, "append_as_follower", mutant)]


def _keep_after_truncation() -> Sequence[Patch]:
    clear, restore = ProducerStates.clear, AppendIds.restore

    def clear_all_else(self: ProducerStates, map_end_offset: int) -> None:
        append_ids, self.append_ids = self.append_ids, AppendIds()
        clear(self, map_end_offset)
        self.append_ids = append_ids

    def restore_beside(self: AppendIds, rows: memoryview) -> None:
        kept = self._appends
        restore(self, rows)
        self._appends = {**kept, **self._appends}

    return [(ProducerStates, "clear", clear_all_else), (AppendIds, "restore", restore_beside)]


def _answer_before_commit() -> Sequence[Patch]:
    is_settled = Append.is_settled

    def mutant(self: Append, acks: int) -> bool:
        return (self.error is None and self.is_repeat) or is_settled(self, acks)

    return [(Append, "is_settled", mutant)]


def _skip_at_recovery() -> Sequence[Patch]:
    return [(AppendIds, "restore", lambda self, rows: None)]


MUTATIONS = (
    Mutation(
        "append-id-forgotten-at-failover",
        "a follower does not remember the append ids in the batches that it copies",
        _forget_at_failover,
    ),
    Mutation(
        "append-id-kept-after-truncation",
        "a log still knows the append ids of batches that a truncation removed",
        _keep_after_truncation,
    ),
    Mutation(
        "append-id-answered-before-commit",
        "a repeated append is acknowledged before the first is committed",
        _answer_before_commit,
    ),
    Mutation(
        "append-id-not-in-snapshot",
        "a recovered log knows the append ids since its last snapshot only",
        _skip_at_recovery,
    ),
)
