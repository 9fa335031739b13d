"""Spark on Holdfast: the data source for PySpark.

Stands on the clients; brokers know nothing of it. Spark registers the source by itself where its workers find
Holdfast; `register` makes sure of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("holdfast")` work in this session.

    On a cluster, Holdfast has to be installed where the executors run, like any package that tasks import. A
    local session's workers are shown where this process found it.
    """
    from pipeline.session import show_local_workers
    from pipeline.source import HoldfastDataSource

    show_local_workers(spark)
    spark.dataSource.register(HoldfastDataSource)
