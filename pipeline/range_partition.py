"""What Spark carries from the driver to a task that reads."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from holdfast_log.clients.fence import OwnerFence
from holdfast_log.pipeline.offsets import OffsetRange


class RangePartition(InputPartition):
    """The range that one task reads; None if there is nothing to read. `fence` is that of the run's lease."""

    def __init__(self, value: OffsetRange | None, fence: OwnerFence | None = None) -> None:
        super().__init__(value)
        self.fence = fence
