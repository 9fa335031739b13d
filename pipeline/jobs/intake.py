"""What load and snapshot share: a run takes what is new, and records its offsets together with its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from holdfast_log.pipeline.jobs.ledger import REPLACES
from holdfast_log.pipeline.jobs.run import JobReport, JobRun
from holdfast_log.pipeline.jobs.selection import frame_of, lag_behind, select


@dataclass(frozen=True, slots=True)
class Intake:
    """Which records a run takes: `source` has options of `spark.readStream.format("holdfast")`."""

    source: Mapping[str, str]
    max_offsets: int | None = None


def take_new(
    spark: SparkSession,
    run: JobRun,
    intake: Intake,
    write: Callable[[DataFrame], list[str]],
    *,
    replaces: bool = False,
) -> JobReport:
    """Give the records that no run has taken yet to `write`, and publish their offsets with its files.

    With `replaces`, the files are the whole table from now on, instead of those before. Raises
    `SupersededError`, `OptionError`, `DataLossError`, and what `write` raises.
    """
    report = run.report
    run.begin()
    with run.phase("look up"):
        last = run.ledger.last_result()
        selection = select(intake.source, last.offsets if last else None, intake.max_offsets)
    report.start, report.end = selection.start, selection.end
    if selection.start == selection.end:
        report.status, report.lag = "nothing new", 0
        return report
    files: list[str] = []
    details: dict[str, object] = {"start": selection.start}
    if selection.ranges:
        with run.phase("write"):
            files = write(frame_of(spark, intake.source, selection))
        details |= {REPLACES: True} if replaces else {}
    run.finish(report.job, selection.end, files, {**details, "records": report.records})
    report.details |= {
        "tasks": len(selection.ranges),
        "offsets": sum(len(found) for found in selection.ranges),
    }
    report.status = "done"
    report.lag = lag_behind(intake.source, selection.end)
    return report
