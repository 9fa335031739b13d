"""Bugs of logs: of durability, recovery and truncation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast_log.broker.log import after_checkpoint, epoch_recovery, recovery, scan, snapshots, truncation
from holdfast_log.broker.log.arrivals import Arrivals
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.segment_indexes import SegmentIndexes
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.sim.mutation import Mutation, Patch


def _trust_whatever_has_a_header() -> Sequence[Patch]:
    return [(scan, "has_valid_crc", lambda data, header: True)]


def _keep_the_clean_mark() -> Sequence[Patch]:
    return [(LogDirectory, "begin_running", lambda self: None)]


def _forget_batches_after_the_snapshot() -> Sequence[Patch]:
    restore = snapshots.restore_producers

    def mutant(disk: Disk, directory: str, producers: ProducerStates, segments: Any, **more: Any) -> None:
        restore(disk, directory, producers, [], **more)

    return [(recovery, "restore_producers", mutant)]


def _ignore_snapshots() -> Sequence[Patch]:
    restore = snapshots.restore_producers

    def mutant(disk: Disk, directory: str, producers: ProducerStates, segments: Any, **more: Any) -> None:
        restore(disk, directory, producers, segments[-1:], **more)
        producers.clear(more["end_offset"])

    return [(recovery, "restore_producers", mutant)]


def _read_no_epochs_in_recovery() -> Sequence[Patch]:
    load = epoch_recovery.load_epochs

    def loaded(loading: Any, log_start_offset: int, end_offset: int) -> None:
        segments, loading.segments = loading.segments, []
        load(loading, log_start_offset, end_offset)
        loading.segments = segments

    return [(recovery, "load_epochs", loaded)]


def _trust_cut_logs() -> Sequence[Patch]:
    loaded = Arrivals.loaded

    def mutant(self: Arrivals, directory: LogDirectory, log: Log) -> None:
        log.is_cut_short = False
        loaded(self, directory, log)

    return [(Arrivals, "loaded", mutant)]


def _create_no_index_files() -> Sequence[Patch]:
    return [(SegmentIndexes, "create", SegmentIndexes.begin_empty)]


def _keep_snapshots_beyond_the_end() -> Sequence[Patch]:
    def mutant(disk: Disk, directory: str, *, beyond: int) -> None:
        pass

    return [(truncation, "remove_snapshots", mutant), (snapshots, "remove_snapshots", mutant)]


def _append_while_settling() -> Sequence[Patch]:
    return [
        (after_checkpoint, "begin_settling", lambda log: None),
        (after_checkpoint, "settled", lambda log: None),
    ]


def _grow_below_old_recovery_points() -> Sequence[Patch]:
    forget = LogDirectory.forget_entries

    def mutant(self: LogDirectory, partition: TopicPartition, topic_id: Any) -> bool:
        forget(self, partition, topic_id)
        return False

    return [(LogDirectory, "forget_entries", mutant)]


MUTATIONS = (
    Mutation(
        "appended-while-settling",
        "a log takes appends although the checkpoint still has the recovery point from before a truncation",
        _append_while_settling,
    ),
    Mutation(
        "recovery-trusts-headers",
        "recovery does not compare the checksums of batches",
        _trust_whatever_has_a_header,
    ),
    Mutation(
        "clean-mark-kept",
        "the mark of a clean stop stays while the broker runs, so that a crash passes for one",
        _keep_the_clean_mark,
    ),
    Mutation(
        "snapshot-without-tail",
        "a broker that starts knows no sequences of batches behind the last snapshot",
        _forget_batches_after_the_snapshot,
    ),
    Mutation(
        "snapshot-lost",
        "a broker that starts knows no sequences at all",
        _ignore_snapshots,
    ),
    Mutation(
        "epochs-not-recovered",
        "recovery believes the file of leader epochs, which lags behind the log",
        _read_no_epochs_in_recovery,
    ),
    Mutation(
        "cut-log-trusted",
        "a broker claims to have every record although recovery removed complete batches",
        _trust_cut_logs,
    ),
    Mutation(
        "index-files-late",
        "the index files of the active segment exist only once they have an entry",
        _create_no_index_files,
    ),
)

RARE = (
    Mutation(
        "cut-below-checkpoint",
        "recovery cuts a log below the recovery point in its checkpoint, and the log grows there",
        lambda: [(LogDirectory, "lowered_checkpoints", lambda self: {})],
    ),
    Mutation(
        "returned-below-checkpoint",
        "a partition that returns to a broker grows below the recovery point that the checkpoint still has",
        _grow_below_old_recovery_points,
    ),
    Mutation(
        "snapshots-beyond-truncation",
        "a truncation leaves snapshots of producers beyond the end of the log",
        _keep_snapshots_beyond_the_end,
    ),
)
"""Bugs that a campaign rarely catches. For the first, a bit of a flushed batch in a newest segment has to
change before a power failure. The second: the snapshots at the beginnings of segments go with these. One at
the end of a log is written only by a clean stop, and a broker that could hand its partitions over has nothing
to truncate afterwards."""
