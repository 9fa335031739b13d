from collections.abc import Callable, Mapping

from holdfast_log.broker.replication.admission import Origin
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.right_to_acknowledge import RightToAcknowledge
from holdfast_log.broker.replication.usual_append import MayWrite
from holdfast_log.protocol.frames import Part

def append(
    broker: tuple[
        Replicas,
        Mapping[str, Mapping[int, Partition]],
        RightToAcknowledge,
        tuple[Mapping[object, object], ...],
        Mapping[object, object],
        Callable[[], int],
        MayWrite | None,
    ],
    origin: Origin,
    frame: memoryview,
    version: int,
    position: int,
    correlation_id: int,
    /,
) -> list[Part] | tuple[int, int, list[Append]] | None: ...
