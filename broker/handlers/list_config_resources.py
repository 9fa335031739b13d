"""ListConfigResources (key 74): the names of the resources that have settings (KIP-1142).

Versions: version 0 lists only client metrics (KIP-714), of which Holdfast keeps none. Version 1 lists the
asked types, or all. Brokers are those that are alive. Groups have no settings of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.configs import ResourceType
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)

_NAMES_PER_STEP = 256
"""Names that are listed without a look at how long the turn has been."""


@dataclass(eq=False)
class ListConfigResourcesHandler(Handler[ListConfigResourcesRequest, ListConfigResourcesResponse]):
    request = ListConfigResourcesRequest
    metadata: MetadataCache
    first_update: FirstUpdate
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse | Deferred[ListConfigResourcesResponse]:
        context.check(AclOperation.DESCRIBE_CONFIGS, AclResource.CLUSTER)
        if context.version == 0:
            types = [ResourceType.CLIENT_METRICS]
        else:
            types = [_known(number) for number in dict.fromkeys(request.resource_types)] or list(ResourceType)
        return self.first_update.then(lambda: ensureDeferred(self._answer(context, types)))

    async def _answer(
        self, context: RequestContext, types: list[ResourceType]
    ) -> ListConfigResourcesResponse:
        with self.answers.begin(context, ListConfigResourcesResponse) as answer:
            rows = answer.rows(ListedConfigResource)
            for type_ in types:
                names = self._names(type_)
                for start in range(0, len(names), _NAMES_PER_STEP):
                    step = names[start : start + _NAMES_PER_STEP]
                    if not await answer.afford(sum(map(len, step))):
                        raise answer.too_long
                    for name in step:
                        rows.add(ListedConfigResource(resource_name=name, resource_type=type_))
            return ListConfigResourcesResponse(
                throttle_time_ms=0, error_code=ErrorCode.NONE, config_resources=rows.finish()
            )

    def _names(self, type_: ResourceType) -> list[str]:
        match type_:
            case ResourceType.TOPIC:
                return sorted(self.metadata.topics)
            case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
                return [str(number) for number in sorted(self.metadata.brokers)]
            case ResourceType.CLIENT_METRICS | ResourceType.GROUP:
                return []

    def failed(
        self, context: RequestContext, request: ListConfigResourcesRequest, error: BrokerError
    ) -> ListConfigResourcesResponse:
        return ListConfigResourcesResponse(throttle_time_ms=0, error_code=error.code, config_resources=[])


def _known(number: int) -> ResourceType:
    try:
        return ResourceType(number)
    except ValueError:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION, f"{number} is not a type of resources that have settings"
        ) from None
