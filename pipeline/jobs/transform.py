"""One topic to another, by SQL or by a Python function: each record that is made is written once."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast_log.pipeline.jobs.publish import bases_of, planned, publish
from holdfast_log.pipeline.jobs.run import JobError, JobReport, job_run
from holdfast_log.pipeline.jobs.selection import Selection, frame_of, lag_behind, select
from holdfast_log.pipeline.offsets import OffsetRange
from holdfast_log.pipeline.options import read_options
from holdfast_log.protocol.topic_partition import TopicPartition

_ORDER = ("_topic", "_partition", "_offset")


@dataclass(frozen=True, slots=True)
class TransformJob:
    """What to transform. `source` has options of readStream; `state` is the folder of the ledger.

    `key`, `value`, `headers`, `timestamp` and `where` are SQL expressions of the source's columns. Instead of
    them, `function` names a Python function, "module:name", from DataFrame to DataFrame: the result needs the
    columns key and value, must keep _topic, _partition and _offset of the record that each row was made from,
    and may have headers and timestamp. Both must give the same rows whenever they are repeated.
    """

    source: Mapping[str, str]
    topic: str
    state: Path
    key: str = "key"
    value: str = "value"
    where: str | None = None
    function: str | None = None
    max_offsets: int | None = None
    headers: str = "headers"
    timestamp: str = "timestamp"


def transform(spark: SparkSession, job: TransformJob) -> JobReport:
    """Transform what is new since the last run. May be killed anywhere, and run again.

    Nothing else may write to the target meanwhile: `ForeignRecordsError` otherwise. Raises `JobError`,
    `SupersededError`, `OptionError`, `DataLossError`.
    """
    client = read_options({**job.source, "startingOffsets": "earliest"}).client
    with job_run("transform", client, job.state) as run:
        run.begin()
        last = run.ledger.last_result()
        resumes = last is not None and last.kind == "plan"
        with run.phase("look up"):
            selection = select(job.source, last.offsets if last else None, job.max_offsets)
        if not resumes and selection.start == selection.end:
            run.report.status, run.report.lag = "nothing new", 0
            return run.report

        def make() -> dict[str, Any]:
            ranges = [[*found.partition, found.start, found.end] for found in selection.ranges]
            bases = bases_of(client, job.topic)
            return {"topic": job.topic, "bases": bases, "ranges": ranges, "end": selection.end}

        plan = planned(run, make, selection.start)
        if plan["topic"] != job.topic:
            raise JobError(f"{job.state} belongs to a transform into topic {plan['topic']}, not {job.topic}")
        ranges = tuple(OffsetRange(TopicPartition(t, p), start, end) for t, p, start, end in plan["ranges"])
        if ranges:
            given = {**job.source, "includeHeaders": "true"}
            records = frame_of(spark, given, Selection({}, {}, ranges))
            publish(run, client, job.topic, plan["bases"], _made(records, job), _ORDER)
        run.finish("transform", plan["end"], [], {"topic": job.topic, "target": bases_of(client, job.topic)})
        run.report.start, run.report.end = last.offsets if last else selection.start, plan["end"]
        run.report.status = "done"
        run.report.lag = lag_behind(job.source, plan["end"])
    return run.report


def _made(records: DataFrame, job: TransformJob) -> DataFrame:
    for name in _ORDER:
        records = records.withColumn(name, f.col(name.removeprefix("_")))
    if job.function is None:
        chosen = records.where(job.where) if job.where else records
        wanted = ("key", "value", "headers", "timestamp")
        return chosen.select(*(f.expr(getattr(job, name)).alias(name) for name in wanted), *_ORDER)
    made = _function(job.function)(records)
    missing = [name for name in ("key", "value", *_ORDER) if name not in made.columns]
    if missing:
        raise JobError(f"the result of {job.function} lacks the column {missing[0]}")
    return made


def _function(name: str) -> Callable[[DataFrame], DataFrame]:
    module, _, function = name.partition(":")
    try:
        found: Callable[[DataFrame], DataFrame] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise JobError(f"there is no Python function {name} (expected module:name): {error}") from None
    return found
