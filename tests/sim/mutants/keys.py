"""Bugs of expected versions of keys, and of the index that knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast_log.broker.log import key_reading, key_versions
from holdfast_log.broker.log.key_memory import KEYS_MIN, KeyMemory
from holdfast_log.broker.log.key_runs import KeyRun
from holdfast_log.broker.log.key_versions import KeyVersions, MergingJob
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.replication import conditions
from tests.sim.mutation import Mutation, Patch


def _judge_nothing() -> Sequence[Patch]:
    return [(conditions, "_version_refusal", lambda append, partition, expected: None)]


def _read_no_keys_again() -> Sequence[Patch]:
    def mutant(log: Log, index: KeyVersions) -> None:
        index.end_offset = log.log_end_offset

    return [(key_reading, "next_scan", mutant)]


def _refuse_before_commit() -> Sequence[Patch]:
    refusal = conditions._version_refusal

    def mutant(append: Any, partition: Any, expected: Any) -> Any:
        error = refusal(append, partition, expected)
        append.settles_at = None
        return error

    return [(conditions, "_version_refusal", mutant)]


def _confirm_always() -> Sequence[Patch]:
    confirmed = conditions.Conditions._is_confirmed

    def mutant(self: Any, append: Any) -> bool:
        return bool(append.condition.versions) or confirmed(self, append)

    return [(conditions.Conditions, "_is_confirmed", mutant)]


def _keep_truncated_keys() -> Sequence[Patch]:
    def mutant(self: KeyVersions, offset: int, log_start_offset: int) -> None:
        self.end_offset = min(self.end_offset, offset)

    return [(KeyVersions, "truncate_to", mutant)]


def _keep_truncated_files() -> Sequence[Patch]:
    def mutant(self: KeyVersions, offset: int, log_start_offset: int) -> None:
        self.truncations += 1
        self._writing, self._is_written = None, False
        self._table = {}
        self._table_start = self.end_offset = min(self.end_offset, offset)

    return [(KeyVersions, "truncate_to", mutant)]


def _believe_any_file() -> Sequence[Patch]:
    load = KeyVersions.load

    def mutant(self: KeyVersions, found: Any, log_start_offset: int, log_end_offset: int) -> None:
        epoch_at = self._epoch_at
        epochs = {run.end_offset - 1: run.end_epoch for run in found}
        self._epoch_at = lambda offset: epochs[offset]
        load(self, found, log_start_offset, log_end_offset)
        self._epoch_at = epoch_at

    return [(KeyVersions, "load", mutant)]


def _forget_where_a_merge_begins() -> Sequence[Patch]:
    run = MergingJob.run

    def mutant(self: MergingJob) -> KeyRun:
        write = key_versions.write_run

        def from_the_first(disk: Any, path: str, entries: Any, _: int, *end: int) -> KeyRun:
            return write(disk, path, entries, self.runs[0].first_offset, *end)

        key_versions.write_run = from_the_first  # type: ignore[assignment]
        try:
            return run(self)
        finally:
            key_versions.write_run = write

    return [(MergingJob, "run", mutant)]


def _share_temporary_files() -> Sequence[Patch]:
    return [(KeyVersions, "_temporary_path", lambda self: f"{self._directory}/keys-1.tmp")]


def _grow_for_ever() -> Sequence[Patch]:
    return [(KeyVersions, "has_room", property(lambda self: True))]


MUTATIONS = (
    Mutation(
        "key-versions-not-judged",
        "a record is appended whatever version its key has",
        _judge_nothing,
    ),
    Mutation(
        "key-versions-not-rebuilt",
        "a broker that starts does not read the keys of its log again",
        _read_no_keys_again,
    ),
)


def _divide_equally() -> Sequence[Patch]:
    def mutant(self: KeyMemory, own: int) -> int:
        return max(KEYS_MIN, self._keys // (2 * max(1, self._indexes)))

    return [(KeyMemory, "keys_max", mutant)]


RARE = (
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
        "key-versions-kept-at-truncation",
        "the index of keys keeps records that a truncation removed",
        _keep_truncated_keys,
    ),
    Mutation(
        "key-files-kept-at-truncation",
        "the index of keys keeps its files when a truncation removes records that they cover",
        _keep_truncated_files,
    ),
    Mutation(
        "key-files-of-another-history",
        "the index of keys uses files that a power failure has brought back",
        _believe_any_file,
    ),
    Mutation(
        "key-files-without-first-keys",
        "a merged file does not say that it lacks the keys before the log's start",
        _forget_where_a_merge_begins,
    ),
    Mutation(
        "key-files-shared",
        "a job of an index that was switched off writes into the files of the next index",
        _share_temporary_files,
    ),
    Mutation(
        "key-table-unbounded",
        "the table of keys grows while another one is being written",
        _grow_for_ever,
    ),
    Mutation(
        "key-memory-for-nobody",
        "topics with key.versions and without keys take the memory from those that have keys",
        _divide_equally,
    ),
)
"""Bugs that a campaign rarely catches: a wrong index has to be asked about a key that changed just before a
truncation, a crash or a moved leader, and the next record with the key makes it right again.
`tests/sim/test_rare_bugs.py` catches them by fixed scenarios."""
