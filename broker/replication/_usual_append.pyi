from collections.abc import Callable, Mapping

from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.right_to_acknowledge import RightToAcknowledge
from holdfast_log.protocol.frames import Part

def append(
    topics: Mapping[str, Mapping[int, Partition]],
    grown: Callable[[Partition], None],
    right: RightToAcknowledge,
    frame: memoryview,
    version: int,
    position: int,
    correlation_id: int,
    date_ms: int,
    /,
) -> list[Part] | tuple[int, int, list[Append]] | None: ...
