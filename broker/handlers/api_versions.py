"""ApiVersions (key 18): the APIs of this broker with their versions, and its features.

Versions: a request of a version that does not exist is answered in version 0, with UNSUPPORTED_VERSION and
the range of this API, so that a newer client can ask again (KIP-511). From version 3 on the request names the
client's software and the response carries features (KIP-584). Holdfast announces its extensions as features
and does not list their API keys, because one stock client rejects keys that it does not know. The version of
transactions is announced as decided by the whole cluster, because clients use no other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
_FEATURES_EPOCH = 0
"""The features that the cluster has decided on do not change while a broker runs."""
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]{0,253}[a-zA-Z0-9])?")


@dataclass(eq=False)
class ApiVersionsHandler(Handler[ApiVersionsRequest, ApiVersionsResponse]):
    request = ApiVersionsRequest
    dispatcher: Dispatcher
    transactions: TransactionVersionSetting

    def handle(self, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        if context.version >= 3:
            name, version = request.client_software_name, request.client_software_version
            if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version)):
                raise BrokerError(ErrorCode.INVALID_REQUEST)
            if context.connection is not None:
                context.connection.client_software_name = name
                context.connection.client_software_version = version
        keys = [
            ApiVersion(api_key=api.key, min_version=versions.first, max_version=versions.last)
            for api in self.dispatcher.apis
            if not api.internal and api.key < _KAFKA_KEYS_END
            for versions in (advertised_versions(api, self.transactions.version),)
        ]
        features = [
            SupportedFeatureKey(name=name, min_version=first, max_version=last)
            for name, (first, last) in FEATURES.items()
        ]
        finalized = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized_features(self.transactions.version).items()
        ]
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=keys,
            supported_features=features,
            finalized_features_epoch=_FEATURES_EPOCH,
            finalized_features=finalized,
        )

    def failed(
        self, context: RequestContext, request: ApiVersionsRequest, error: BrokerError
    ) -> ApiVersionsResponse:
        api = ApiVersionsRequest.api
        own = ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        keys = [own] if error.code is ErrorCode.UNSUPPORTED_VERSION else []
        return ApiVersionsResponse(error_code=error.code, api_keys=keys)
