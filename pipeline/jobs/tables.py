"""The columns of a table made from records, and the files that a run has written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from holdfast_log.pipeline.jobs.ledger import DATA, REPLACES, Ledger
from holdfast_log.pipeline.jobs.run import JobError, JobRun
from holdfast_log.pipeline.jobs.storage import LocalStorage

CORRUPT = "_corrupt_record"
RUN = "run"
"""The column that Spark makes of the folders' names."""

_OF_RECORDS = ("key", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class TableShape:
    """How records become rows. `schema` is DDL, or JSON as Spark prints it; None keeps the raw columns."""

    schema: str | None = None
    keeps_bad_records: bool = False
    partition_by: tuple[str, ...] = ()


def shaped(records: DataFrame, shape: TableShape) -> DataFrame:
    """Records as rows of a table. Raises `JobError` for a schema or columns that do not fit.

    With a schema, the fields of the JSON in each value become columns, beside _key, _topic, _partition,
    _offset and _timestamp of the record. The columns date and hour need not exist to partition by them: they
    are then made of the record's timestamp, in the session's time zone.
    """
    rows = records if shape.schema is None else _parsed(records, shape)
    if RUN in rows.columns:
        raise JobError(
            f"the column {RUN} of the schema has the name of the column with the run that wrote a row"
        )
    when = "timestamp" if shape.schema is None else "_timestamp"
    derived = {"date": f.to_date(when), "hour": f.hour(when)}
    for name in shape.partition_by:
        if name not in rows.columns and name in derived:
            rows = rows.withColumn(name, derived[name])
        if name not in rows.columns:
            raise JobError(
                f"there is no column {name} to partition by: the columns are {', '.join(rows.columns)}"
            )
    return rows


def schema_of(text: str) -> StructType:
    """A schema from DDL ("carrier string, delay int") or from JSON. Raises `JobError`."""
    try:
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        found = StructType.fromDDL(text)
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        raise JobError(f"the schema is neither DDL nor JSON of Spark: {error}") from None
    if not isinstance(found, StructType):
        raise JobError(f"the schema must have named columns, such as: carrier string, delay int; not {text}")
    return found


def _parsed(records: DataFrame, shape: TableShape) -> DataFrame:
    schema = schema_of(shape.schema or "")
    mode = "PERMISSIVE" if shape.keeps_bad_records else "FAILFAST"
    clash = [name for name in schema.names if name in {f"_{column}" for column in _OF_RECORDS} | {CORRUPT}]
    if clash:
        raise JobError(f"the column {clash[0]} of the schema has the name of a column of the record")
    parsed = schema.add(CORRUPT, StringType()) if shape.keeps_bad_records else schema
    value = f.from_json(
        f.col("value").cast("string"), parsed, {"mode": mode, "columnNameOfCorruptRecord": CORRUPT}
    )
    return records.select(
        value.alias("row"), *(f.col(name).alias(f"_{name}") for name in _OF_RECORDS)
    ).select("row.*", *(f"_{name}" for name in _OF_RECORDS))


def write_parquet(run: JobRun, rows: DataFrame, partition_by: Sequence[str]) -> list[str]:
    """Write rows into this run's folder; returns the files, and counts them in the report."""
    place = Path(run.report.output) / run.ledger.folder()
    counted = Observation()
    observed = rows.observe(counted, f.count(f.lit(1)).alias("rows"))
    observed.write.mode("overwrite").partitionBy(*partition_by).parquet(uri_of(place))
    files = [path for path in run.storage.files(run.ledger.folder()) if path.endswith(".parquet")]
    run.report.files = len(files)
    run.report.bytes = sum(run.storage.size(path) for path in files)
    run.report.records = sum(pq.read_metadata(Path(run.report.output) / path).num_rows for path in files)
    if counted.get["rows"] != run.report.records:
        raise JobError(
            f"Spark wrote {counted.get['rows']} rows into {place}, but its files hold {run.report.records}: "
            "the folder must be the same on this machine and where the executors run. Nothing of it counts."
        )
    return files


def uri_of(path: Path) -> str:
    """A path of this machine for Spark, which does not decode what `Path.as_uri` encodes."""
    return f"file://{path}"


def files_of(output: Path) -> list[str]:
    """The files of a table that count: those that its ledger names, since the last snapshot."""
    files: list[str] = []
    for step in Ledger(LocalStorage(output), "reader", -1).results():
        files = list(step.files) if step.details.get(REPLACES) else [*files, *step.files]
    return files


def read_table(spark: SparkSession, output: Path) -> DataFrame:
    """A table that `load` or `snapshot` has written, without what killed runs left behind.

    The column run names the run that wrote a row. Raises `JobError` for an empty table.
    """
    place = output.resolve()
    files = files_of(place)
    if not files:
        raise JobError(f"{place} holds no rows yet")
    reader = spark.read.option("basePath", uri_of(place / DATA)).option("mergeSchema", "true")
    return reader.parquet(*(uri_of(place / path) for path in files))
