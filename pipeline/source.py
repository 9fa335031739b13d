"""The data source that Spark sees: format("holdfast") of spark.read and spark.readStream.

The driver reads options and fixes offsets; each task gets only a range of offsets. Spark pickles source,
reader and partitions, so all of them are plain data.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyspark

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        InputPartition,
    )
except ImportError:
    raise ImportError(
        f"Holdfast's data source needs PySpark 4.0 or later, and this is PySpark {pyspark.__version__}, "
        "which has no data sources in Python: install a later version (docs/spark-source.md)"
    ) from None
from pyspark.sql.types import StructType

from holdfast_log.pipeline.arrow import spark_schema
from holdfast_log.pipeline.cluster import ClusterLookup
from holdfast_log.pipeline.offsets import plan
from holdfast_log.pipeline.option_table import OptionError
from holdfast_log.pipeline.options import includes_headers, read_options
from holdfast_log.pipeline.range_partition import RangePartition
from holdfast_log.pipeline.ranges import read_range
from holdfast_log.pipeline.repeated_lookup import RepeatedLookup

FORMAT = "holdfast"


class HoldfastDataSource(DataSource):
    """Topics as tables, with the columns of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_schema(includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        self._must_be_own(schema)
        return HoldfastReader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self._must_be_own(schema)
        try:
            from holdfast_log.pipeline.stream_reader import HoldfastStreamReader
        except ImportError:
            return UnsupportedStreamReader()
        return HoldfastStreamReader(dict(self.options))

    def _must_be_own(self, schema: StructType) -> None:
        if schema != self.schema():
            raise OptionError("the columns of a topic are fixed: remove .schema(...), and use .select(...)")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        try:
            from holdfast_log.pipeline.sink.writers import BatchSink
        except ImportError as error:
            raise OptionError(_needs("writing", "4.1")) from error
        return BatchSink(dict(self.options), schema, is_overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        try:
            from holdfast_log.pipeline.sink.writers import StreamSink
        except ImportError as error:
            raise OptionError(_needs("writing", "4.1")) from error
        return StreamSink(dict(self.options), schema, is_overwrite=overwrite)


def _needs(what: str, version: str) -> str:
    return (
        f"{what} needs PySpark {version} or later, and this is PySpark {pyspark.__version__}: install a "
        "later version of Spark and PySpark (docs/spark-source.md)"
    )


class UnsupportedStreamReader(DataSourceStreamReader):
    """Refuses a streaming query once Spark asks it for an offset.

    If `streamReader` itself raised an error, PySpark 4.0 and 4.1 would report an UnboundLocalError instead.
    """

    def initialOffset(self) -> dict[str, Any]:
        raise OptionError(_needs("readStream", "4.2"))

    def latestOffset(self, *_: Any) -> dict[str, Any]:
        raise OptionError(_needs("readStream", "4.2"))

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        raise OptionError(_needs("readStream", "4.2"))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise OptionError(_needs("readStream", "4.2"))


class HoldfastReader(DataSourceReader):
    """A batch read. Raises `pipeline.option_table.OptionError` for options that are not allowed."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._options = read_options(given)

    def partitions(self) -> list[InputPartition]:
        with ClusterLookup(self._options.client) as lookup:
            ranges = plan(self._options, RepeatedLookup(lookup, self._options.lookups, time.sleep))
        # Given no partitions, Spark would create one of its own.
        return [RangePartition(found) for found in ranges] or [RangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is None:
            return iter(())
        return read_range(partition.value, self._options)
