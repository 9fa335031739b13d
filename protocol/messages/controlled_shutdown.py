"""ControlledShutdown: a broker is about to stop, and wants to lead nothing."""

from __future__ import annotations

from protocol.api import Request, Response, request
from protocol.schema import Int16, Int32, Int64, struct


@struct
class RemainingPartition:
    topic_name: str
    partition_index: Int32


@struct
class ControlledShutdownResponse(Response):
    """Which partitions the broker still leads; it asks again until there are none."""

    error_code: Int16
    remaining_partitions: list[RemainingPartition]


@request(key=7, versions="3", flexible="3+", internal=True)
class ControlledShutdownRequest(Request[ControlledShutdownResponse]):
    broker_id: Int32
    broker_epoch: Int64 = -1
