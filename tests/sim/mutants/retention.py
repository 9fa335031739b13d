"""Bugs of retention: records that go too early, or come back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.log import after_checkpoint, epoch_recovery, manager, names, recovery, segment_times
from holdfast_log.broker.log.directory import LogDirectory, MadeLater
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.retention import Removal, SegmentFacts, removal
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.segments import Segments
from holdfast_log.broker.log.truncation import SEGMENTS_AT_ONCE, discard_before_start
from holdfast_log.broker.replication import fetcher, record_deletions, retention
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.retention import Retention
from holdfast_log.protocol.messages.fetch import FetchPartition
from tests.sim.mutation import Mutation, Patch


def _with(**changed: Any) -> Sequence[Patch]:
    def mutant(segments: Any, rule: Any, **known: Any) -> Removal:
        return removal(segments, rule, **(known | changed))

    return [(retention, "removal", mutant)]


def _go_beyond_the_high_watermark() -> Sequence[Patch]:
    return _with(high_watermark=1 << 60)


def _carry_out_first_decision() -> Sequence[Patch]:
    decide, first = Retention._decide, dict[Partition, Removal]()

    def mutant(self: Retention, partition: Partition) -> Removal:
        if partition in first:
            return replace(first.pop(partition), unread=None)
        decided = decide(self, partition)
        if decided.unread is not None:
            first[partition] = decided
        return decided

    return [(Retention, "_decide", mutant)]


def _count_the_age_of_the_first_record() -> Sequence[Patch]:
    def first_ms(log: Log, segment: Segment, now_ms: int) -> int | None:
        first = next(segment.headers(0), None)
        return None if first is None else first.max_timestamp

    return [(segment_times, "_latest_ms", first_ms)]


def _believe_any_timestamp() -> Sequence[Patch]:
    def mutant(log: Log, segment: Segment, latest_ms: int, now_ms: int) -> int:
        return latest_ms

    return [(segment_times, "believed_ms", mutant)]


def _keep_the_age_of_removed_records() -> Sequence[Patch]:
    replace_segments = Segments.replace

    def mutant(self: Segments, old: Sequence[Segment], new: Segment) -> list[str]:
        new.indexes.max_timestamp = max(segment.indexes.max_timestamp or 0 for segment in old)
        return replace_segments(self, old, new)

    return [(Segments, "replace", mutant)]


def _end_segments_with_their_last_records() -> Sequence[Patch]:
    facts = segment_times.segment_facts

    def mutant(log: Log, now_ms: int) -> list[SegmentFacts]:
        pairs = zip(log.segments, facts(log, now_ms), strict=True)
        return [replace(fact, next_offset=segment.next_offset) for segment, fact in pairs]

    return [(retention, "segment_facts", mutant)]


def _shorten_below_the_limit() -> Sequence[Patch]:
    def mutant(segments: Any, rule: Any, *, size_bytes: int, **known: Any) -> Removal:
        return removal(segments, rule, size_bytes=size_bytes + 1000, **known)

    return [(retention, "removal", mutant)]


def _discard_the_active_segment() -> Sequence[Patch]:
    before = Segments.before

    def mutant(self: Segments, offset: int) -> list[Segment]:
        found = before(self, offset)
        return [*found, self.active] if found and len(found) == len(self) - 1 else found

    return [(Segments, "before", mutant)]


def _remove_nothing_more_after_a_restart() -> Sequence[Patch]:
    return [(Retention, "_read_timestamp", lambda self, partition, base_offset: succeed(False))]


def _write_no_starts() -> Sequence[Patch]:
    checkpoints = LogDirectory.offset_checkpoints

    def without_starts(self: LogDirectory) -> dict[str, MadeLater]:
        return {
            path: data
            for path, data in checkpoints(self).items()
            if not path.endswith(names.LOG_START_OFFSETS)
        }

    return [(LogDirectory, "offset_checkpoints", without_starts)]


def _remove_before_the_start_is_durable() -> Sequence[Patch]:
    init = Retention.__init__

    def mutant(self: Retention, replicas: Any, write_starts: Any, *more: Any) -> None:
        def begin() -> Deferred[None]:
            write_starts()
            return succeed(None)

        init(self, replicas, begin, *more)

    return [(Retention, "__init__", mutant)]


def _delete_before_the_start_is_durable() -> Sequence[Patch]:
    def at_once(checkpoints: Any, directory: Any, log: Log) -> None:
        discard_before_start(log, log.log_start_offset, SEGMENTS_AT_ONCE)
        checkpoints.write_offsets_of(directory)

    return [(manager, "remove_before_start", at_once)]


def _delete_up_to_a_later_start() -> Sequence[Patch]:
    def mutant(log: Log, durable_start: int, segments_max: int) -> int:
        return discard_before_start(log, log.log_start_offset, segments_max)

    return [(after_checkpoint, "discard_before_start", mutant), (retention, "discard_before_start", mutant)]


def _count_a_start_before_its_checkpoint() -> Sequence[Patch]:
    delete = record_deletions.delete_records

    def mutant(partition: Partition, offset: int) -> int:
        start = delete(partition, offset)
        partition.log.durable_start_offset = partition.log.log_start_offset
        return start

    return [(record_deletions, "delete_records", mutant)]


def _tell_a_start_before_its_checkpoint() -> Sequence[Patch]:
    wanted = fetcher.wanted

    def mutant(partition: Partition, max_bytes: int) -> FetchPartition:
        return replace(wanted(partition, max_bytes), log_start_offset=partition.log.log_start_offset)

    return [(fetcher, "wanted", mutant)]


def _forget_the_epochs_of_an_emptied_log() -> Sequence[Patch]:
    load = epoch_recovery.load_epochs

    def mutant(loading: Any, log_start_offset: int, end_offset: int) -> None:
        load(loading, log_start_offset, end_offset)
        loading.epochs.truncate_to(end_offset)

    return [(recovery, "load_epochs", mutant)]


def _compare_the_epochs_of_removed_records() -> Sequence[Patch]:
    def mutant(self: Log, offset: int, epoch: int) -> bool:
        return self.epochs.epoch_at(offset) == epoch

    return [(Log, "may_have_epoch", mutant)]


MUTATIONS = (
    Mutation(
        "retention-beyond-high-watermark",
        "a replica removes old records that are not committed",
        _go_beyond_the_high_watermark,
    ),
    Mutation(
        "age-of-first-record",
        "a segment is as old as its first record, and goes with younger ones",
        _count_the_age_of_the_first_record,
    ),
    Mutation(
        "shortened-below-limit",
        "retention by size leaves less than retention.bytes",
        _shorten_below_the_limit,
    ),
    Mutation(
        "active-segment-discarded",
        "the files of the segment that takes the appends go with the closed ones before it",
        _discard_the_active_segment,
    ),
    Mutation(
        "old-segments-forgotten",
        "a broker removes no segment that an earlier process wrote",
        _remove_nothing_more_after_a_restart,
    ),
)

RARE = (
    Mutation(
        "removal-decided-once",
        "retention removes what it decided before it waited for a timestamp to be read",
        _carry_out_first_decision,
    ),
    Mutation(
        "age-of-removed-record",
        "a compacted segment is as old as a record that compaction has removed from it",
        _keep_the_age_of_removed_records,
    ),
    Mutation(
        "kept-before-gap",
        "retention keeps a segment if compaction has left a gap between it and the next one",
        _end_segments_with_their_last_records,
    ),
    Mutation(
        "condition-on-removed-record",
        "a condition on the last record fails once retention has removed that record",
        _compare_the_epochs_of_removed_records,
    ),
    Mutation(
        "epoch-of-emptied-log-lost",
        "a log whose records have all expired no longer says in which epoch they were written",
        _forget_the_epochs_of_an_emptied_log,
    ),
    Mutation(
        "kept-until-the-future",
        "one record with a timestamp in a thousand years keeps its log for a thousand years",
        _believe_any_timestamp,
    ),
    Mutation(
        "start-not-checkpointed",
        "no checkpoint has the log start: a power failure brings removed records back",
        _write_no_starts,
    ),
    Mutation(
        "removed-before-start-durable",
        "segments are removed while the checkpoint still has the old log start",
        _remove_before_the_start_is_durable,
    ),
    Mutation(
        "deleted-before-start-durable",
        "DeleteRecords removes segments while the checkpoint still has the old log start",
        _delete_before_the_start_is_durable,
    ),
    Mutation(
        "own-start-counts-before-durable",
        "a client is told that records are deleted before a checkpoint of the leader has the new log start",
        _count_a_start_before_its_checkpoint,
    ),
    Mutation(
        "start-told-before-durable",
        "a follower tells its leader of a log start that no checkpoint has yet",
        _tell_a_start_before_its_checkpoint,
    ),
    Mutation(
        "deleted-up-to-later-start",
        "a checkpoint has a log start, and segments up to a later one are removed",
        _delete_up_to_a_later_start,
    ),
)
"""Bugs that only a restart after certain steps shows. `tests/sim/test_rare_bugs.py` catches them by fixed
scenarios."""
