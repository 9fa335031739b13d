"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have, without their keys (KIP-554)."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.requests.answers import LongAnswers
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

_ROW_BYTES = 128
"""Of a result with two credentials, besides its strings."""


@dataclass(eq=False)
class DescribeUserScramCredentialsHandler(
    Handler[DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse]
):
    request = DescribeUserScramCredentialsRequest
    users: ScramUsers
    rights: ClusterRights
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> Deferred[DescribeUserScramCredentialsResponse]:
        self.rights.check(context, "describe SCRAM credentials", AclOperation.DESCRIBE)
        return ensureDeferred(self._described(context, request))

    async def _described(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        await self.users.reload()
        names = [user.name for user in request.users or ()]
        twice = repeated(names)
        found = self.users.describe(names or None)
        with self.answers.begin(context, DescribeUserScramCredentialsResponse) as answer:
            results = answer.rows(DescribeUserScramCredentialsResult)
            for name in dict.fromkeys(names or found):
                # The name of a user that does not exist stands in the message, too.
                await answer.turn(_ROW_BYTES + 2 * len(name))
                results.add(_result(name, found.get(name), is_twice=name in twice))
            rows = results.finish()
        return DescribeUserScramCredentialsResponse(
            throttle_time_ms=0, error_code=ErrorCode.NONE, results=rows
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
