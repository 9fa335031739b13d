"""AlterUserScramCredentials: set and remove SCRAM credentials (KIP-554)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct


@struct
class AlterUserScramCredentialsResult:
    user: str
    error_code: Int16
    error_message: str | None = None


@struct
class AlterUserScramCredentialsResponse(Response):
    throttle_time_ms: Int32
    results: list[AlterUserScramCredentialsResult]


@struct
class ScramCredentialDeletion:
    name: str
    mechanism: Int8


@struct
class ScramCredentialUpsertion:
    name: str
    mechanism: Int8
    iterations: Int32
    salt: bytes
    salted_password: bytes


@request(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Request[AlterUserScramCredentialsResponse]):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]
