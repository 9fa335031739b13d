"""DescribeUserScramCredentials: the SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct


@struct
class CredentialInfo:
    mechanism: Int8
    iterations: Int32


@struct
class DescribeUserScramCredentialsResult:
    user: str
    error_code: Int16
    error_message: str | None = None
    credential_infos: list[CredentialInfo]


@struct
class DescribeUserScramCredentialsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = None
    results: list[DescribeUserScramCredentialsResult]


@struct
class UserName:
    name: str


@request(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Request[DescribeUserScramCredentialsResponse]):
    users: list[UserName] | None
