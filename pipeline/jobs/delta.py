"""Topics to a Delta table. Needs delta-spark, and its jars in the session: see `with_delta`.

The ledger decides which offsets come next, and Delta commits the rows of each decision once:

1. A run publishes a plan in the ledger: ranges of offsets. Its number is the plan's version.
2. It appends the rows to the table with txnAppId and txnVersion (Delta's idempotent writes). A version that
   was committed before, by a run that was killed or by one that still runs, is not committed again.
3. It publishes the result. A run that finds a plan without a result repeats it, with the same version.
"""

from __future__ import annotations

import importlib.util
import json
import uuid
from importlib import metadata
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from holdfast_log.pipeline.jobs.load import LoadJob
from holdfast_log.pipeline.jobs.publish import PLAN, planned
from holdfast_log.pipeline.jobs.run import JobError, JobReport, JobRun, job_run
from holdfast_log.pipeline.jobs.selection import Selection, frame_of, lag_behind, select
from holdfast_log.pipeline.jobs.tables import shaped, uri_of
from holdfast_log.pipeline.offsets import OffsetRange
from holdfast_log.pipeline.options import read_options
from holdfast_log.protocol.topic_partition import TopicPartition


def with_delta(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Add Delta to a session: its jars, which Spark downloads from Maven, and its SQL extension.

    Raises `JobError` if delta-spark is not installed.
    """
    if importlib.util.find_spec("delta") is None:
        raise JobError(
            f"Delta tables need the package delta-spark in a release for Spark {pyspark.__version__}, and it "
            "is not installed. docs/spark-jobs.md says which releases fit; --format parquet needs none."
        )
    from delta import configure_spark_with_delta_pip

    extended = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config(
        "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
    configured: SparkSession.Builder = configure_spark_with_delta_pip(extended)
    return configured


def jars_hint() -> str:
    """What to check if a session with Delta does not start."""
    minor = ".".join(pyspark.__version__.split(".")[:2])
    artifact = f"io.delta:delta-spark_{minor}_2.13:{metadata.version('delta-spark')}"
    return (
        f"Spark must find {artifact} in Maven Central, which does not have each release of Delta for each "
        "release of Spark"
    )


def load_delta(spark: SparkSession, job: LoadJob) -> JobReport:
    """Load what the Delta table does not have yet. May be killed anywhere, and run again.

    Raises what `pipeline.jobs.load.load` raises.
    """
    client = read_options({**job.source, "startingOffsets": "earliest"}).client
    with job_run("load", client, job.output) as run:
        run.begin()
        last = run.ledger.last_result()
        resumes = last is not None and last.kind == PLAN
        with run.phase("look up"):
            selection = select(job.source, last.offsets if last else None, job.max_offsets)
        if not resumes and selection.start == selection.end:
            run.report.start, run.report.end = selection.start, selection.end
            run.report.status, run.report.lag = "nothing new", 0
            return run.report

        def make() -> dict[str, Any]:
            return {
                "app": last.details["app"] if last else f"holdfast {uuid.uuid4()}",
                "ranges": [[*found.partition, found.start, found.end] for found in selection.ranges],
                "start": selection.start,
                "end": selection.end,
            }

        plan = planned(run, make, selection.start)
        published = run.ledger.last_result()
        assert published is not None
        with run.phase("write"):
            _write(spark, job, run, plan["app"], published.number, plan)
        run.finish("load", plan["end"], [], {"app": plan["app"], "records": run.report.records})
        run.report.start, run.report.end = plan["start"], plan["end"]
        run.report.status = "done"
        run.report.lag = lag_behind(job.source, plan["end"])
    return run.report


def _write(spark: SparkSession, job: LoadJob, run: JobRun, app: str, version: int, plan: Any) -> None:
    """Append the rows of a plan, unless they were committed before; counts them in the report."""
    ranges = tuple(OffsetRange(TopicPartition(t, p), start, end) for t, p, start, end in plan["ranges"])
    if not ranges:
        return
    place = uri_of(job.output.resolve())
    before = _version(spark, place)
    rows = shaped(frame_of(spark, job.source, Selection({}, {}, ranges)), job.shape)
    writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
    writer = writer.option("txnAppId", app).option("txnVersion", version)
    offsets = json.dumps({"run": run.report.run, "start": plan["start"], "end": plan["end"]})
    writer.option("userMetadata", offsets).partitionBy(*job.shape.partition_by).save(place)
    if _version(spark, place) == before:
        run.report.details["already present"] = True
        return
    metrics = _history(spark, place)[0].operationMetrics
    run.report.records = int(metrics.get("numOutputRows", 0))
    run.report.files = int(metrics.get("numFiles", 0))
    run.report.bytes = int(metrics.get("numOutputBytes", 0))


def _version(spark: SparkSession, place: str) -> int:
    from delta import DeltaTable

    return int(_history(spark, place)[0].version) if DeltaTable.isDeltaTable(spark, place) else -1


def _history(spark: SparkSession, place: str) -> list[Any]:
    from delta import DeltaTable

    return list(DeltaTable.forPath(spark, place).history(1).collect())
