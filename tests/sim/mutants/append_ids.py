"""Bugs of the ids of conditional appends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast_log.broker.log import producer_state
from holdfast_log.broker.log.append_ids import AppendIds, NamedAppend
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.replication import conditions, following
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

    def restore_beside(self: AppendIds, rows: memoryview, end_offset: int) -> None:
        kept = dict(self._appends)
        restore(self, rows, end_offset)
        for append_id, append in kept.items():
            if self.find(append_id) is None:
                self.add(append_id, append)

    return [(ProducerStates, "clear", clear_all_else), (AppendIds, "restore", restore_beside)]


def _answer_before_commit() -> Sequence[Patch]:
    is_settled = Append.is_settled

    def mutant(self: Append, acks: int) -> bool:
        return (self.error is None and self.is_repeat) or is_settled(self, acks)

    return [(Append, "is_settled", mutant)]


def _skip_at_recovery() -> Sequence[Patch]:
    def mutant(self: AppendIds, rows: memoryview, end_offset: int) -> None:
        self.clear(0)

    return [(AppendIds, "restore", mutant)]


def _judge_by_offset_alone() -> Sequence[Patch]:
    return [(conditions, "_unknown_id_refusal", lambda append, partition, condition: None)]


def _keep_no_bound() -> Sequence[Patch]:
    restore = AppendIds.restore

    def mutant(self: AppendIds, rows: memoryview, end_offset: int) -> None:
        restore(self, rows, end_offset)
        self.known_from = 0

    return [(AppendIds, "restore", mutant)]


def _never_raise_the_bound() -> Sequence[Patch]:
    return [(AppendIds, "skip_to", lambda self, offset: None)]


def _take_other_content() -> Sequence[Patch]:
    named = producer_state.named_append_of

    def mutant(buffer: Any, header: Any) -> Any:
        found = named(buffer, header)
        return None if found is None else (found[0], None)

    return [(producer_state, "named_append_of", mutant)]


def _know_what_was_never_copied() -> Sequence[Patch]:
    clear = AppendIds.clear
    return [(AppendIds, "clear", lambda self, known_from: clear(self, 0))]


def _forget_the_oldest() -> Sequence[Patch]:
    def mutant(self: AppendIds, newest: NamedAppend) -> bytes:
        return next(iter(self._appends))

    return [(AppendIds, "_least_needed", mutant)]


def _count_by_producer() -> Sequence[Patch]:
    add = AppendIds.add

    def mutant(self: AppendIds, append_id: bytes, append: NamedAppend, source: str = "") -> None:
        add(self, append_id, append)

    return [(AppendIds, "add", mutant)]


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
    Mutation(
        "append-id-forgotten-means-absent",
        "an append whose id the broker may have forgotten is judged by the expected offset alone",
        _judge_by_offset_alone,
    ),
    Mutation(
        "append-id-bound-not-in-snapshot",
        "a recovered log takes the ids that it remembers for all there are",
        _keep_no_bound,
    ),
    Mutation(
        "append-id-bound-stays",
        "a log that forgets an id, or cannot have seen it, takes the ids that it remembers for all there are",
        _never_raise_the_bound,
    ),
    Mutation(
        "append-id-content-unchecked",
        "a repetition with other records is acknowledged as the append of its id",
        _take_other_content,
    ),
)

RARE = (
    Mutation(
        "append-id-of-deleted-record-denied",
        "a replica that began behind deleted records says that their append ids are not there",
        _know_what_was_never_copied,
    ),
    Mutation(
        "append-id-forgotten-for-strangers",
        "appends of one producer make a log forget the ids of others",
        _forget_the_oldest,
    ),
    Mutation(
        "append-ids-counted-by-producer",
        "a client that appends with ever other producer ids makes a log forget the append ids of others",
        _count_by_producer,
    ),
)
