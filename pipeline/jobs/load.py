"""Topics to Parquet: each run takes what is new, and records its offsets together with its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.jobs.run import JobReport, job_run
from pipeline.jobs.selection import frame_of, select
from pipeline.jobs.tables import TableShape, shaped, write_parquet
from pipeline.options import read_options


@dataclass(frozen=True, slots=True)
class LoadJob:
    """What to load, and where to. `source` has options of `spark.readStream.format("holdfast")`."""

    source: Mapping[str, str]
    output: Path
    shape: TableShape
    max_offsets: int | None = None


def load(spark: SparkSession, job: LoadJob) -> JobReport:
    """Load what the table does not have yet. May be killed anywhere, and run again.

    Raises `JobError` if another run works on the output, `SupersededError`, `OptionError`, and
    `DataLossError` if records were deleted before any run has loaded them (failOnDataLoss=false skips them).
    """
    client = read_options({**job.source, "startingOffsets": "earliest"}).client
    with job_run("load", client, job.output) as run:
        run.begin()
        last = run.ledger.last_result()
        selection = select(job.source, last.offsets if last else None, job.max_offsets)
        run.report.start, run.report.end = selection.start, selection.end
        if selection.start == selection.end:
            run.report.status = "nothing new"
            return run.report
        files: list[str] = []
        if selection.ranges:
            rows = shaped(frame_of(spark, job.source, selection), job.shape)
            files = write_parquet(run, rows, job.shape.partition_by)
        asked = sum(len(found) for found in selection.ranges)
        run.finish("load", selection.end, files, {"start": selection.start, "records": run.report.records})
        run.report.details |= {
            "tasks": len(selection.ranges),
            "offsets without a record": asked - run.report.records,
        }
        run.report.status = "done"
    return run.report
