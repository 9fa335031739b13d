"""Spark's own Kafka connector writes a topic and reads it again, in batches and as streams.

    python -m tests.compat.drivers.spark_connector BOOTSTRAP PACKAGE FOLDER

Prints one JSON object: how many different values each way of reading found.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

COUNT = 2_000
TOPIC, COPY = "spark-connector", "spark-connector-copy"
_WAIT_S = 300


def main(bootstrap: str, package: str, folder: Path) -> None:
    """Write, read, copy as a stream, read the copy."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", package)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    servers = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.range(COUNT).selectExpr("CAST(id % 50 AS STRING) AS key", "CAST(id AS STRING) AS value")
    rows.write.format("kafka").options(**servers).option("topic", TOPIC).save()

    def values_of(topic: str, **options: str) -> int:
        read = spark.read.format("kafka").options(**servers, subscribe=topic, **options)
        return _different(read.load())

    stream = spark.readStream.format("kafka").options(
        **servers, subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger="1500"
    )
    sink = stream.load().select("key", "value").writeStream.format("kafka").options(**servers, topic=COPY)
    sink = sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    query = sink.start()
    has_ended = query.awaitTermination(_WAIT_S)
    found = {
        "batch": values_of(TOPIC),
        "headers": values_of(TOPIC, includeHeaders="true"),
        "stream": values_of(COPY),
        "batches": len([batch for batch in query.recentProgress if batch.numInputRows]),
        "has_ended": has_ended,
    }
    spark.stop()
    print(json.dumps(found))


def _different(frame: DataFrame) -> int:
    rows = frame.selectExpr("CAST(value AS STRING) AS value").collect()
    assert len(rows) == len({row.value for row in rows}), "some value was read twice"
    return len(rows)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
