"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have, without their keys (KIP-554)."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.requests.repeats import repeated
from holdfast_log.broker.security.sasl.users import ScramUsers
from holdfast_log.protocol.acls import AclOperation
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from holdfast_log.protocol.sasl.scram import ScramMechanism


@dataclass(eq=False)
class DescribeUserScramCredentialsHandler(
    Handler[DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse]
):
    request = DescribeUserScramCredentialsRequest
    users: ScramUsers
    rights: ClusterRights

    def handle(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> Deferred[DescribeUserScramCredentialsResponse]:
        self.rights.check(context, "describe SCRAM credentials", AclOperation.DESCRIBE)
        return self.users.reload().addCallback(lambda _: self._described(request))

    def _described(
        self, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        names = [user.name for user in request.users or ()]
        twice = repeated(names)
        found = self.users.describe(names or None)
        results = [_result(name, found.get(name), is_twice=name in twice) for name in dict.fromkeys(names)]
        return DescribeUserScramCredentialsResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            results=results or [_result(name, found[name]) for name in found],
        )

    def failed(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest, error: BrokerError
    ) -> DescribeUserScramCredentialsResponse:
        return DescribeUserScramCredentialsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, results=[]
        )


def _result(
    user: str, iterations: dict[ScramMechanism, int] | None, *, is_twice: bool = False
) -> DescribeUserScramCredentialsResult:
    code, message = ErrorCode.NONE, None
    if is_twice:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif iterations is None:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    infos = {} if is_twice or iterations is None else iterations
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=code,
        error_message=message,
        credential_infos=[
            CredentialInfo(mechanism=mechanism, iterations=count) for mechanism, count in infos.items()
        ],
    )
