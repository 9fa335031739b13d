"""DescribeUserScramCredentials (key 50): the SCRAM credentials of users (KIP-554).

Brokers do not authenticate users, so no user has any. Kafka's ConfigCommand asks for them whenever it shows
the quotas of users.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@dataclass(eq=False)
class DescribeUserScramCredentialsHandler(
    Handler[DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse]
):
    request = DescribeUserScramCredentialsRequest

    def handle(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        context.check(AclOperation.DESCRIBE, AclResource.CLUSTER)
        results = [
            DescribeUserScramCredentialsResult(
                user=user.name,
                error_code=ErrorCode.RESOURCE_NOT_FOUND,
                error_message=f"the user {user.name!r} has no SCRAM credentials",
                credential_infos=[],
            )
            for user in request.users or ()
        ]
        return DescribeUserScramCredentialsResponse(
            throttle_time_ms=0, error_code=ErrorCode.NONE, results=results
        )

    def failed(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest, error: BrokerError
    ) -> DescribeUserScramCredentialsResponse:
        return DescribeUserScramCredentialsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, results=[]
        )
