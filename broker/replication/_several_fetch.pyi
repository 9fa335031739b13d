from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.session_partitions import FetchSession
from holdfast_log.broker.replication.several_fetch import CompiledReads
from holdfast_log.protocol.frames import Part

def begin(
    broker: tuple[
        Mapping[str, Mapping[int, Partition]],
        Callable[[UUID], str | None],
        dict[int, FetchSession],
        Callable[[], float],
        int,
        int,
        Callable[[Any, str], bool] | None,
    ],
    connection: Any,
    frame: memoryview,
    version: int,
    position: int,
    correlation_id: int,
    /,
) -> list[Part] | CompiledReads | None: ...
