"""Spark jobs with the flights in a topic: one writes them as Parquet and compares the airlines, another
copies them to a second topic as a stream.

python -m holdfast_log.pipeline.examples.carriers --bootstrap-server localhost:9092 --output flights.parquet
"""

from __future__ import annotations

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from holdfast_log import pipeline

_OFFSETS_PER_MICRO_BATCH = 120_000

FLIGHT = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,
    sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string,
    dest string, air_time int, distance int, hour int, minute int, time_hour timestamp
"""


def read_flights(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The flights in a topic, with one column for each member of their JSON."""
    records = (
        spark.read.format("holdfast")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
    )
    flight = F.from_json(F.col("value").cast("string"), FLIGHT)
    return records.select(flight.alias("flight")).select("flight.*")


def copy_flights(
    spark: SparkSession, bootstrap: str, topic: str, copy: str, checkpoint: str
) -> StreamingQuery:
    """Start a streaming query that writes each record of a topic to another topic exactly once, until the
    present end of the topic. Started again with the same checkpoint, it writes what is new."""
    records = (
        spark.readStream.format("holdfast")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", _OFFSETS_PER_MICRO_BATCH)
        .load()
    )
    return (
        records.select("key", "value")
        .writeStream.format("holdfast")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.compression.type", "lz4")
        .option("topic", copy)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def by_carrier(flights: DataFrame) -> DataFrame:
    """Number of flights of each carrier, and delays at departure and arrival in minutes, busiest first."""
    return (
        flights.groupBy("carrier")
        .agg(
            F.count("*").alias("flights"),
            F.round(F.avg("dep_delay"), 1).alias("mean_departure_delay"),
            F.round(F.avg("arr_delay"), 1).alias("mean_arrival_delay"),
        )
        .orderBy(F.desc("flights"))
    )


def local_session(name: str) -> SparkSession:
    """A Spark session on this machine's cores, with little logging and the data source registered."""
    spark = (
        SparkSession.builder.appName(name)
        .master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    pipeline.register(spark)
    return spark


@click.command()
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT", help="A broker.")
@click.option("--topic", default="flights", show_default=True, help="The topic to read.")
@click.option(
    "--output", required=True, type=click.Path(file_okay=False), help="Folder for the Parquet files."
)
def main(bootstrap_server: str, topic: str, output: str) -> None:
    """Write the flights of a topic as Parquet, and compare the airlines."""
    spark = local_session("carriers")
    read_flights(spark, bootstrap_server, topic).write.mode("overwrite").parquet(output)
    by_carrier(spark.read.parquet(output)).show(50)
    spark.stop()


if __name__ == "__main__":
    main()
