"""A compacted topic to a table with one row for each key, kept current from run to run, or continuously."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast_log.pipeline.jobs.intake import Intake, take_new
from holdfast_log.pipeline.jobs.run import JobReport, JobRun, held_output, job_run
from holdfast_log.pipeline.jobs.selection import select
from holdfast_log.pipeline.jobs.tables import files_of, read_table, write_parquet
from holdfast_log.pipeline.options import read_options

_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class SnapshotJob:
    """Which topics to keep a table of, and where. `source` has options of readStream."""

    source: Mapping[str, str]
    output: Path
    max_offsets: int | None = None


def snapshot(spark: SparkSession, job: SnapshotJob) -> JobReport:
    """Bring the table up to date: for each key its last record, unless that is a tombstone (null value).

    Each run writes the whole table again, from the table before and what is new; records without a key are
    left out. A tombstone must be seen before the broker removes it: run the job more often than the topic's
    delete.retention.ms. Raises what `pipeline.jobs.load.load` raises.
    """
    with job_run("snapshot", _client(job), job.output) as run:
        return _bring_up(spark, job, run)


def follow(
    spark: SparkSession, job: SnapshotJob, every_s: float, sleep: Callable[[float], None] = time.sleep
) -> Iterator[JobReport]:
    """Keep the table up to date until the caller stops: yields the report of each run that took something.

    The first run begins at once, and later ones at most every `every_s` seconds, when there are new records.
    The process keeps the lease of the output meanwhile, so other processes are refused. Each run claims the
    output and publishes its result as `snapshot` does; the process may be killed anywhere. Raises what
    `snapshot` raises; `SupersededError` if the lease was lost and another process has taken the output.
    """
    with held_output("snapshot", _client(job), job.output) as held:
        position: Mapping[str, Mapping[str, int]] | None = None
        while True:
            began = time.monotonic()
            if position is None or _has_new(job, position):
                with held.run() as run:
                    report = _bring_up(spark, job, run)
                position = report.end
                yield report
            sleep(max(0.0, began + every_s - time.monotonic()))


def _has_new(job: SnapshotJob, position: Mapping[str, Mapping[str, int]]) -> bool:
    selection = select(job.source, position, job.max_offsets)
    return selection.start != selection.end


def _bring_up(spark: SparkSession, job: SnapshotJob, run: JobRun) -> JobReport:
    def write(new: DataFrame) -> list[str]:
        return _write(spark, job, run, new)

    return take_new(spark, run, Intake(job.source, job.max_offsets), write, replaces=True)


def _client(job: SnapshotJob) -> Mapping[str, str]:
    return read_options({**job.source, "startingOffsets": "earliest"}).client


def _write(spark: SparkSession, job: SnapshotJob, run: JobRun, new: DataFrame) -> list[str]:
    rows = new.where("key is not null").select(*_COLUMNS)
    if files_of(job.output.resolve()):
        rows = rows.unionByName(read_table(spark, job.output).select(*_COLUMNS))
    newest = rows.groupBy("topic", "partition", "key").agg(
        f.max_by(f.struct("value", "timestamp"), "offset").alias("last"), f.max("offset").alias("offset")
    )
    kept = newest.where("last.value is not null")
    return write_parquet(
        run, kept.select("key", "last.value", "topic", "partition", "offset", "last.timestamp"), ()
    )
