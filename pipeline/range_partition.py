"""What Spark carries from the driver to a task that reads."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from pipeline.offsets import OffsetRange


class RangePartition(InputPartition):
    """The range that one task reads; None if there is nothing to read."""

    def __init__(self, value: OffsetRange | None) -> None:
        super().__init__(value)
