"""The data source that Spark sees: spark.read.format("holdfast").

The driver reads options and fixes offsets; each task gets only a range of offsets. Spark pickles source,
reader and partitions, so all of them are plain data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.arrow import spark_schema
from pipeline.cluster import ClusterLookup
from pipeline.offsets import OffsetRange, plan
from pipeline.options import OptionError, includes_headers, read_options
from pipeline.ranges import read_range

FORMAT = "holdfast"


class RangePartition(InputPartition):
    """The range that one task reads; None if there is nothing to read."""

    def __init__(self, value: OffsetRange | None) -> None:
        super().__init__(value)


class HoldfastDataSource(DataSource):
    """Topics as tables, with the columns of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_schema(includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        if schema != self.schema():
            raise OptionError("the columns of a topic are fixed: remove .schema(...), and use .select(...)")
        return HoldfastReader(dict(self.options))


class HoldfastReader(DataSourceReader):
    """A batch read. Raises `pipeline.options.OptionError` for options that are not allowed."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._options = read_options(given)

    def partitions(self) -> list[InputPartition]:
        with ClusterLookup(self._options.client) as lookup:
            ranges = plan(self._options, lookup)
        # Given no partitions, Spark would create one of its own.
        return [RangePartition(found) for found in ranges] or [RangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is None:
            return iter(())
        return read_range(partition.value, self._options)
