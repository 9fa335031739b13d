"""Bugs of flushes: records are believed to be durable that are not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from holdfast_log.broker.log import flush_job, flusher
from holdfast_log.broker.log.disk import DiskFile
from holdfast_log.broker.log.flush_job import FlushJob
from holdfast_log.broker.log.log import Log
from tests.sim.mutation import Mutation, Patch
from tests.sim.plan import SINGLE


def _count_records_written_meanwhile() -> Sequence[Patch]:
    finish = flush_job.finish_flush

    def mutant(log: Log, job: FlushJob) -> None:
        finish(log, replace(job, offset=log.log_end_offset))

    return [(flusher, "finish_flush", mutant)]


def _sync_the_last_segment_only() -> Sequence[Patch]:
    run = FlushJob.run
    return [(FlushJob, "run", lambda self: run(replace(self, files=self.files[-1:])))]


def _keep_the_first_epochs() -> Sequence[Patch]:
    run = FlushJob.run

    def mutant(self: FlushJob) -> None:
        # Without the file, recovery reads all batches, and finds every epoch.
        run(replace(self, epochs=None) if self.disk.exists(self.epochs_path) else self)

    return [(FlushJob, "run", mutant)]


def _ignore_failed_syncs() -> Sequence[Patch]:
    def mutant(file: DiskFile) -> None:
        with suppress(OSError):
            file.fsync()

    return [(flush_job, "_fsync", mutant)]


MUTATIONS = (
    Mutation(
        "flush-covers-later-records",
        "records that are appended during a flush count as durable when it ends",
        _count_records_written_meanwhile,
        SINGLE,
    ),
    Mutation(
        "flush-of-last-segment-only",
        "a flush leaves out the segment that was the last one when its records were appended",
        _sync_the_last_segment_only,
        SINGLE,
    ),
    Mutation(
        "flush-without-epochs",
        "a flush leaves an earlier file of leader epochs, although recovery reads later batches only",
        _keep_the_first_epochs,
    ),
    Mutation(
        "failed-fsync-ignored",
        "records count as durable although the fsync of their file has failed",
        _ignore_failed_syncs,
        SINGLE,
    ),
)
