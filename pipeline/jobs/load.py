"""Topics to Parquet: each run takes what is new, and records its offsets together with its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from holdfast_log.pipeline.jobs.intake import Intake, take_new
from holdfast_log.pipeline.jobs.run import JobReport, job_run
from holdfast_log.pipeline.jobs.tables import TableShape, shaped, write_parquet
from holdfast_log.pipeline.options import read_options


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

        def write(records: DataFrame) -> list[str]:
            return write_parquet(run, shaped(records, job.shape), job.shape.partition_by)

        report = take_new(spark, run, Intake(job.source, job.max_offsets), write)
        if report.status == "done":
            report.details["offsets without a record"] = report.details["offsets"] - report.records
    return report
