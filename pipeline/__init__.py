"""The PySpark data source for Holdfast topics.

This folder plans reads of Spark, and reads and writes records through the clients; clients and brokers never
import it.
Spark registers the source automatically if its workers can import Holdfast; `register` ensures both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("holdfast")` work in this session.

    On a cluster, Holdfast must be installed where the executors run, like any package that tasks import. The
    workers of a local session get the import path of this process.
    """
    from pyspark.errors import AnalysisException

    from holdfast_log.pipeline.session import show_workers
    from holdfast_log.pipeline.source import HoldfastDataSource

    show_workers(spark)
    try:
        spark.dataSource.register(HoldfastDataSource)
    except AnalysisException as error:
        # Spark 4.0 does not replace a source that it has found by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
