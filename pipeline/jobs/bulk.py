"""Parquet or CSV files to a topic: each row once, however often the load is killed and repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast_log.clients.config import CONSUMER_ROWS, PRODUCER_ROWS
from holdfast_log.pipeline.cluster import properties_for
from holdfast_log.pipeline.jobs.publish import bases_of, planned, publish
from holdfast_log.pipeline.jobs.run import JobError, JobReport, job_run
from holdfast_log.pipeline.jobs.tables import uri_of

_PATH, _BLOCK, _POSITION = "_path", "_block", "_position"


@dataclass(frozen=True, slots=True)
class BulkJob:
    """What to load, and where to. `state` is the folder of the ledger: one for each load.

    `key`, `value`, `headers` and `timestamp` are SQL expressions of the files' columns. Without `value`, all
    columns become JSON; without `headers`, records have none; without `timestamp`, they get the time at which
    they are appended.
    """

    client: Mapping[str, str]
    topic: str
    files: Path
    state: Path
    format: str = "parquet"
    key: str | None = None
    value: str | None = None
    schema: str | None = None
    headers: str | None = None
    timestamp: str | None = None


def bulk(spark: SparkSession, job: BulkJob) -> JobReport:
    """Load the files. A load that has finished is not repeated, unless files have changed or were added.

    Only files that no finished load had are loaded; a file that has changed since is refused. Nothing else
    may write to the topic meanwhile: `ForeignRecordsError` otherwise. Raises `JobError`, `SupersededError`.
    """
    _must_be_known(job.client)
    with job_run("bulk", job.client, job.state) as run:
        run.begin()
        last = run.ledger.last_result()
        loaded: dict[str, int] = dict(last.details.get("loaded", {})) if last else {}
        new = _new_files(job, loaded)
        resumes = last is not None and last.kind == "plan"
        if not new and not resumes:
            run.report.status = "nothing new"
            return run.report

        def make() -> dict[str, Any]:
            return {
                "files": new,
                "bases": bases_of(job.client, job.topic),
                "topic": job.topic,
                "loaded": loaded,
            }

        plan = planned(run, make, {})
        if plan["topic"] != job.topic:
            raise JobError(f"{job.state} belongs to a load into topic {plan['topic']}, not {job.topic}")
        _must_be_unchanged(job, plan["files"])
        publish(
            run,
            job.client,
            job.topic,
            plan["bases"],
            _rows(spark, job, plan["files"]),
            [_PATH, _BLOCK, _POSITION],
        )
        end = {job.topic: bases_of(job.client, job.topic)}
        run.finish("bulk", end, [], {"loaded": {**plan["loaded"], **plan["files"]}, "topic": job.topic})
        run.report.start, run.report.end = {job.topic: plan["bases"]}, end
        run.report.details["files"] = list(plan["files"])
        run.report.status = "done"
    return run.report


def _must_be_known(client: Mapping[str, str]) -> None:
    known = properties_for((*PRODUCER_ROWS, *CONSUMER_ROWS), client)
    unknown = sorted(set(client) - set(known))
    if unknown:
        raise JobError(f"no client has the property {unknown[0]}; docs/settings.md lists them")


def _found(job: BulkJob) -> dict[str, int]:
    place = job.files.resolve()
    if place.is_file():
        return {str(place): place.stat().st_size}
    files = [path for path in sorted(place.rglob(f"*.{job.format}*")) if path.is_file()]
    found = {str(path): path.stat().st_size for path in files if not path.name.startswith((".", "_"))}
    if not found:
        raise JobError(f"there is no {job.format} file in {place}")
    return found


def _new_files(job: BulkJob, loaded: Mapping[str, int]) -> dict[str, int]:
    found = _found(job)
    changed = [path for path, size in found.items() if path in loaded and loaded[path] != size]
    if changed:
        raise JobError(f"{changed[0]} was loaded before and has changed since: load it under another name")
    return {path: size for path, size in found.items() if path not in loaded}


def _must_be_unchanged(job: BulkJob, files: Mapping[str, int]) -> None:
    found = _found(job)
    for path, size in files.items():
        if found.get(path) != size:
            raise JobError(f"{path} has changed since a run began to load it: its rows would not be the same")


def _rows(spark: SparkSession, job: BulkJob, files: Mapping[str, int]) -> DataFrame:
    """The rows to write, with columns that keep them in the order in which the files have them."""
    reader = spark.read.format(job.format)
    if job.format == "csv":
        reader = reader.option("header", "true")
    if job.schema is not None:
        reader = reader.schema(job.schema)
    frame = reader.load([uri_of(Path(path)) for path in files])
    value = f.expr(job.value) if job.value else f.to_json(f.struct(*(f.col(name) for name in frame.columns)))
    given = {"headers": job.headers, "timestamp": job.timestamp}
    return frame.select(
        *(f.expr(text).alias(name) for name, text in given.items() if text),
        (f.expr(job.key) if job.key else f.lit(None)).alias("key"),
        value.alias("value"),
        f.col("_metadata.file_path").alias(_PATH),
        f.col("_metadata.file_block_start").alias(_BLOCK),
        f.monotonically_increasing_id().alias(_POSITION),
    )
