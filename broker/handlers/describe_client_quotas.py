"""DescribeClientQuotas (key 48): quotas of users, client ids and IP addresses that match a filter (KIP-546).

Every broker answers, with what ZooKeeper has at this moment. Defaults from properties files are not shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.quotas.entities import QuotaEntity
from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.broker.quotas.store import FilterPart, Match, QuotaFilter, QuotaStore, check_filter
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

_ENTRY_BYTES = 200


@dataclass(eq=False)
class DescribeClientQuotasHandler(Handler[DescribeClientQuotasRequest, DescribeClientQuotasResponse]):
    request = DescribeClientQuotasRequest
    quotas: QuotaStore
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: DescribeClientQuotasRequest
    ) -> Deferred[DescribeClientQuotasResponse]:
        context.check(AclOperation.DESCRIBE_CONFIGS, AclResource.CLUSTER)
        parts = tuple(_part(component) for component in request.components)
        check_filter(parts)
        return ensureDeferred(self._answer(context, QuotaFilter(parts, request.strict)))

    async def _answer(self, context: RequestContext, wanted: QuotaFilter) -> DescribeClientQuotasResponse:
        found = await self.quotas.describe(wanted)
        rows = (_entry(*entry) for entry in found)
        entries = await self.answers.listed(context, DescribeClientQuotasResponse, rows, _ENTRY_BYTES)
        return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, entries=entries)

    def failed(
        self, context: RequestContext, request: DescribeClientQuotasRequest, error: BrokerError
    ) -> DescribeClientQuotasResponse:
        return DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, entries=None
        )


def _part(component: ComponentData) -> FilterPart:
    """Raises BrokerError INVALID_REQUEST for a kind of match that does not exist."""
    try:
        match = Match(component.match_type)
    except ValueError:
        message = f"unknown match type {component.match_type}: expected 0 (exact), 1 (default) or 2 (any)"
        raise BrokerError(ErrorCode.INVALID_REQUEST, message) from None
    if match is Match.EXACT and component.match is None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "a component that matches exactly has no name")
    return FilterPart(component.entity_type, match, component.match or "")


def _entry(entity: QuotaEntity, limits: dict[QuotaKey, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.components()],
        values=[ValueData(key=key, value=limit) for key, limit in limits.items()],
    )
