"""Bugs of expected versions of keys, and of the index that knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.log import key_reading
from broker.log.key_versions import KeyVersions
from broker.log.log import Log
from broker.replication import conditions
from tests.sim.mutation import Mutation, Patch


def _refuse_before_commit() -> Sequence[Patch]:
    refusal = conditions._version_refusal

    def mutant(append: Any, partition: Any, expected: Any) -> Any:
        error = refusal(append, partition, expected)
        append.settles_at = None
        return error

    return [(conditions, "_version_refusal", mutant)]


def _judge_nothing() -> Sequence[Patch]:
    return [(conditions, "_version_refusal", lambda append, partition, expected: None)]


def _confirm_always() -> Sequence[Patch]:
    confirmed = conditions.Conditions._is_confirmed

    def mutant(self: Any, append: Any) -> bool:
        return bool(append.condition.versions) or confirmed(self, append)

    judge = conditions.Conditions.judge

    def judged(self: Any, appends: Any, origin: Any, acks: int) -> None:
        may_confirm = self._may_confirm
        if any(append.condition is not None and append.condition.versions for append in appends):
            self._may_confirm = lambda partition: True
        judge(self, appends, origin, acks)
        self._may_confirm = may_confirm

    return [(conditions.Conditions, "_is_confirmed", mutant), (conditions.Conditions, "judge", judged)]


def _keep_truncated_keys() -> Sequence[Patch]:
    def mutant(self: KeyVersions, offset: int, log_start_offset: int) -> None:
        self.end_offset = min(self.end_offset, offset)

    return [(KeyVersions, "truncate_to", mutant)]


def _read_no_keys_again() -> Sequence[Patch]:
    def mutant(log: Log, index: KeyVersions) -> None:
        index.end_offset = log.log_end_offset

    return [(key_reading, "next_scan", mutant)]


def _trust_files_of_another_history() -> Sequence[Patch]:
    def mutant(self: KeyVersions, offset: int, log_start_offset: int) -> None:
        self.truncations += 1
        self._writing, self._is_written = None, False
        self._table = {}
        self._table_start = self.end_offset = min(self.end_offset, offset)

    return [(KeyVersions, "truncate_to", mutant)]


MUTATIONS = (
    Mutation(
        "key-versions-not-judged",
        "a record is appended whatever version its key has",
        _judge_nothing,
    ),
    Mutation(
        "key-version-before-commit",
        "a refusal names a record that is not committed yet, and may be lost",
        _refuse_before_commit,
    ),
    Mutation(
        "key-version-of-replaced-leader",
        "a leader that may have been replaced answers with the version that it knows",
        _confirm_always,
    ),
    Mutation(
        "key-versions-lost-at-truncation",
        "the index of keys keeps records that a truncation removed",
        _keep_truncated_keys,
    ),
    Mutation(
        "key-files-kept-at-truncation",
        "the index of keys keeps its files when a truncation removes records that they cover",
        _trust_files_of_another_history,
    ),
    Mutation(
        "key-versions-not-rebuilt",
        "a broker that starts does not read the keys of its log again",
        _read_no_keys_again,
    ),
)
