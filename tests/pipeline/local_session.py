"""The Spark sessions of tests and drills: local, quiet, and with Holdfast's source and sink."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from holdfast_log import pipeline


def local_session(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    """A session on loopback without a user interface. `master` is local[C] or local[C,F]: C cores, and F - 1
    failures of a task before its job fails."""
    builder = (
        SparkSession.builder.appName(name)
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    pipeline.register(spark)
    return spark
