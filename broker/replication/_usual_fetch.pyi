from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.session_partitions import FetchSession
from holdfast_log.broker.replication.usual_fetch import KeptFetch, UsualFetches
from holdfast_log.broker.replication.waiting import Waiting
from holdfast_log.protocol.frames import Part

def begin(
    broker: tuple[
        UsualFetches,
        Mapping[str, Mapping[int, Partition]],
        Callable[[UUID], str | None],
        Waiting,
        Callable[[Any], None],
        dict[int, FetchSession],
        Callable[[], float],
        int,
    ],
    connection: Any,
    frame: memoryview,
    version: int,
    position: int,
    correlation_id: int,
    /,
) -> list[Part] | KeptFetch | None: ...
