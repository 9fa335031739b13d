"""InitProducerId: an id and an epoch for an idempotent or transactional producer (KIP-98, KIP-360)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class InitProducerIdResponse(Response):
    """The id and epoch to write with from now on; -1 on error."""

    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16


@request(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """An idempotent producer has no transactional id. `producer_id` and `producer_epoch` are -1 at first
    (KIP-360).
    """

    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = wire("3+", default=-1)
    producer_epoch: Int16 = wire("3+", default=-1)
