"""ControlledShutdown: a broker is about to stop, and hands over the partitions that it leads."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct


@struct
class RemainingPartition:
    topic_name: str
    partition_index: Int32


@struct
class ControlledShutdownResponse(Response):
    """The partitions that the broker still leads. It repeats the request until there are none."""

    error_code: Int16
    remaining_partitions: list[RemainingPartition]


@request(key=7, versions="3", flexible="3+", internal=True)
class ControlledShutdownRequest(Request[ControlledShutdownResponse]):
    broker_id: Int32
    broker_epoch: Int64 = -1
