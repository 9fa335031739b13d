"""UpdateFeatures (key 57): change the versions of features that the cluster has decided on (KIP-584).

Holdfast decides on them by settings in the files of all brokers, so no request changes one. As in Kafka with
ZooKeeper, an update is answered INVALID_REQUEST; one to the version that is in force changes nothing and is
accepted.

Versions: from 2 on the response has one error for all updates.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.features import FEATURES, finalized_features
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.transactions.settings import TransactionVersionSetting
from holdfast_log.coordinator.znodes.brokers import TRANSACTION_VERSION
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_FIRST_VERSION_WITH_ONE_ERROR = 2
_ROW_BYTES = 128
"""The price of a row beside that of its name."""


@dataclass(eq=False)
class UpdateFeaturesHandler(Handler[UpdateFeaturesRequest, UpdateFeaturesResponse]):
    request = UpdateFeaturesRequest
    rights: ClusterRights
    metadata: MetadataCache
    transactions: TransactionVersionSetting
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: UpdateFeaturesRequest
    ) -> Deferred[UpdateFeaturesResponse]:
        self.rights.check(context, "update features")
        return ensureDeferred(self._answer(context, request))

    async def _answer(
        self, context: RequestContext, request: UpdateFeaturesRequest
    ) -> UpdateFeaturesResponse:
        with self.answers.begin(context, UpdateFeaturesResponse) as answer:
            rows = answer.rows(UpdatableFeatureResult)
            failed: UpdatableFeatureResult | None = None
            for update in request.feature_updates:
                await answer.turn(_ROW_BYTES + len(update.feature))
                row = self._result(update)
                rows.add(row)
                if failed is None and row.error_code != ErrorCode.NONE:
                    failed = row
            has_one = context.version >= _FIRST_VERSION_WITH_ONE_ERROR and failed is not None
            return UpdateFeaturesResponse(
                throttle_time_ms=0,
                error_code=failed.error_code if failed is not None and has_one else ErrorCode.NONE,
                error_message=failed.error_message if failed is not None and has_one else None,
                results=rows.finish(),
            )

    def _result(self, update: FeatureUpdateKey) -> UpdatableFeatureResult:
        refused = self._refusal(update)
        error = ErrorCode.NONE if refused is None else ErrorCode.INVALID_REQUEST
        return UpdatableFeatureResult(feature=update.feature, error_code=error, error_message=refused)

    def _refusal(self, update: FeatureUpdateKey) -> str | None:
        if update.feature not in FEATURES:
            return "this cluster has no such feature: ApiVersions lists those that it has"
        features = self.metadata.features(self.transactions.version)
        present = finalized_features(features.transaction_version).get(update.feature, 0)
        if update.feature == TRANSACTION_VERSION and max(update.max_version_level, 0) == present:
            return None
        if update.feature == TRANSACTION_VERSION:
            return (
                f"it is {present}, as the brokers' files say: set {TRANSACTION_VERSION} in all of them, and "
                "restart the brokers"
            )
        return "it comes with this version of Holdfast, and cannot be changed"

    def failed(
        self, context: RequestContext, request: UpdateFeaturesRequest, error: BrokerError
    ) -> UpdateFeaturesResponse:
        return UpdateFeaturesResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, results=[]
        )
