"""Spark looks for modules whose names begin with pyspark_ and registers the DefaultSource of each.

With this module `spark.read.format("holdfast")` works without a call to register it, wherever Spark's Python
can import Holdfast.
"""

from holdfast_log.pipeline.source import HoldfastDataSource as DefaultSource

__all__ = ["DefaultSource"]
