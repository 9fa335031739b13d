"""A compacted topic to a table with one row for each key, kept current from run to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pipeline.jobs.ledger import REPLACES
from pipeline.jobs.run import JobReport, JobRun, job_run
from pipeline.jobs.selection import frame_of, select
from pipeline.jobs.tables import files_of, read_table, write_parquet
from pipeline.options import read_options

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
    client = read_options({**job.source, "startingOffsets": "earliest"}).client
    with job_run("snapshot", client, job.output) as run:
        run.begin()
        last = run.ledger.last_result()
        selection = select(job.source, last.offsets if last else None, job.max_offsets)
        run.report.start, run.report.end = selection.start, selection.end
        if selection.start == selection.end:
            run.report.status = "nothing new"
            return run.report
        files = _write(spark, job, run, frame_of(spark, job.source, selection)) if selection.ranges else []
        run.finish("snapshot", selection.end, files, {"start": selection.start, REPLACES: True})
        run.report.status = "done"
    return run.report


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
