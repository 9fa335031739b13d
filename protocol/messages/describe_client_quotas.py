"""DescribeClientQuotas: the quotas that match a filter (KIP-546)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Float64, Int8, Int16, Int32, struct


@struct
class EntityData:
    entity_type: str
    entity_name: str | None


@struct
class ValueData:
    key: str
    value: Float64


@struct
class EntryData:
    entity: list[EntityData]
    values: list[ValueData]


@struct
class DescribeClientQuotasResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = None
    entries: list[EntryData] | None


@struct
class ComponentData:
    entity_type: str
    match_type: Int8
    match: str | None


@request(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Request[DescribeClientQuotasResponse]):
    components: list[ComponentData]
    strict: bool
