"""Rows/s that a streaming query writes exactly once, beside Spark's own Kafka connector on the same broker.

    python -m benchmarks.spark_sink --rounds 2

Both sinks copy the same Parquet files into new topics of one broker, in turns: connector, Holdfast, Holdfast,
connector. Each micro-batch is one file for each core, and so has a task for each. The connector writes at
least once. Spark downloads it from Maven Central unless it has it. The last line of output is JSON.
"""

from __future__ import annotations

import json
import tempfile
import time
from itertools import count
from pathlib import Path

import click
from pyspark.sql import SparkSession

from benchmarks.pairs import in_turns, median_ratio
from benchmarks.spark_session import CONNECTOR, CORES, open_session
from holdfast_log import Admin, NewTopic
from holdfast_log.broker.tools.local_cluster import LocalCluster

_PARTITIONS = 6
_PEER, _OWN = "kafka", "holdfast"


class SinkPair:
    """Copies the rows in `source` into new topics of a broker. `own_options` are for Holdfast's sink, which
    writes each micro-batch with at most `own_tasks` tasks."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        source: Path,
        folder: Path,
        own_options: dict[str, str],
        own_tasks: int,
    ) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._source = source
        self._folder = folder
        self._own_options = own_options
        self._own_tasks = own_tasks
        self._numbers = count(1)

    def seconds(self, kind: str) -> float:
        """The time in s that a query takes to write all rows by `format(kind)`, from its start to its end.
        Raises its error, and RuntimeError if the topic then has another number of records."""
        topic = f"{kind}-{next(self._numbers)}"
        with Admin({"bootstrap.servers": self._bootstrap}) as admin:
            admin.create_topics([NewTopic(topic, _PARTITIONS)])
        rows = (
            self._spark.readStream.schema("key STRING, value STRING")
            .option("maxFilesPerTrigger", CORES)
            .parquet(str(self._source))
        )
        if kind == _OWN and self._own_tasks < CORES:
            rows = rows.coalesce(self._own_tasks)
        writer = (
            rows.writeStream.format(kind)
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", str(self._folder / topic))
            .trigger(availableNow=True)
        )
        if kind == _OWN:
            writer = writer.options(**self._own_options)
        began = time.perf_counter()
        query = writer.start()
        query.awaitTermination()
        seconds = time.perf_counter() - began
        self._check(topic, sum(batch.numInputRows for batch in query.recentProgress))
        return seconds

    def _check(self, topic: str, rows: int) -> None:
        wanted = self._spark.read.parquet(str(self._source)).count()
        written = self._spark.read.format(_OWN).option("kafka.bootstrap.servers", self._bootstrap)
        found = written.option("subscribe", topic).load().count()
        if not rows == wanted == found:
            raise RuntimeError(f"{topic}: {wanted} rows to write, {rows} read by the query, {found} written")


@click.command(context_settings={"show_default": True})
@click.option("--connector", default=CONNECTOR, help="Maven coordinates of Spark's Kafka connector.")
@click.option("--rows", default=1_000_000, help="Rows that each query writes.")
@click.option("--size", default=100, help="Bytes of each value.")
@click.option("--batches", default=2, help="Micro-batches of each query.")
@click.option("--rounds", default=2, help="How often both sinks take turns.")
@click.option("--delivery", default="exactly-once", help="Of Holdfast's sink.")
@click.option(
    "--tasks", default=CORES, help="Tasks of Holdfast's sink in each micro-batch, one for each core at most."
)
def main(connector: str, rows: int, size: int, batches: int, rounds: int, delivery: str, tasks: int) -> None:
    """Compare Holdfast's sink with Spark's own Kafka connector on one broker."""
    with (
        tempfile.TemporaryDirectory(prefix="spark-sink-", ignore_cleanup_errors=True) as folder,
        LocalCluster(Path(folder) / "cluster") as cluster,
    ):
        spark = open_session("spark sink", connector)
        source = Path(folder) / "rows"
        value = f"LPAD(CAST(id AS STRING), {size}, 'x')"
        numbers = spark.range(0, rows, 1, batches * CORES)
        frame = numbers.selectExpr("CAST(id AS STRING) AS key", f"{value} AS value")
        frame.write.parquet(str(source))
        pair = SinkPair(spark, cluster.bootstrap, source, Path(folder), {"delivery": delivery}, tasks)
        for kind in (_PEER, _OWN):
            pair.seconds(kind)  # Warm: the first query of each starts Python workers and compiles.
        peer = own = 0.0
        ratios = []
        for _ in range(rounds):
            of_peer, of_own = in_turns(lambda: pair.seconds(_PEER), lambda: pair.seconds(_OWN))
            ratios.append(of_peer / of_own)
            peer, own = peer + of_peer, own + of_own
        spark.stop()
    ratio = median_ratio(ratios)
    written = 2 * rounds * rows
    print(f"connector {written / peer:,.0f} rows/s, Holdfast {written / own:,.0f} rows/s, ratio {ratio}")
    print(
        json.dumps(
            {
                "connector_rows_per_s": round(written / peer),
                "holdfast_rows_per_s": round(written / own),
                "ratio": round(ratio.median, 3),
                "delivery": delivery,
                "tasks": min(tasks, CORES),
                "value_bytes": size,
            }
        )
    )


if __name__ == "__main__":
    main()
