"""UpdateFeatures: change the versions of features that the cluster has decided on (KIP-584)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct, wire


@struct
class UpdatableFeatureResult:
    feature: str
    error_code: Int16
    error_message: str | None


@struct
class UpdateFeaturesResponse(Response):
    """From version 2 on all updates succeed, or the response has one error for all."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    results: list[UpdatableFeatureResult] = wire("0-1", ignorable=True)


@struct
class FeatureUpdateKey:
    """A `max_version_level` below 1 removes the feature. `upgrade_type` 1 allows a higher version only, 2 a
    lower one without loss, 3 any."""

    feature: str
    max_version_level: Int16
    allow_downgrade: bool = wire("0", default=False)
    upgrade_type: Int8 = wire("1+", default=1)


@request(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Request[UpdateFeaturesResponse]):
    timeout_ms: Int32 = 60_000
    feature_updates: list[FeatureUpdateKey]
    validate_only: bool = wire("1+", default=False)
