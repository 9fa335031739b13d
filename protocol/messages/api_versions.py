"""ApiVersions: the APIs and versions of a broker (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class ApiVersion:
    """The versions of one API that the broker supports."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    """The versions of one feature that the broker supports. The minimum is at least 1."""

    name: str
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeatureKey:
    """The version level of one feature that the whole cluster has agreed on."""

    name: str
    max_version_level: Int16
    min_version_level: Int16


@struct
class ApiVersionsResponse(Response):
    """Versions and features. `finalized_features_epoch` is -1 if unknown (KIP-584)."""

    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = wire("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = wire("3+", tag=0, ignorable=True)
    finalized_features_epoch: Int64 = wire("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = wire("3+", tag=2, ignorable=True)
    zk_migration_ready: bool = wire("3+", tag=3, ignorable=True)


@request(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """The name and version of the client library, since KIP-511."""

    client_software_name: str = wire("3+", ignorable=True)
    client_software_version: str = wire("3+", ignorable=True)
