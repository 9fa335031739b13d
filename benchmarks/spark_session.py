"""The Spark session in which Holdfast's source and sink are measured beside Spark's own Kafka connector."""

from __future__ import annotations

from pyspark.sql import SparkSession

from holdfast_log import pipeline

CORES = 2
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""Maven coordinates of a connector that works with PySpark 4.2 and later."""


def open_session(name: str, connector: str) -> SparkSession:
    """A local session on `CORES` cores that has both. Spark downloads the connector from Maven Central unless
    it has it."""
    spark = (
        SparkSession.builder.appName(name)
        .master(f"local[{CORES}]")
        .config("spark.jars.packages", connector)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(CORES))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    pipeline.register(spark)
    return spark
