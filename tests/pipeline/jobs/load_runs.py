"""A process that loads a topic into a table, run after run, to be killed from outside.

    python -P -m tests.pipeline.jobs.load_runs BOOTSTRAP TOPIC FOLDER MAX_OFFSETS

It prints "ready" once Spark works. For each line of input it loads until nothing is new, and prints the
status of each run: "refused", "superseded", "done" or "nothing new", and the reason of a refusal. It ends
with its input, or once a run is superseded.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast_log.pipeline.jobs.ledger import SupersededError
from holdfast_log.pipeline.jobs.load import LoadJob, load
from holdfast_log.pipeline.jobs.run import JobError
from holdfast_log.pipeline.jobs.tables import TableShape
from tests.pipeline.local_session import warm_session

_PAUSE_S = 0.3


def session() -> SparkSession:
    """A small session, warmed up."""
    settings = {"spark.driver.memory": "512m", "spark.sql.session.timeZone": "UTC"}
    spark = warm_session("load runs", "local[2]", settings)
    spark.sparkContext.setLogLevel("OFF")
    spark.range(1).collect()
    return spark


def main(bootstrap: str, topic: str, folder: Path, max_offsets: int) -> None:
    """Load until nothing is new, for each line of input."""
    spark = session()
    print("ready", flush=True)
    job = LoadJob(
        {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}, folder, TableShape(), max_offsets
    )
    try:
        while sys.stdin.readline():
            load_all(spark, job)
    except SupersededError as error:
        print(f"superseded: {error}", flush=True)


def load_all(spark: SparkSession, job: LoadJob) -> None:
    """Load until nothing is new. Waits while another process has the lease. Raises `SupersededError`."""
    status, refusal = "", ""
    while status != "nothing new":
        try:
            status = load(spark, job).status
            print(status, flush=True)
        except JobError as error:
            if str(error) != refusal:  # Once, not for each attempt.
                refusal = str(error)
                print(f"refused: {refusal}", flush=True)
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
