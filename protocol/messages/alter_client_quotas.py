"""AlterClientQuotas: set and remove quotas (KIP-546)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Float64, Int16, Int32, struct


@struct
class AlteredEntity:
    entity_type: str
    entity_name: str | None


@struct
class AlteredEntry:
    error_code: Int16
    error_message: str | None = None
    entity: list[AlteredEntity]


@struct
class AlterClientQuotasResponse(Response):
    throttle_time_ms: Int32
    entries: list[AlteredEntry]


@struct
class OpData:
    key: str
    value: Float64
    remove: bool


@struct
class AlteredQuota:
    entity: list[AlteredEntity]
    ops: list[OpData]


@request(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Request[AlterClientQuotasResponse]):
    entries: list[AlteredQuota]
    validate_only: bool
