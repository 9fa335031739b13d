"""AllocateProducerIds: a block of producer ids for a broker (KIP-730)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct


@struct
class AllocateProducerIdsResponse(Response):
    """The broker owns `producer_id_len` ids from `producer_id_start` on."""

    throttle_time_ms: Int32
    error_code: Int16
    producer_id_start: Int64
    producer_id_len: Int32


@request(key=67, versions="0", flexible="0+", internal=True)
class AllocateProducerIdsRequest(Request[AllocateProducerIdsResponse]):
    broker_id: Int32
    broker_epoch: Int64 = -1
