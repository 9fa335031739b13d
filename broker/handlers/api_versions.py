"""ApiVersions (key 18): the APIs of this broker with their versions, and its features.

Versions: a request of a version that does not exist is answered in version 0, with UNSUPPORTED_VERSION and
the range of this API, so that a newer client can ask again (KIP-511). From version 3 on the request names the
client's software and the response carries features (KIP-584). Holdfast announces its extensions as features
and does not list their API keys, because one stock client rejects keys that it does not know. The version of
transactions is announced as decided by the whole cluster, because clients use no other; the epoch tells them
which decision is the latest. A client asks once for each connection, and connects anew to a broker that
restarts. So the answer waits until the controller has told the broker of the decision: clients that run learn
of a version that rises with this restart. The APIs' versions that belong to a version of transactions are
those of this broker's own file: when the last broker has it, and the features say so, every connection of
every client knows of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.requests.features import FEATURES, advertised_versions, finalized_features
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.transactions.settings import TransactionVersionSetting
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_KAFKA_KEYS_END = 1000
"""Lowest API key of Holdfast's extensions."""
_FIRST_WITH_FEATURES = 3
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]{0,253}[a-zA-Z0-9])?")


@dataclass(eq=False)
class ApiVersionsHandler(Handler[ApiVersionsRequest, ApiVersionsResponse]):
    request = ApiVersionsRequest
    dispatcher: Dispatcher
    metadata: MetadataCache
    first_update: FirstUpdate
    transactions: TransactionVersionSetting

    def handle(
        self, context: RequestContext, request: ApiVersionsRequest
    ) -> ApiVersionsResponse | Deferred[ApiVersionsResponse]:
        if context.version >= _FIRST_WITH_FEATURES:
            name, version = request.client_software_name, request.client_software_version
            if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version)):
                raise BrokerError(ErrorCode.INVALID_REQUEST)
            if context.connection is not None:
                context.connection.client_software_name = name
                context.connection.client_software_version = version
            return self.first_update.then(self._answer)
        return self._answer()

    def _answer(self) -> ApiVersionsResponse:
        features = self.metadata.features(self.transactions.version)
        keys = [
            ApiVersion(api_key=api.key, min_version=versions.first, max_version=versions.last)
            for api in self.dispatcher.apis
            if not api.internal and api.key < _KAFKA_KEYS_END
            for versions in (advertised_versions(api, self.transactions.version),)
        ]
        supported = [
            SupportedFeatureKey(name=name, min_version=first, max_version=last)
            for name, (first, last) in FEATURES.items()
        ]
        finalized = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized_features(features.transaction_version).items()
        ]
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=keys,
            supported_features=supported,
            finalized_features_epoch=features.epoch,
            finalized_features=finalized,
        )

    def failed(
        self, context: RequestContext, request: ApiVersionsRequest, error: BrokerError
    ) -> ApiVersionsResponse:
        api = ApiVersionsRequest.api
        own = ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        keys = [own] if error.code is ErrorCode.UNSUPPORTED_VERSION else []
        return ApiVersionsResponse(error_code=error.code, api_keys=keys)
