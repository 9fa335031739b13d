"""Spark looks for modules whose names begin with pyspark_ and registers the DefaultSource of each.

So `spark.read.format("holdfast")` works wherever Spark's Python finds Holdfast, and nothing has to be called.
"""

from pipeline.source import HoldfastDataSource as DefaultSource

__all__ = ["DefaultSource"]
