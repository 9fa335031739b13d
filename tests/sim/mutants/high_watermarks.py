"""Bugs of high watermarks: what a replica knows to be committed, and what it remembers of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from holdfast_log.broker.log.checkpoint_writer import CheckpointWriter
from holdfast_log.broker.log.directory import LogDirectory, MadeLater
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.log.timestamps import LookUp
from holdfast_log.broker.log.truncation import truncate_to
from holdfast_log.broker.replication import offset_lookup
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.offset_lookup import MAX_TIMESTAMP
from holdfast_log.broker.replication.partition import CONSUMER_ID, NO_EPOCH, Partition
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.sim.mutation import Mutation, Patch


def _checkpoint_present_roles_only() -> Sequence[Patch]:
    steps = LogDirectory.high_watermark_steps

    def mutant(
        self: LogDirectory, parts: Iterable[Mapping[TopicPartition, int]]
    ) -> Generator[None, None, dict[str, MadeLater]]:
        self.high_watermarks.clear()
        return (yield from steps(self, parts))

    return [
        (LogDirectory, "high_watermark_steps", mutant),
        (LogManager, "know_high_watermark", lambda self, partition, offset: None),
    ]


def _write_in_any_order() -> Sequence[Patch]:
    def mutant(self: CheckpointWriter, directory: LogDirectory, parts: Any, in_turns: Any) -> Any:
        noted = in_turns(directory.high_watermark_steps(parts()))
        written = noted.addCallback(lambda files: self._write(directory, files))
        return written.addErrback(lambda failure: self._failed(directory, failure))

    return [(CheckpointWriter, "_write_high_watermarks", mutant)]


def _begin_to_lead_at_the_log_start() -> Sequence[Patch]:
    lead = Partition.lead

    def mutant(self: Partition, assignment: LeaderAndIsr, now_ms: int) -> bool:
        begins = lead(self, assignment, now_ms)
        if begins:
            self.high_watermark = self.log.log_start_offset
        return begins

    return [(Partition, "lead", mutant)]


_FOLLOWED: WeakSet[Leadership] = WeakSet()
"""The leaders that have had enough followers in sync in their term."""


def _serve_nothing_before_min_isr() -> Sequence[Patch]:
    read = Partition.read

    def mutant(self: Partition, *arguments: Any, **keywords: Any) -> Any:
        role, known = self.role, self.high_watermark
        if isinstance(role, Leadership):
            if len(role.isr) >= self.log.settings.min_insync_replicas:
                _FOLLOWED.add(role)
            if role not in _FOLLOWED:
                self.high_watermark = self.log.log_start_offset
        try:
            return read(self, *arguments, **keywords)
        finally:
            self.high_watermark = known

    return [(Partition, "read", mutant)]


def _restored(limit: Callable[[Partition, int], int]) -> Sequence[Patch]:
    def mutant(self: Partition, checkpoint: int) -> None:
        self.high_watermark = limit(self, checkpoint)

    return [(Partition, "restore_high_watermark", mutant)]


def _believe_a_checkpoint_before_the_log_start() -> Sequence[Patch]:
    return _restored(lambda partition, checkpoint: min(checkpoint, partition.log.log_end_offset))


def _leave_beyond_the_end() -> Sequence[Patch]:
    def mutant(self: Partition, offset: int, date_ms: int) -> None:
        truncate_to(self.log, offset, now_ms=date_ms)

    return [(Partition, "truncate_to", mutant)]


def _name_uncommitted_by_time() -> Sequence[Patch]:
    offset_at = offset_lookup.offset_at

    def mutant(
        self: Partition,
        timestamp: int,
        *,
        replica_id: int = CONSUMER_ID,
        current_leader_epoch: int = NO_EPOCH,
        isolation: int = 0,
    ) -> LookUp:
        if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
            replica_id = self.local_id
        return offset_at(
            self,
            timestamp,
            replica_id=replica_id,
            current_leader_epoch=current_leader_epoch,
            isolation=isolation,
        )

    return [(offset_lookup, "offset_at", mutant)]


MUTATIONS = (
    Mutation(
        "uncommitted-named-by-time",
        "a look-up by time names a record that is not committed",
        _name_uncommitted_by_time,
    ),
    Mutation(
        "high-watermarks-of-present-roles-only",
        "a checkpoint of high watermarks leaves out replicas whose roles have ended or not begun",
        _checkpoint_present_roles_only,
    ),
    Mutation(
        "high-watermark-anew-in-each-term",
        "a leader that begins forgets what it knew to be committed as a follower",
        _begin_to_lead_at_the_log_start,
    ),
    Mutation(
        "lone-leader-serves-nothing",
        "a leader serves no record until min.insync.replicas are in sync in its term",
        _serve_nothing_before_min_isr,
    ),
    Mutation(
        "high-watermark-before-log-start",
        "a checkpointed high watermark below the start of the log is believed",
        _believe_a_checkpoint_before_the_log_start,
    ),
    Mutation(
        "high-watermark-beyond-log-end",
        "a truncation leaves the high watermark beyond the end of the log",
        _leave_beyond_the_end,
    ),
)

RARE = (
    Mutation(
        "high-watermarks-overtaken",
        "a slow write of high watermarks replaces a later one, also that of a clean stop",
        _write_in_any_order,
    ),
)
