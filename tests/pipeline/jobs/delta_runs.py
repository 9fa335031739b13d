"""Loads a topic into a Delta table, in a session of its own, which needs Delta's jars.

    python -P -m tests.pipeline.jobs.delta_runs BOOTSTRAP TOPIC FOLDER

The topic must have 40 records. Prints one JSON object with what was seen: the rows of the table after a load
of the first 20, after a run that was stopped between Delta's commit and the ledger's result, after one that
was stopped between the plan and Delta's commit, and after each of the runs that followed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import SparkSession

from holdfast_log import pipeline
from holdfast_log.pipeline.jobs import delta
from holdfast_log.pipeline.jobs.delta import load_delta, with_delta
from holdfast_log.pipeline.jobs.ledger import Ledger
from holdfast_log.pipeline.jobs.load import LoadJob
from holdfast_log.pipeline.jobs.run import JobRun
from holdfast_log.pipeline.jobs.storage import LocalStorage
from holdfast_log.pipeline.jobs.tables import TableShape, uri_of


class StoppedError(BaseException):
    """The run ends here, as if it were killed."""


@contextmanager
def stopped() -> Iterator[None]:
    try:
        yield
    except StoppedError:
        return
    raise AssertionError("the run was not stopped")


def main(bootstrap: str, topic: str, folder: Path) -> None:
    """Load 20, 10 and 10 records, the last two with a run that is stopped and one that continues it."""
    builder = with_delta(SparkSession.builder.master("local[2]")).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    pipeline.register(spark)
    place = folder.resolve()
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    shape = TableShape(partition_by=("date",))

    def offsets() -> list[list[int]]:
        found = spark.read.format("delta").load(uri_of(place)).select("partition", "offset").collect()
        return sorted([row.partition, row.offset] for row in found)

    def job(count: int) -> LoadJob:
        return LoadJob(given, place, shape, count)

    seen: dict[str, object] = {"first": load_delta(spark, job(20)).records}
    finish = JobRun.finish

    def stop_at_result(run: JobRun, kind: str, *rest: object) -> None:
        if kind == "load":
            raise StoppedError
        finish(run, kind, *rest)  # type: ignore[arg-type]

    with patch.object(JobRun, "finish", stop_at_result), stopped():
        load_delta(spark, job(10))
    seen["committed"] = len(offsets())
    repeated = load_delta(spark, job(10))
    seen["repeated"] = [repeated.status, repeated.records, repeated.details.get("already present")]
    with patch.object(delta, "_write", side_effect=StoppedError), stopped():
        load_delta(spark, job(10))
    seen["planned"] = len(offsets())
    seen["resumed"] = load_delta(spark, job(10)).records
    seen["nothing new"] = load_delta(spark, job(10)).status
    last = Ledger(LocalStorage(place), "reader", -1).last_result()
    seen["offsets"] = offsets()
    seen["ledger"] = last.offsets if last else None
    spark.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
